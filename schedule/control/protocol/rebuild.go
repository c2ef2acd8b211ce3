package protocol

import (
	"encoding/json"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/schedule/rescue/proof"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
)

// RebuildPlan is Action.Plan of Rebuild: what every host of the new cluster
// builds. All but Beside is the same for all of them.
type RebuildPlan struct {
	// ID names the plan: a member that was built by the plan of this ID is not
	// built again.
	ID string `json:"id"`
	// Old is the ID of the cluster that was lost. New is that of the one that is
	// built, as it follows from the token and the URLs: a host that comes to
	// another one refuses.
	Old snapshot.ID `json:"old_cluster_id"`
	New snapshot.ID `json:"new_cluster_id"`
	// Source is what is replayed. A host may take another one of Source.Others,
	// which all end at the same entry.
	Source recovery.Source `json:"source"`
	// Beside are owners whose databases other hosts begin from: this one takes
	// another's where it can, so that what the hosts came to can be compared. It is
	// what differs between hosts.
	Beside []string `json:"beside,omitempty"`
	// Target is where the replay ends; the zero value is the source's end.
	Target walreplay.Target `json:"target,omitzero"`

	InitialCluster string   `json:"initial_cluster"`
	ClusterToken   string   `json:"cluster_token"`
	Learners       []string `json:"learners,omitempty"`

	Bump restore.BumpRequest `json:"bump"`
	// HighestKnown is the highest revision that the old cluster can have reached.
	HighestKnown int64          `json:"highest_known"`
	Replay       ReplaySettings `json:"replay"`
}

// ReplaySettings say how the old cluster's members were configured: see
// walreplay.Options.
type ReplaySettings struct {
	MinLeaseTTL        time.Duration `json:"min_lease_ttl_nanoseconds,omitempty"`
	PersistCheckpoints bool          `json:"persist_checkpoints,omitempty"`
	SourceVersion      string        `json:"source_version,omitempty"`
}

// RebuildSource is Action.Source of Rebuild: where the data of survivors lies
// that is not this host's own. Repositories are not among it: a host reads those
// that its own configuration names.
type RebuildSource struct {
	Owners map[string]Location `json:"owners,omitempty"`
}

// Location is where a survivor's data lies: what Run set aside on the host whose
// control process listens at Address, and controls Member.
type Location struct {
	Address string `json:"address"`
	Member  string `json:"member"`
	Run     string `json:"run"`
}

// Rebuilt is Done.Result of Rebuild: what was built. All but Way, Brought and Phases
// has to be equal on all hosts.
type Rebuilt struct {
	PlanID string `json:"plan_id"`
	// Recipe is nil where nothing had to be replayed.
	Recipe  *walreplay.Recipe   `json:"recipe,omitempty"`
	Restore *restore.Result     `json:"restore"`
	Brought []Brought           `json:"brought"`
	Phases  []restore.PhaseTime `json:"phases"`

	// Way is which of the plan's sources was replayed, without others.
	Way *recovery.Source `json:"way,omitempty"`
	// Index to HashKV are those of the state that was rebuilt: before the bump.
	Index    uint64          `json:"raft_index"`
	Term     uint64          `json:"raft_term"`
	Revision int64           `json:"revision"`
	HashKV   snapshot.HashKV `json:"hashkv"`
	// Image is what the new cluster is held against, beside its keys; nil where it was
	// not looked at.
	Image *proof.Image `json:"image,omitempty"`
	// Earlier says that an earlier request of the same run had built it.
	Earlier bool `json:"earlier,omitempty"`
}

// Built is a rebuild that a host remembers: which run did it, and what it came to.
type Built struct {
	Run string      `json:"run"`
	Old snapshot.ID `json:"old_cluster_id"`
	New snapshot.ID `json:"new_cluster_id"`
	// Ago is how long ago it came to its end, by the host's clock.
	Ago time.Duration `json:"ago_ns"`
	// Result is a Rebuilt, as it was answered then.
	Result json.RawMessage `json:"result"`
}

// Brought is one owner's data that a rebuild read.
type Brought struct {
	Owner string `json:"owner"`
	// From is "this host", the address of another host, or a repository.
	From  string        `json:"from"`
	Bytes int64         `json:"bytes"`
	Took  time.Duration `json:"took_nanoseconds"`
	Rate  float64       `json:"bytes_per_second"`
	// Why says why it was taken from there, where there was a choice, and which
	// one failed.
	Why string `json:"why,omitempty"`
}

// HereName is Brought.From of what lay on the host itself.
const HereName = "this host"

// SurveyPath is where the digest of a stopped member is asked for, with GET and
// the role of Observe; with the query run=R, of what the run R set aside.
const SurveyPath = "/v1/survey"
