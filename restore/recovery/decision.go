package recovery

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
)

// decision is what a run carries out. It stands in the journal before the first
// change.
type decision struct {
	Run     string        `json:"run"`
	Cluster string        `json:"cluster"`
	Asked   asked         `json:"asked"`
	Hosts   []decidedHost `json:"hosts"`
	// Ran are the members that ran when the run was begun.
	Ran []string `json:"ran,omitempty"`
	// TakesOver are runs of coordinators elsewhere that this one takes hosts over from.
	TakesOver []string `json:"takes_over,omitempty"`
	// Inherited is the run of a coordinator elsewhere that built the new members, where this
	// one only completes it.
	Inherited string `json:"inherited,omitempty"`
	// Built is when the first host had built its member, where that was Inherited: no
	// member was started before.
	Built time.Time `json:"built_at,omitzero"`

	// Final says that the plan is made of all that can be read; before that it is
	// what the operator was shown when he let the members be stopped.
	Final bool `json:"final"`
	// Unproven says that the loss of what may be missing was agreed to.
	Unproven bool                `json:"unproven_confirmed,omitempty"`
	Plan     *sources.Plan       `json:"plan"`
	Members  []sources.NewMember `json:"members,omitempty"`
	Left     []string            `json:"left,omitempty"`

	PlanID         string              `json:"plan_id,omitempty"`
	ClusterToken   string              `json:"cluster_token"`
	InitialCluster string              `json:"initial_cluster,omitempty"`
	NewClusterID   snapshot.ID         `json:"new_cluster_id,omitzero"`
	Bump           restore.BumpRequest `json:"bump"`
	Branch         *branch             `json:"branch,omitempty"`
}

// asked is what the operator asked for.
type asked struct {
	Change      sources.MembersRequest `json:"change"`
	Source      string                 `json:"source,omitempty"`
	DeclareDead []string               `json:"declare_dead,omitempty"`
	Target      walreplay.Target       `json:"target"`
	Bump        restore.BumpRequest    `json:"bump"`
	Replay      host.ReplaySettings    `json:"replay"`
	Force       bool                   `json:"force,omitempty"`
}

type decidedHost struct {
	Member string `json:"member"`
}

func (r *Request) asked() asked {
	return asked{r.Change, r.Source, slices.Sorted(slices.Values(r.DeclareDead)), r.Target, r.Bump, r.Replay, r.Force}
}

// names are the new members'.
func (d *decision) names() []string {
	var all []string
	for _, m := range d.Members {
		all = append(all, m.Name)
	}
	return all
}

// clientURLs are all of the new members.
func (d *decision) clientURLs() []string {
	var all []string
	for _, m := range d.Members {
		all = append(all, m.ClientURLs...)
	}
	return all
}

func (d *decision) learners() []string {
	var all []string
	for _, m := range d.Members {
		if m.Learner {
			all = append(all, m.Name)
		}
	}
	return all
}

// candidate is what was chosen.
func (d *decision) candidate() *sources.Candidate { return d.Plan.Candidate(d.Plan.Chosen) }

// initialCluster is etcd's flag for members.
func initialCluster(members []sources.NewMember) string {
	var parts []string
	for _, m := range members {
		for _, u := range m.PeerURLs {
			parts = append(parts, m.Name+"="+u)
		}
	}
	return strings.Join(parts, ",")
}

// merge compares what is asked now with what was decided. Options that are not given now
// stay as decided; those that may still be added are taken over, and changed says so.
func (d *coordinator) merge() (changed bool, err error) {
	old, now := &d.state.decision.Asked, d.req.asked()
	var against []string
	differ := func(option string, a, b any) {
		if !reflect.ValueOf(b).IsZero() && !reflect.DeepEqual(a, b) {
			against = append(against, fmt.Sprintf("%s is now %v, and was %v", option, shown(b), shown(a)))
		}
	}
	now.Change.Available, old.Change.Available = nil, nil
	// Until all that there is was read, what it is recovered from and who gets a
	// member may still be said otherwise: the plan is made anew, and asked about.
	open := !d.state.decision.Final && !d.state.begun(PhaseSetAside, "*")
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
		if !slices.Contains(old.DeclareDead, name) && slices.Contains(d.state.decision.names(), name) && d.state.begun(PhaseSetAside, "*") && !d.state.begun(PhaseStart, "*") {
			against = append(against, fmt.Sprintf("%s is declared dead now, and was to get a member", name))
		}
	}
	against = append(against, d.otherHosts()...)
	if len(against) > 0 {
		return false, &ContradictionError{Run: d.run, Options: against}
	}
	if changes {
		old.Change, changed = now.Change, true
	}
	if now.Source != "" && now.Source != old.Source {
		old.Source, changed = now.Source, true
	}
	for _, name := range now.DeclareDead {
		if !slices.Contains(old.DeclareDead, name) {
			old.DeclareDead, changed = append(old.DeclareDead, name), true
		}
	}
	if now.Force && !old.Force {
		old.Force, changed = true, true
	}
	return changed, nil
}

// otherHosts compares the cluster file with what it said when the run was begun.
func (d *coordinator) otherHosts() (against []string) {
	for _, h := range d.state.decision.Hosts {
		if d.cfg.Host(h.Member) == nil {
			against = append(against, fmt.Sprintf("the cluster file has no host of member %s any more", h.Member))
		}
	}
	for _, h := range d.cfg.Hosts {
		if !slices.ContainsFunc(d.state.decision.Hosts, func(o decidedHost) bool { return o.Member == h.Member }) {
			against = append(against, fmt.Sprintf("the cluster file has a host of member %s, which it had not", h.Member))
		}
	}
	return against
}
