package rescue

import (
	"log/slog"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/schedule/rescue/config"
	"github.com/requorum/requorum/walreplay"
)

// Request is what the operator asks for. Of a run that goes on, what is left zero
// is as it was decided, and what contradicts the decision is a *ContradictionError.
type Request struct {
	Config *config.Config

	// Change says who the new members are; zero: those that the cluster had. Its
	// Available is filled in from Config.
	Change recovery.MembersRequest
	// Source names a candidate; empty: the best one, where one history is there.
	Source string
	// DeclareDead are names or IDs of old members that will never start again. Undo
	// passes by their hosts.
	DeclareDead []string
	// Target is the point to recover; zero: the newest. Where TargetFromNow says that
	// its time was reckoned from now, a run that goes on keeps the time that it was
	// decided for.
	Target        walreplay.Target
	TargetFromNow bool
	// Bump overrides what the plan says of the revision: BumpAuto, which is zero,
	// follows the plan.
	Bump restore.BumpRequest
	// Replay says how the old members were configured.
	Replay protocol.ReplaySettings

	// Force recovers although a quorum serves, or although that cannot be told.
	Force bool
	// TakeOver takes the hosts over from a run of a driver elsewhere that does not go
	// on. What it had set aside is put back first.
	TakeOver bool

	// UpdateFlags brings those of etcd's flags in line that say who the members are,
	// where control processes can, before the new members start. Of a run that goes on
	// it may be added until then. Where it fails the recovery goes on.
	UpdateFlags bool

	// Tool is what writes, such as "requorum 1.2.3", for manifests.
	Tool string
	// Events is told what goes on, and asked. Look takes nil; Run and Undo don't.
	Events Events
	Logger *slog.Logger // may be nil

	// For tests; zero is the default.
	patience, proveTimeout, election, watchAfter time.Duration
}
