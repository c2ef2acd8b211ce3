package recovery

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/shell"
	"github.com/requorum/requorum/verify/serve"
)

// Report is what a recovery did. Its JSON form is stable.
type Report struct {
	Cluster string `json:"cluster"`
	Run     string `json:"run"`
	// Continued says that the run had been begun by an earlier command.
	Continued bool `json:"continued,omitempty"`
	// GivenUp says that the run had set nothing aside and the cluster serves again: what it
	// had stopped was started, and all but the hosts is empty.
	GivenUp bool          `json:"given_up,omitempty"`
	Plan    *sources.Plan `json:"plan"`
	Proven  bool          `json:"proven"`
	Lost    sources.Loss  `json:"lost"`

	OldClusterID snapshot.ID `json:"old_cluster_id,omitzero"`
	NewClusterID snapshot.ID `json:"new_cluster_id"`
	// InitialCluster is the value for etcd's flag.
	InitialCluster string              `json:"initial_cluster"`
	Members        []sources.NewMember `json:"members"`
	// RevisionBefore is that of the state that was recovered, RevisionAfter the one
	// that the new cluster began with.
	RevisionBefore int64 `json:"revision_before"`
	RevisionAfter  int64 `json:"revision_after"`

	Hosts  []HostReport  `json:"hosts,omitempty"`
	Proof  *serve.Report `json:"proof,omitempty"`
	Phases []PhaseTime   `json:"phases"`
	// RTO is from the first change until the new cluster was proved to serve, and
	// ClientsBack until the clients were started; both count time in which nobody
	// went on with the run.
	RTO         time.Duration `json:"rto_nanoseconds"`
	ClientsBack time.Duration `json:"clients_back_nanoseconds"`
	Began       time.Time     `json:"began"` // by the clock of the machine where it was

	// Compared is the restored database beside the survivors'.
	Compared *sources.Comparison `json:"cross_check,omitempty"`
	// On this machine Restore is what was built, or Snapshot the one file, with the plan by which
	// other hosts build their members from it.
	Restore  *restore.Result `json:"restore,omitempty"`
	Snapshot *restore.Result `json:"snapshot,omitempty"`
	HostPlan *restore.Plan   `json:"host_plan,omitempty"`

	Lineage   []TimelinesDone `json:"lineage,omitempty"`
	Snapshots []Stored        `json:"snapshots,omitempty"`
	// Incomplete says what failed after the proof: the same command completes it.
	Incomplete []string `json:"incomplete,omitempty"`
	Warnings   []string `json:"warnings,omitempty"`
	Next       []string `json:"next,omitempty"` // steps for the operator
}

// HostReport is what was done on one host.
type HostReport struct {
	Member  string `json:"member"`
	Address string `json:"address"`
	// Left: it had an old member and got no new one; Dead: it was passed by.
	Left    bool                `json:"left,omitempty"`
	Dead    bool                `json:"declared_dead,omitempty"`
	Aside   *restore.Aside      `json:"aside,omitempty"`
	Brought []host.Brought      `json:"brought,omitempty"`
	Phases  []restore.PhaseTime `json:"phases,omitempty"`
	Flags   []string            `json:"flags,omitempty"` // that start the member
}

// PhaseTime is how long a phase took in this command: all attempts that came to an end,
// without what was between them.
type PhaseTime struct {
	Phase Phase         `json:"phase"`
	Took  time.Duration `json:"nanoseconds"`
}

// Stored is the full snapshot in one repository.
type Stored struct {
	Repository string `json:"repository"`
	Backup     string `json:"backup,omitempty"`
}

// UndoReport is what an undo did. Its JSON form is stable.
type UndoReport struct {
	Cluster string     `json:"cluster"`
	Run     string     `json:"run"`
	Hosts   []HostUndo `json:"hosts"`
	// Lineage is what was done in repositories.
	Lineage []TimelinesDone `json:"lineage,omitempty"`
}

// HostUndo is what an undo did on one host.
type HostUndo struct {
	Member string `json:"member"`
	// PutBack is the data directory whose old content is back; empty where nothing
	// had been set aside. Kept is where the new content went.
	PutBack string   `json:"put_back,omitempty"`
	Kept    []string `json:"kept,omitempty"`
	Started bool     `json:"started"`
	// Dead says that the host was passed by.
	Dead bool `json:"declared_dead,omitempty"`
	// Failed says why the old data is not back, or why the member does not start.
	Failed string `json:"failed,omitempty"`
}

// report sums up what was done.
func (d *coordinator) report() *Report {
	dec := d.decision
	first := dec.first()
	r := &Report{
		Cluster: d.cfg.Cluster, Run: d.run, Continued: d.continued, Plan: dec.Plan, Proven: dec.Plan.Proven, Lost: dec.Plan.Loss,
		OldClusterID: dec.Plan.ClusterID, NewClusterID: dec.NewClusterID, InitialCluster: dec.initialCluster(), Members: dec.Members,
		RevisionBefore: first.Revision, RevisionAfter: first.Restore.RevisionAfter,
		Proof: dec.Proved.Report, Phases: d.phases, Began: dec.Began, Incomplete: dec.Incomplete,
		RTO: max(0, dec.Proved.At.Sub(dec.Began)), Lineage: d.timelines, Snapshots: dec.Snapshots, Compared: dec.Compared,
	}
	if dec.Timelines != nil {
		r.Lineage = dec.Timelines
	}
	if !dec.Resumed.IsZero() {
		r.ClientsBack = max(0, dec.Resumed.Sub(dec.Began))
	}
	for _, h := range d.hosts {
		one := HostReport{Member: h.Member, Address: h.Address(), Left: slices.Contains(dec.Left, h.Member), Dead: h.passedBy()}
		if a := h.aside(d.run); a != nil {
			one.Aside = &a.Aside
		}
		if b := dec.Built[h.Member]; b != nil {
			one.Brought, one.Phases = b.Brought, b.Phases
			for _, m := range b.Restore.Members {
				one.Flags = append(one.Flags, m.Flags...)
			}
		}
		r.Hosts = append(r.Hosts, one)
	}
	r.Warnings, r.Next = d.after(r), d.next()
	return r
}

// after are the warnings that still count when all is done.
func (d *coordinator) after(r *Report) []string {
	dec := d.decision
	all := slices.Concat(dec.Plan.Doubts(), dec.Plan.Warnings)
	if c := dec.Compared; c != nil && len(dec.candidate().Source.Peers) > 0 && (c.Differ() || len(c.Same) == 0) {
		all = append(all, c.String())
	}
	for _, l := range r.Lineage {
		for _, w := range l.Warnings {
			all = append(all, l.Repository+": "+w)
		}
	}
	if len(dec.Left) > 0 {
		all = append(all, fmt.Sprintf("no new member for %s: what was there is set aside, and a placeholder that no etcd starts from is in its place", strings.Join(dec.Left, ", ")))
	}
	for _, dead := range dec.Plan.Fence.DeclaredDead {
		if h := d.host(dead); h != nil && h.aside(d.run) != nil && h.aside(d.run).Done {
			continue // it has come back by now, and the old data cannot start
		}
		all = append(all, fmt.Sprintf("%s was declared dead: should its host come back, stop its member before it reaches clients", dead))
	}
	return all
}

// next are the operator's next steps.
func (d *coordinator) next() []string {
	dec := d.decision
	all := d.staleFlags(dec.Plan.Members, dec.Members)
	endpoint := "URL"
	for _, m := range dec.Members {
		if len(m.ClientURLs) > 0 {
			endpoint = strings.Join(m.ClientURLs, ",")
			break
		}
	}
	for _, m := range dec.Plan.Members {
		if slices.ContainsFunc(dec.Members, func(n sources.NewMember) bool { return n.Old == m.Name || n.Old == m.ID.String() || n.Name == m.Name }) {
			continue
		}
		name, url := m.Name, "https://HOST:2380"
		if name == "" {
			name = "NAME"
		}
		if len(m.PeerURLs) > 0 {
			url = strings.Join(m.PeerURLs, ",")
		}
		promote := ", start it there with an empty data directory" + d.placeholder(m.Name) + ", then: " + etcdctl(endpoint, "member", "promote", "ID")
		if m.IsLearner {
			promote = ", and start it there with an empty data directory" + d.placeholder(m.Name)
		}
		all = append(all, "to have "+name+" back: "+etcdctl(endpoint, "member", "add", name, "--learner", "--peer-urls="+url)+promote)
	}
	for _, h := range d.hosts {
		if text := d.oldData(h); text != "" {
			all = append(all, text)
		}
	}
	return all
}

// etcdctl returns a command of it. It refuses an endpoint as a flag if the variable is set.
func etcdctl(endpoints string, arguments ...string) string {
	return shell.Quote(append([]string{"ETCDCTL_ENDPOINTS=" + endpoints, "etcdctl"}, arguments...)...)
}

// placeholder says what has to be removed first on a host whose data was set aside
// without a new member in its place.
func (d *coordinator) placeholder(name string) string {
	h := d.host(name)
	if h == nil || h.aside(d.run) == nil || h.aside(d.run).Empty {
		return ""
	}
	aside := h.aside(d.run)
	what := filepath.Join(aside.DataDir, "member")
	if aside.WALDir != "" {
		what += " and the *.wal in " + aside.WALDir
	}
	return " (remove " + what + " there first, which is a placeholder)"
}

// changed reports whether an old --initial-cluster is another one than the new.
func changed(old []snapshot.Member, now []sources.NewMember) bool {
	return len(old) != len(now) || slices.ContainsFunc(now, func(n sources.NewMember) bool {
		return !slices.ContainsFunc(old, func(o snapshot.Member) bool {
			return o.Name == n.Name && slices.Equal(slices.Sorted(slices.Values(o.PeerURLs)), slices.Sorted(slices.Values(n.PeerURLs)))
		})
	})
}

// reporter calls an Events from one goroutine at a time; a nil one hears nothing, and
// answers no question with yes.
type reporter struct {
	mu     sync.Mutex
	events Events
}

func (t *reporter) with(f func(Events)) {
	if t.events == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	f(t.events)
}

func (t *reporter) begin(p Phase, host string) { t.with(func(e Events) { e.Begin(p, host) }) }

func (t *reporter) end(p Phase, host, detail string, took time.Duration, err error) {
	t.with(func(e Events) { e.End(p, host, detail, took, err) })
}

func (t *reporter) progress(p Phase, host, what string, done, total int64) {
	t.with(func(e Events) { e.Progress(p, host, what, done, total) })
}

func (t *reporter) waiting(p Phase, text string) { t.with(func(e Events) { e.Waiting(p, text) }) }
func (t *reporter) note(text string)             { t.with(func(e Events) { e.Note(text) }) }
func (t *reporter) warn(text string)             { t.with(func(e Events) { e.Warn(text) }) }

func (t *reporter) confirm(ctx context.Context, q Question) error {
	err := ErrDeclined
	t.with(func(e Events) { err = e.Confirm(ctx, q) })
	return err
}
