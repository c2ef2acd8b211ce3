package sources

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/types"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/snapshot"
)

// MembersRequest says how the new cluster's members differ from the old one's.
// The zero value changes nothing.
type MembersRequest struct {
	// Replace gives old members another name, other addresses, or both.
	Replace []Replacement
	// Names are the only members to build, by the names that they get, or by the
	// names or IDs of the old ones. Not with Count.
	Names []string
	// Count is how many members to build, 0 for all: voters before learners, those
	// that were not replaced before others, then by name.
	Count int
	// Available are the names or IDs, old or new, of those that have a host. With
	// Count only these are built; none means that it is not known.
	Available []string
}

// Replacement puts a host in the place of an old member.
type Replacement struct {
	Old      string   // its name or ID
	Name     string   // the new one's; empty for the same
	PeerURLs []string // none for the same
}

// NewMember is one of the new cluster's.
type NewMember struct {
	Name       string   `json:"name"`
	PeerURLs   []string `json:"peer_urls"`
	ClientURLs []string `json:"client_urls,omitempty"` // none where they are not known yet
	Learner    bool     `json:"learner,omitempty"`
	// Old is what the member in whose place it comes was called: its name, or its
	// ID where it never reported its name.
	Old string `json:"old"`
}

// InitialCluster is etcd's flag for members.
func InitialCluster(members []NewMember) string {
	var parts []string
	for _, m := range members {
		for _, u := range m.PeerURLs {
			parts = append(parts, m.Name+"="+u)
		}
	}
	return strings.Join(parts, ",")
}

// NamesOf are the members' names.
func NamesOf(members []NewMember) (all []string) {
	for _, m := range members {
		all = append(all, m.Name)
	}
	return all
}

// Learners are the names of those that do not vote.
func Learners(members []NewMember) []string {
	return NamesOf(slices.DeleteFunc(slices.Clone(members), func(m NewMember) bool { return !m.Learner }))
}

// NewMembers says who the members of the new cluster are, by name: those of the
// newest membership that was found, as the request changes it. Voters stay voters
// and learners stay learners; there is at least one voter. An error is a
// *restore.RequestError, and says what to ask for instead.
func (p *Plan) NewMembers(r MembersRequest) ([]NewMember, error) {
	if len(p.Members) == 0 {
		return nil, badRequest("who the members of the old cluster were is not known: add a data directory or a repository that shows it, or say who the new ones are (--initial-cluster, with --local)")
	}
	n := newcomers{}
	for _, m := range p.Members {
		n.all = append(n.all, newcomer{NewMember: NewMember{Name: m.Name, PeerURLs: slices.Clone(m.PeerURLs), ClientURLs: slices.Clone(m.ClientURLs), Learner: m.IsLearner, Old: MemberName(m)}, id: m.ID})
	}
	if err := n.replace(r.Replace); err != nil {
		return nil, err
	}
	slices.SortStableFunc(n.all, func(a, b newcomer) int { return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.id, b.id)) })
	if err := n.choose(r); err != nil {
		return nil, err
	}
	if err := n.check(); err != nil {
		return nil, err
	}
	list := []NewMember{}
	for _, m := range n.all {
		list = append(list, m.NewMember)
	}
	return list, nil
}

type newcomer struct {
	NewMember
	id       snapshot.ID // of the old one
	replaced bool
}

type newcomers struct{ all []newcomer }

// find is the member that a name means: a new one before an old one, so that names
// can be swapped. There is none where more than one is meant.
func (n *newcomers) find(name string) *newcomer {
	var id snapshot.ID
	isID := id.UnmarshalText([]byte(name)) == nil
	for _, is := range []func(*newcomer) bool{
		func(m *newcomer) bool { return m.Name == name && name != "" },
		func(m *newcomer) bool { return m.Old == name },
		func(m *newcomer) bool { return isID && m.id == id },
	} {
		var found []*newcomer
		for i := range n.all {
			if is(&n.all[i]) {
				found = append(found, &n.all[i])
			}
		}
		if len(found) > 0 {
			if len(found) > 1 {
				return nil
			}
			return found[0]
		}
	}
	return nil
}

func (n *newcomers) names() string {
	var all []string
	for _, m := range n.all {
		text := cmp.Or(m.Name, m.Old)
		if m.Old != text {
			text += " (before: " + m.Old + ")"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func (n *newcomers) replace(all []Replacement) error {
	type change struct {
		m *newcomer
		r Replacement
	}
	var changes []change // all names are those of before
	for _, r := range all {
		m := n.find(r.Old)
		switch {
		case m == nil:
			return badRequest("replace %s: there is no such member, or more than one: they are %s", r.Old, n.names())
		case slices.ContainsFunc(changes, func(c change) bool { return c.m == m }):
			return badRequest("replace %s: it is replaced twice", r.Old)
		case r.Name == "" && len(r.PeerURLs) == 0:
			return badRequest("replace %s: by what? Give the new host's peer URL, a new name, or both", r.Old)
		}
		changes = append(changes, change{m, r})
	}
	for _, c := range changes {
		c.m.replaced = true
		c.m.Name = cmp.Or(c.r.Name, c.m.Name)
		if len(c.r.PeerURLs) > 0 {
			// Where clients found the old host they do not find the new one: a member
			// reports its own when it starts.
			c.m.PeerURLs, c.m.ClientURLs = slices.Clone(c.r.PeerURLs), nil
		}
	}
	return nil
}

// choose leaves those that are to be built.
func (n *newcomers) choose(r MembersRequest) error {
	switch {
	case r.Count < 0:
		return badRequest("%d members cannot be built: give at least 1", r.Count)
	case r.Count > 0 && len(r.Names) > 0:
		return badRequest("members are chosen by their names or by how many, not by both")
	case len(r.Names) > 0:
		return n.named(r.Names)
	case r.Count > 0:
		return n.count(r.Count, r.Available)
	}
	return nil
}

func (n *newcomers) named(names []string) error {
	kept := map[*newcomer]bool{}
	for _, name := range names {
		m := n.find(name)
		switch {
		case m == nil:
			return badRequest("members %s: there is no member %s, or more than one: they are %s", strings.Join(names, ","), name, n.names())
		case kept[m]:
			return badRequest("members %s: %s is there twice", strings.Join(names, ","), cmp.Or(m.Name, m.Old))
		}
		kept[m] = true
	}
	n.keep(func(m *newcomer) bool { return kept[m] })
	return nil
}

func (n *newcomers) count(count int, available []string) error {
	var with []*newcomer
	for i := range n.all {
		with = append(with, &n.all[i])
	}
	if len(available) > 0 {
		hosts := map[*newcomer]bool{}
		for _, name := range available {
			if m := n.find(name); m != nil { // other hosts are of no member
				hosts[m] = true
			}
		}
		with = slices.DeleteFunc(with, func(m *newcomer) bool { return !hosts[m] })
	}
	if len(with) < count {
		what := fmt.Sprintf("there are %d members: %s", len(n.all), n.names())
		if len(with) < len(n.all) {
			what = fmt.Sprintf("of the members %s only %d have a host", n.names(), len(with))
		}
		return badRequest("%d members cannot be built: %s. Build fewer and let the cluster grow, or put other hosts in the place of those that are gone (--replace)", count, what)
	}
	slices.SortStableFunc(with, func(a, b *newcomer) int {
		return cmp.Or(First(!a.Learner, !b.Learner), First(a.Name != "", b.Name != ""), First(!a.replaced, !b.replaced))
	})
	with = with[:count]
	n.keep(func(m *newcomer) bool { return slices.Contains(with, m) })
	return nil
}

func (n *newcomers) keep(wanted func(*newcomer) bool) {
	var all []newcomer
	for i := range n.all {
		if wanted(&n.all[i]) {
			all = append(all, n.all[i])
		}
	}
	n.all = all
}

// check refuses what etcd would not start from, or what would not be a cluster.
func (n *newcomers) check() error {
	voters := 0
	names, urls := map[string]*newcomer{}, map[string]*newcomer{}
	for i := range n.all {
		m := &n.all[i]
		if !m.Learner {
			voters++
		}
		switch o := names[m.Name]; {
		case m.Name == "":
			return badRequest("member %s (%s) never reported its name: it was added and never started. Name it (--replace), or leave it out (--members)", m.Old, cmp.Or(strings.Join(m.PeerURLs, ", "), "without a peer URL"))
		case strings.ContainsAny(m.Name, "=, \t\n"):
			return badRequest("%q is no name for a member: it stands in etcd's --initial-cluster, between commas and before \"=\"", m.Name)
		case o != nil:
			return badRequest("two members would be called %s, in the places of %s and %s: give one of them another name (--replace)", m.Name, o.Old, m.Old)
		case len(m.PeerURLs) == 0:
			return badRequest("the peer URL of member %s is not known: give it (--replace)", m.Name)
		}
		names[m.Name] = m
		for _, u := range m.PeerURLs {
			key, err := address(u)
			if err != nil {
				return badRequest("member %s: %w", m.Name, err)
			}
			switch o := urls[key]; {
			case o == m:
				return badRequest("member %s has the peer URL %s twice", m.Name, u)
			case o != nil:
				return badRequest("members %s and %s share the peer URL %s: give one of them another (--replace)", o.Name, m.Name, u)
			}
			urls[key] = m
		}
	}
	if voters == 0 {
		return badRequest("only learners would be built (%s), and a learner cannot serve by itself: take at least one voter, on another host if its own is gone (--replace)", n.names())
	}
	return nil
}

// address is the form in which peer URLs are compared: one port serves one member,
// by http or by https.
func address(text string) (string, error) {
	all, err := types.NewURLs([]string{text})
	if err != nil {
		return "", fmt.Errorf("%w; a peer URL is like https://10.0.0.1:2380", err)
	}
	u := all[0]
	return strings.ToLower(u.Host) + u.Path, nil
}

func badRequest(format string, args ...any) error {
	return &restore.RequestError{Err: fmt.Errorf(format, args...)}
}
