package recovery

import (
	"fmt"
	"slices"
	"strings"

	"github.com/requorum/requorum/restore/recovery/membership"
	"github.com/requorum/requorum/snapshot"
)

// newFence tells which old voters cannot come back. A name that is declared dead may be
// that of several: a member that was removed, and the one that took its place. It may
// be a host's that has no member of this cluster: then it counts for nothing.
func newFence(f *Findings, steps []membership.State, req *DecideRequest) (Fence, error) {
	out := Fence{Stopped: []string{}, DeclaredDead: []string{}, Open: []string{}}
	gone := map[snapshot.ID]bool{}
	var known []snapshot.Member
	for _, s := range steps {
		for _, m := range append(slices.Clone(s.Members), s.Removed...) {
			if !slices.ContainsFunc(known, func(o snapshot.Member) bool { return o.ID == m.ID }) {
				known = append(known, m)
			}
		}
	}
	for _, name := range req.DeclareDead {
		found := false
		for _, m := range known {
			if m.Name != name && m.ID.String() != name {
				continue
			}
			gone[m.ID], found = true, true
			if called := membership.Name(m); !slices.Contains(out.DeclaredDead, called) {
				out.DeclaredDead = append(out.DeclaredDead, called)
			}
		}
		if !found && !slices.Contains(req.Hosts, name) {
			return out, fmt.Errorf("--declare-dead %s: there is no such member: they are %s", name, names(known))
		}
	}
	for _, m := range f.Survivors {
		if m.MemberID != 0 && !gone[m.MemberID] {
			gone[m.MemberID] = true
			out.Stopped = append(out.Stopped, m.Name)
		}
	}
	if len(steps) == 0 {
		out.Why = "who the voters of the old cluster were is not known: make sure yourself that none of them can start again"
		return out, nil
	}
	out.Enough, out.Closes = true, true
	for _, s := range steps {
		for _, voters := range s.Quorums() {
			out.weigh(s, voters, gone, req.Stopping)
		}
	}
	return out, nil
}

// weigh looks whether enough of some voters cannot come back, or will not be able to
// once those are stopped that can be.
func (f *Fence) weigh(s membership.State, voters []snapshot.ID, gone map[snapshot.ID]bool, stopping []string) {
	n, will := 0, 0
	for _, id := range voters {
		if gone[id] {
			n++
			continue
		}
		name := id.String()
		if m := s.Find(id); m != nil {
			name = membership.Name(*m)
		}
		list := &f.Open
		if slices.Contains(stopping, name) {
			list = &f.Stopping
			will++
		}
		if !slices.Contains(*list, name) {
			*list = append(*list, name)
		}
	}
	need := membership.Majority(len(voters))
	f.Enough = f.Enough && n >= need
	switch {
	case n+will < need:
		f.Closes = false
		f.Why = fmt.Sprintf("of %d old voters %d are known to be stopped or dead, %sand %d are needed: %s could come back on the old addresses and serve beside the new cluster. Stop them, or if their hosts are gone for good: --declare-dead %s",
			len(voters), n, more(will), need, strings.Join(f.Open, ", "), strings.Join(f.Open, ","))
	case n < need && f.Closes:
		f.Why = fmt.Sprintf("%d of %d old voters are stopped or declared dead, and %d are needed: %s may run, and are stopped first", n, len(voters), need, strings.Join(f.Stopping, ", "))
	case f.Enough && n == len(voters):
		f.Why = fmt.Sprintf("all old voters (%d) are stopped or declared dead", n)
	case f.Enough:
		f.Why = fmt.Sprintf("%d of %d old voters are stopped or declared dead: the others are no majority", n, len(voters))
	}
}

func more(will int) string {
	if will == 0 {
		return ""
	}
	return fmt.Sprintf("%d more can be stopped, ", will)
}

func names(all []snapshot.Member) string {
	var list []string
	for _, m := range all {
		list = append(list, membership.Name(m))
	}
	if len(list) == 0 {
		return "not known"
	}
	return strings.Join(list, ", ")
}
