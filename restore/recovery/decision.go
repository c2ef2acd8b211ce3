package recovery

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

// decision is what a run carries out, and how far it is with that. The hosts have stored
// it before the first change, and again where it goes on: the coordinator keeps nothing.
// What was done on a host, that host knows.
type decision struct {
	Run   string        `json:"run"`
	Asked Asked         `json:"asked"`
	Hosts []decidedHost `json:"hosts"`
	Began time.Time     `json:"began_at"` // by the clock of the coordinator that began it
	// Earlier are the runs that were known when it was begun.
	Earlier []string `json:"earlier,omitempty"`
	// Ran are the members that ran when the run was begun.
	Ran []string `json:"ran,omitempty"`

	// Final says that the plan is made of all that can be read; before that it is
	// what the operator was shown when he let the members be stopped.
	Final bool `json:"final"`
	// Unproven says that the loss of what may be missing was agreed to.
	Unproven bool `json:"unproven_confirmed,omitempty"`
	// Read is what the plan is made of: the sum over the files of each member.
	Read    map[string]string   `json:"read,omitempty"`
	Plan    *sources.Plan       `json:"plan"`
	Members []sources.NewMember `json:"members,omitempty"`
	Left    []string            `json:"left,omitempty"`

	PlanID       string              `json:"plan_id,omitempty"`
	ClusterToken string              `json:"cluster_token"`
	NewClusterID snapshot.ID         `json:"new_cluster_id,omitzero"`
	Bump         restore.BumpRequest `json:"bump"`
	Branch       repository.Branch   `json:"branch,omitzero"`

	// Compared is what came of comparing the database that was built with the survivors'.
	Compared *sources.Comparison `json:"compared,omitempty"`
	// Built is what all hosts built of the same database, by member. From then on, which
	// is BuiltAt, new members are started, and old ones are not looked after any more.
	Built   map[string]*host.Rebuilt `json:"built,omitempty"`
	BuiltAt time.Time                `json:"built_at,omitzero"`
	// Proved comes before any client is let on the new cluster, and Resumed when all are.
	Proved    *proved         `json:"proved,omitempty"`
	Resumed   time.Time       `json:"resumed_at,omitzero"`
	Timelines []TimelinesDone `json:"timelines,omitempty"` // that the new cluster ended
	Snapshots []Stored        `json:"snapshots,omitempty"`
	// Finished says that the run is over, but for what is Incomplete.
	Finished   bool     `json:"finished,omitempty"`
	Incomplete []string `json:"incomplete,omitempty"`

	// Undoing says that the run is taken back.
	Undoing bool   `json:"undoing,omitempty"`
	Closed  closed `json:"closed,omitempty"`
}

// closed is how a run ended that left the old cluster as it was.
type closed string

const (
	undone closed = "undone"
	// givenUp: declined, or the cluster serves again.
	givenUp closed = "given up"
)

// over reports whether nothing is under way any more.
func (d *decision) over() bool { return d.Closed != "" || d.Finished && !d.Undoing }

// incomplete reports whether a run that is over left something to be done, and its
// cluster is there for it.
func (d *decision) incomplete(q Quorum) bool {
	return d.Closed == "" && len(d.Incomplete) > 0 && q.Serves && q.ClusterID == d.NewClusterID
}

// progress says what happened in a run, which a decision that lacks it cannot undo: a
// host that others could not be reached beside may hold an older one of a higher epoch.
func (d *decision) progress() int {
	for i, is := range []bool{d.Closed != "", d.Undoing, d.Finished, d.Proved != nil, d.Built != nil} {
		if is {
			return 5 - i
		}
	}
	return 0
}

// found takes up the decisions that the hosts have stored: of each run that with the
// most progress, and of these the newest. Of two with one epoch none counts, and that is taken which
// more hosts have.
func (d *coordinator) found() error {
	type one struct {
		host.Decision
		hosts []string
	}
	var all []one
	for _, h := range d.hosts {
		for _, x := range h.decisions {
			i := slices.IndexFunc(all, func(o one) bool { return reflect.DeepEqual(o.Decision, x) })
			if i < 0 {
				i, all = len(all), append(all, one{Decision: x})
			}
			all[i].hosts = append(all[i].hosts, h.Member)
		}
	}
	slices.SortFunc(all, func(a, b one) int {
		return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(len(a.hosts), len(b.hosts)), cmp.Compare(a.Run, b.Run), bytes.Compare(a.Data, b.Data))
	})
	d.known = nil
	for _, o := range all {
		dec := &decision{}
		if err := json.Unmarshal(o.Data, dec); err != nil || dec.Run != o.Run || dec.Plan == nil {
			return fmt.Errorf("the decision of run %s on the host of %s cannot be read (%w): look at state.json in its state-dir", o.Run, o.hosts[0], cmp.Or(err, errors.New("it is not whole")))
		}
		if i := slices.IndexFunc(d.known, func(k *decision) bool { return k.Run == dec.Run }); i >= 0 {
			if d.known[i].progress() > dec.progress() {
				dec = d.known[i]
			}
			d.known = slices.Delete(d.known, i, i+1)
		}
		d.known = append(d.known, dec)
		d.epoch = o.Epoch
	}
	return d.inOrder()
}

// clocksDiffer is more than the clocks of coordinators do.
const clocksDiffer = 24 * time.Hour

// after reports whether a run was begun after another one.
func (d *decision) after(other *decision) bool {
	return slices.Contains(d.Earlier, other.Run) || d.Began.Sub(other.Began) > clocksDiffer
}

// inOrder makes the newest decision the last one where that is of an earlier run: of a host
// that was away while others began a later one, or had not been heard of by those at all.
func (d *coordinator) inOrder() error {
	for range d.known {
		last := d.newest()
		i := slices.IndexFunc(d.known, func(k *decision) bool {
			return k != last && k.Closed == "" && (k.Built != nil || len(d.whereAside(k.Run)) > 0) && !last.after(k)
		})
		switch {
		case i < 0:
			return nil
		case d.known[i].after(last):
			later := d.known[i]
			d.known = append(slices.Delete(d.known, i, i+1), later)
			continue
		case !d.known[i].over() || !last.over():
			return fmt.Errorf("two recoveries were begun that knew nothing of each other: run %s (data is set aside on %s), and run %s (on %s). Only one can go on: on the hosts of the other one move state.json in the state-dir away, which leaves all data where it is, and run the same command again",
				d.known[i].Run, hostsOrNone(d.whereAside(d.known[i].Run)), last.Run, hostsOrNone(d.whereAside(last.Run)))
		}
		return nil
	}
	return nil
}

func hostsOrNone(all []string) string { return cmp.Or(strings.Join(all, ", "), "no host") }

// whereAside are the hosts on which a run has set data aside, or began to.
func (d *coordinator) whereAside(run string) (all []string) {
	for _, h := range d.hosts {
		if h.aside(run) != nil {
			all = append(all, h.Member)
		}
	}
	return all
}

// newest is the last decision that the hosts hold; nil where they hold none.
func (d *coordinator) newest() *decision {
	if len(d.known) == 0 {
		return nil
	}
	return d.known[len(d.known)-1]
}

// adopt goes on with a decision that another command had stored: what that had begun by
// then has come to its end, and only now is known what it did.
func (d *coordinator) adopt(ctx context.Context) error {
	for stored := -1; len(d.present()) > stored; { // one that answers only now has to store it, too
		stored = len(d.present())
		if err := d.store(ctx); err != nil {
			return err
		}
		if err := d.states(ctx); err != nil {
			return err
		}
	}
	if all := d.away(); len(all) > 0 && (d.decision.Built == nil || d.decision.Undoing) {
		return &HostsError{Phase: PhasePreflight, Errs: all}
	}
	return nil
}

// store has the hosts store the decision as it is now. Who had gone on with a run until
// then is refused from then on, and nothing that he had begun on a host is under way.
// A host that is declared dead takes no part, nor does one that is lost once the new
// cluster is proved.
func (d *coordinator) store(ctx context.Context) error { return d.storeOn(ctx, d.present()) }

// storeOn is store on some of the hosts.
func (d *coordinator) storeOn(ctx context.Context, hosts []*participant) error {
	for i := range d.decision.Hosts {
		o := &d.decision.Hosts[i]
		if h := d.host(o.Member); h != nil && h.state.Unreachable == "" {
			o.Joined = true
		}
	}
	data, err := json.Marshal(d.decision)
	if err != nil {
		return err
	}
	d.epoch++
	errs := atOnce(hosts, func(h *participant) error {
		_, err := act(ctx, d, PhaseDecide, h, func(ctx context.Context) (*host.Done, error) {
			return h.client.Decide(ctx, host.Decision{Run: d.run, Epoch: d.epoch, Data: data})
		})
		var refused *host.RefusedError
		switch {
		case err == nil || ctx.Err() == nil && h.state.Dead:
			return nil
		case ctx.Err() == nil && d.decision.Proved != nil && !d.decision.Undoing && !errors.As(err, &refused):
			h.state.Unreachable = err.Error()
			return nil
		}
		return err
	})
	if len(errs) > 0 {
		return &HostsError{Phase: PhaseDecide, Errs: errs}
	}
	if !slices.ContainsFunc(hosts, func(h *participant) bool { return h.state.Unreachable == "" }) {
		return &HostsError{Phase: PhaseDecide, Errs: d.away()}
	}
	return ctx.Err()
}

type decidedHost struct {
	Member string `json:"member"`
	Joined bool   `json:"joined,omitempty"` // it has stored a decision of the run
}

// names are the new members'.
func (d *decision) names() []string { return sources.NamesOf(d.Members) }

// initialCluster is etcd's flag for the new members.
func (d *decision) initialCluster() string { return sources.InitialCluster(d.Members) }

// clientURLs are all of the new members.
func (d *decision) clientURLs() []string {
	var all []string
	for _, m := range d.Members {
		all = append(all, m.ClientURLs...)
	}
	return all
}

func (d *decision) learners() []string { return sources.Learners(d.Members) }

// candidate is what was chosen.
func (d *decision) candidate() *sources.Candidate { return d.Plan.Candidate(d.Plan.Chosen) }

// merge compares what is asked now with what was decided. Options that are not given now
// stay as decided; those that may still be added are taken over.
func (d *coordinator) merge() error {
	old, now := &d.decision.Asked, d.req.Asked
	var against []string
	differ := func(option string, a, b any) {
		if !reflect.ValueOf(b).IsZero() && !reflect.DeepEqual(a, b) {
			against = append(against, fmt.Sprintf("%s is now %v, and was %v", option, shown(b), shown(a)))
		}
	}
	now.Change.Available, old.Change.Available = nil, nil
	// Until all that there is was read, what it is recovered from and who gets a
	// member may still be said otherwise: the plan is made anew, and asked about.
	open := !d.decision.Final && !d.anyAside()
	changes := len(now.Change.Replace)+len(now.Change.Names)+now.Change.Count > 0 && !sameJSON(now.Change, old.Change)
	if changes && !open {
		against = append(against, fmt.Sprintf("--members and --replace are now %v, and were %v", shown(now.Change), shown(old.Change)))
	}
	if !d.req.TargetFromNow || now.Target.Kind != old.Target.Kind {
		differ("the target", old.Target, now.Target)
	}
	differ("--bump-revision", old.Bump, now.Bump)
	differ("how leases and versions are replayed", old.Replay, now.Replay)
	if now.Source != "" && now.Source != old.Source && !open {
		against = append(against, fmt.Sprintf("--source is now %s, and was %s", now.Source, shown(old.Source)))
	}
	for _, name := range now.DeclareDead {
		// Once the members are started, the others may do without one.
		if !slices.Contains(old.DeclareDead, name) && slices.Contains(d.decision.names(), name) && d.anyAside() && d.decision.Built == nil {
			against = append(against, fmt.Sprintf("%s is declared dead now, and was to get a member", name))
		}
	}
	against = append(against, d.otherHosts()...)
	if len(against) > 0 {
		return &restore.RequestError{Err: fmt.Errorf("run %s is under way, and was decided otherwise: %s. Go on with it as it was decided, or take it back with --undo first", d.run, strings.Join(against, "; "))}
	}
	if changes {
		old.Change = now.Change
	}
	old.Source = cmp.Or(now.Source, old.Source)
	for _, name := range now.DeclareDead {
		if !slices.Contains(old.DeclareDead, name) {
			old.DeclareDead = append(old.DeclareDead, name)
		}
	}
	old.Force = old.Force || now.Force
	return nil
}

// otherHosts compares the cluster file with what it said when the run was begun.
func (d *coordinator) otherHosts() (against []string) {
	for _, h := range d.decision.Hosts {
		if d.cfg.Host(h.Member) == nil {
			against = append(against, fmt.Sprintf("the cluster file has no host of member %s any more", h.Member))
		}
	}
	for _, h := range d.cfg.Hosts {
		if !slices.ContainsFunc(d.decision.Hosts, func(o decidedHost) bool { return o.Member == h.Member }) {
			against = append(against, fmt.Sprintf("the cluster file has a host of member %s, which it had not", h.Member))
		}
	}
	return against
}

// worse says in what a plan does not hold what was confirmed; nothing where it does.
func (d *decision) worse(p *Preview) (reasons []string) {
	add := func(format string, args ...any) { reasons = append(reasons, fmt.Sprintf(format, args...)) }
	before, now := d.Plan, p.Plan
	if before == nil || before.Chosen == "" {
		return []string{"what is there could be read only now"}
	}
	if !now.Proven && (before.Proven || !d.Unproven) {
		add("it is unproven that no acknowledged write is lost: %s", now.Why)
	}
	if before.ClusterID != now.ClusterID {
		add("it would be cluster %s that is recovered, and was %s", now.ClusterID, before.ClusterID)
	}
	if before.Chosen != now.Chosen && !now.Proven {
		add("it would be recovered from %s, and was to be from %s", now.Chosen, before.Chosen)
	}
	if now.Loss.Entries > before.Loss.Entries || now.Loss.Revisions > before.Loss.Revisions {
		add("more would be lost: %s", now.Loss.Text)
	}
	if !slices.EqualFunc(d.Members, p.Members, func(a, b sources.NewMember) bool {
		return a.Name == b.Name && a.Learner == b.Learner && slices.Equal(a.PeerURLs, b.PeerURLs)
	}) {
		add("the members would be %s", sources.InitialCluster(p.Members))
	}
	if raises(p.Bump) && !raises(d.Bump) && now.Proven {
		add("the revision would be raised")
	}
	return reasons
}
