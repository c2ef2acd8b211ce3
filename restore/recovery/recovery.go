package recovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/engine"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Asked is what the operator wants of a run. Of one that goes on, what is left zero is as
// it was decided, and what contradicts the decision is a *restore.RequestError.
type Asked struct {
	// Change says who the new members are; zero: those that the cluster had. Its
	// Available is filled in from the cluster file.
	Change sources.MembersRequest `json:"change"`
	// Source names a candidate; empty: the best one, where one history is there.
	Source string `json:"source,omitempty"`
	// DeclareDead are names or IDs of old members that will never start again. Undo
	// passes by their hosts.
	DeclareDead []string `json:"declare_dead,omitempty"`
	// Target is the point to recover; zero: the newest.
	Target walreplay.Target `json:"target"`
	// Bump overrides what the plan says of the revision: BumpAuto, which is zero,
	// follows the plan.
	Bump restore.BumpRequest `json:"bump"`
	// Replay says how the old members were configured.
	Replay engine.SourceSettings `json:"replay"`
	// Force recovers although a quorum serves, or although that is not known.
	Force bool `json:"force,omitempty"`
	// Build is what a recovery on this machine builds, and where. The image and the revision are
	// filled in, and members and learners if none are given.
	Build *restore.Request `json:"build,omitempty"`
}

// Request is what a run is begun with, or gone on with.
type Request struct {
	Config *Config
	// Local is a recovery on this machine; nil is one on the hosts of a cluster file.
	Local *Local
	Asked
	// TargetFromNow says that the target's time was reckoned from now: a run that goes
	// on keeps the time that it was decided for.
	TargetFromNow bool

	// Sinks are how repositories are opened.
	Sinks sinks.Options
	// ScratchDir is where a database is built that no single host can build; empty is the
	// temporary folder of this machine.
	ScratchDir string
	// CheckBase looks at a database beyond its pages before it is relied upon there.
	CheckBase func(ctx context.Context, name string, r io.ReaderAt, size int64) error
	// Version is that of requorum, which hosts have to have as well.
	Version string
	// Events hears what goes on, and is asked. Look takes nil; Run and Undo don't.
	Events Events
	Logger *slog.Logger // may be nil

	// For tests; zero is the default.
	patience, proveTimeout, lateTimeout, election, watchAfter time.Duration
}

// Errors to distinguish.
var (
	// ErrDeclined says that the operator said no. What had been stopped for the
	// question is started again.
	ErrDeclined = errors.New("it was not confirmed")
	// ErrNothingToUndo says that no run is known that could be undone.
	ErrNothingToUndo = errors.New("there is nothing to undo")
)

// QuorumError says that the cluster serves, so that nothing is to be recovered.
type QuorumError struct {
	Quorum Quorum
	// Next are the commands to replace a single member.
	Next []string
}

func (e *QuorumError) Error() string {
	if !e.Quorum.Serves {
		return fmt.Sprintf("whether the cluster serves is not known: %s. Recover with --force only if you know that it does not", e.Quorum.Unknown)
	}
	return fmt.Sprintf("the cluster serves (member %s answered a linearizable read): its quorum is not lost, and nothing was changed. To replace a single member:\n  %s",
		e.Quorum.By, strings.Join(e.Next, "\n  "))
}

// BlockedError says why a recovery cannot be begun. Nothing was changed. Where naming
// members would end all of it, those that are dead or those of the new cluster, it is in
// a *restore.RequestError.
type BlockedError struct{ Blockers []string }

func (e *BlockedError) Error() string {
	return "nothing was changed: " + strings.Join(e.Blockers, "\n")
}

// HostsError says on which hosts a phase failed. The same command goes on with it.
type HostsError struct {
	Phase Phase
	// Errs are by the member's name.
	Errs map[string]error
}

func (e *HostsError) Error() string {
	var all []string
	for _, name := range sortedKeys(e.Errs) {
		all = append(all, fmt.Sprintf("%s: %v", name, e.Errs[name]))
	}
	next := "Run the same command again to go on, or --undo to put everything back"
	switch {
	case e.Phase == PhasePreflight || e.Phase == PhaseSurvey:
		next = "Run the same command again once that is mended"
	case e.Phase == PhaseUndoStart:
		next = "The old data is back: start the member by hand once that is mended"
	case slices.Contains([]Phase{PhaseUndoStop, PhasePutBack, PhaseReinstate, PhaseUndoResume}, e.Phase):
		next = "Run the same command again to go on"
	}
	return fmt.Sprintf("%s failed: %s. %s", e.Phase, strings.Join(all, "; "), next)
}

func (e *HostsError) Unwrap() []error {
	var all []error
	for _, name := range sortedKeys(e.Errs) {
		all = append(all, e.Errs[name])
	}
	return all
}

// Phase is a part of a recovery. The texts are stable.
type Phase string

// The phases, in their order.
const (
	PhasePreflight Phase = "preflight" // each host's state, and whether a quorum serves
	PhaseSurvey    Phase = "survey"    // what stopped members and repositories hold
	PhaseDecide    Phase = "decide"    // the hosts store what is decided
	PhaseQuiesce   Phase = "quiesce"   // clients are stopped
	PhaseFence     Phase = "fence"     // old members are stopped
	PhaseSetAside  Phase = "set-aside"
	PhaseRebuild   Phase = "rebuild"
	PhaseLineage   Phase = "lineage" // the new timeline is opened
	PhaseStart     Phase = "start"
	PhaseProve     Phase = "prove"
	PhaseResume    Phase = "resume"    // clients are started
	PhaseSupersede Phase = "supersede" // the old timelines end
	PhaseSnapshot  Phase = "snapshot"
	PhaseLate      Phase = "late" // members that clients did not wait for are compared
)

// The phases of an undo, and of a recovery that was declined.
const (
	PhaseUndoStop   Phase = "undo-stop" // clients, then new members
	PhasePutBack    Phase = "put-back"
	PhaseReinstate  Phase = "reinstate" // the old timeline lives again
	PhaseUndoStart  Phase = "undo-start"
	PhaseUndoResume Phase = "undo-resume"
)

// Events hears what goes on. Its methods are called from one goroutine at a time.
type Events interface {
	// Begin and End frame a phase, on a host (the member's name) or, where host is
	// empty, as a whole; detail says in a few words what came out. What is
	// done already is not reported again.
	Begin(phase Phase, host string)
	End(phase Phase, host, detail string, took time.Duration, err error)
	// Progress counts what is done of a phase, in bytes or entries; total is 0 where
	// it is not known. what is such as "read the logs".
	Progress(phase Phase, host, what string, done, total int64)
	// Waiting says what is waited for, now and then.
	Waiting(phase Phase, text string)
	// Note is a sentence for the operator.
	Note(text string)
	// Warn is one that must not be overlooked.
	Warn(text string)
	// Confirm asks: nil is yes, ErrDeclined no. Any other error ends the run as a no
	// does, and is returned.
	Confirm(ctx context.Context, q Question) error
}

// Question is one for the operator.
type Question struct {
	// Text is the question, in a sentence; Reasons what has to be known for it, beside
	// what Preview shows.
	Text    string
	Reasons []string
	// Type is what has to be typed, the cluster's name; empty where yes will do.
	Type string
	// Preview is what would be done; nil before an undo.
	Preview *Preview
}
