package restore

import (
	"time"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
)

// Phase is a part of a restore.
type Phase string

// The phases, in their order. PhaseWrite reads the image and writes all
// databases in one pass; the other ones are short.
const (
	// PhaseBase to PhaseProve come before the others, where a log was replayed:
	// those of package walreplay.
	PhaseBase   Phase = Phase(walreplay.PhaseBase)
	PhaseSearch Phase = Phase(walreplay.PhaseSearch)
	PhaseReplay Phase = Phase(walreplay.PhaseReplay)
	PhaseProve  Phase = Phase(walreplay.PhaseProve)

	PhaseCheck   Phase = "check"
	PhaseWrite   Phase = "write"
	PhaseEdit    Phase = "edit"
	PhaseLog     Phase = "log"
	PhaseSync    Phase = "sync"
	PhasePublish Phase = "publish"
	PhaseFinish  Phase = "finish"
)

// Progress is told to ExecOptions.Progress. Bytes are those of the image; they
// are 0 in phases that do not count any.
type Progress struct {
	Phase       Phase
	Done, Total int64
}

// PhaseTime is how long a phase took.
type PhaseTime struct {
	Phase    Phase         `json:"phase"`
	Duration time.Duration `json:"nanoseconds"`
}

// Result is what a restore did.
type Result struct {
	// Plan is what was carried out. With CompletedEarlier it is the plan of an
	// earlier run, whose members were all in place already.
	Plan             *Plan `json:"plan"`
	CompletedEarlier bool  `json:"completed_earlier,omitempty"`

	Members        []MemberResult `json:"members"` // of this host
	InitialCluster string         `json:"initial_cluster"`
	// RevisionBefore is the image's, RevisionAfter what the cluster starts with.
	RevisionBefore int64            `json:"revision_before"`
	RevisionAfter  int64            `json:"revision_after"`
	AlarmsCleared  []snapshot.Alarm `json:"alarms_cleared,omitempty"`
	// DowngradeEnded is the version of a cluster downgrade that was under way in
	// the image. The new cluster is not downgrading: ask for it again.
	DowngradeEnded string      `json:"downgrade_ended,omitempty"`
	Phases         []PhaseTime `json:"phases"`
}

// MemberResult is one member that was built.
type MemberResult struct {
	Name     string      `json:"name"`
	ID       snapshot.ID `json:"id"`
	DataDir  string      `json:"data_dir"`
	WALDir   string      `json:"wal_dir,omitempty"`
	PeerURLs []string    `json:"peer_urls"`
	Learner  bool        `json:"learner,omitempty"`
	// SetAside is where the content of existing directories went.
	SetAside []string `json:"set_aside,omitempty"`
	// Flags start this member with etcd, beside its listen addresses,
	// certificates and quota. The cluster's state is "existing": a member with
	// a log ignores it, and one that does not find its data directory then fails
	// instead of bootstrapping an empty cluster.
	Flags []string `json:"flags"`
}

// Took is the time of all phases.
func (r *Result) Took() (sum time.Duration) {
	for _, p := range r.Phases {
		sum += p.Duration
	}
	return sum
}

func newResult(p *Plan, targets []*target) *Result {
	r := &Result{
		Plan:           p,
		InitialCluster: p.InitialCluster(),
		RevisionBefore: p.Source.Facts.Revision,
		RevisionAfter:  p.Source.Facts.Revision,
		AlarmsCleared:  p.ClearAlarms,
	}
	if p.Bump != nil {
		r.RevisionAfter = p.Bump.NewRevision
	}
	for _, t := range targets {
		r.Members = append(r.Members, MemberResult{
			Name: t.Name, ID: t.ID, DataDir: t.DataDir, WALDir: t.WALDir, PeerURLs: t.PeerURLs, Learner: t.Learner,
			SetAside: t.aside, Flags: startFlags(p, t.Member),
		})
	}
	return r
}

func startFlags(p *Plan, m Member) []string {
	flags := []string{"--name=" + m.Name, "--data-dir=" + m.DataDir}
	if m.WALDir != "" {
		flags = append(flags, "--wal-dir="+m.WALDir)
	}
	urls := ""
	for i, u := range m.PeerURLs {
		if i > 0 {
			urls += ","
		}
		urls += u
	}
	return append(flags,
		"--initial-advertise-peer-urls="+urls,
		"--initial-cluster="+p.InitialCluster(),
		"--initial-cluster-token="+p.ClusterToken,
		"--initial-cluster-state=existing")
}
