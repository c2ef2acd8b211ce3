package recovery

import (
	"fmt"
	"slices"
	"strings"

	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/restore/recovery/sources"
)

// DifferError says that hosts came to different states. Nothing was started.
type DifferError struct {
	Run  string
	What []string
	// Outcomes are what the hosts came to, by the databases that they began from.
	Outcomes []sources.Outcome
}

func (e *DifferError) Error() string {
	return fmt.Sprintf("run %s: hosts came to different states, and none is started: %s. %s", e.Run, strings.Join(e.What, "; "), e.next())
}

// next says which database is damaged, as far as that is known, and what to do.
func (e *DifferError) next() string {
	undo := "put the old data back with --undo"
	agree, odd := sources.Judge(e.Outcomes)
	owners := sources.Owners(e.Outcomes)
	slices.Sort(owners)
	switch {
	case len(slices.Compact(owners)) < len(e.Outcomes):
		return "Two of them began from the same database: look for faults in the memory or the disks of these hosts, " + undo + ", and then recover anew"
	case len(agree) == 0:
		return fmt.Sprintf("Nothing shows which database is damaged: %s, and then recover with one more survivor or repository, or from the one that you trust: %s", undo, sources.Flags(e.Outcomes))
	case len(odd) == 0:
		return sentence(undo)
	}
	return fmt.Sprintf("%s. %s, and then recover with %s", sentence(sources.Differing(e.Outcomes)), sentence(undo), sources.Flags(agree))
}

func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// outcomes are what the hosts came to; those that began from the same database and
// came to the same are one. What says nothing of its database or has no hash is left
// out.
func outcomes(plan *sources.Plan, built map[string]*host.Rebuilt) (all []sources.Outcome) {
	for _, member := range sortedKeys(built) {
		b := built[member]
		if b.Source == nil || b.HashKV.Revision == 0 {
			continue
		}
		o := sources.Outcome{
			Owner: b.Source.Base.Owner, Source: plan.NameOf(b.Source), Checksummed: !b.Source.Unguarded(),
			Index: b.Index, Revision: b.Revision, HashKV: b.HashKV,
		}
		if !slices.ContainsFunc(all, func(p sources.Outcome) bool { return p.Owner == o.Owner && p.Same(o) }) {
			all = append(all, o)
		}
	}
	return all
}

// compareWith names, where all hosts would begin from one database although there is
// another, the owners of that one for the hosts without data of their own: one of them
// takes the other, so that results can be compared.
func (d *coordinator) compareWith(s *sources.Source) map[string][]string {
	others := s.Alternatives(s.Index)
	others = slices.DeleteFunc(others, func(way sources.Source) bool {
		return slices.ContainsFunc(way.Owners(), func(name string) bool {
			h := d.host(name)
			return !strings.HasPrefix(name, sources.ArchivePrefix) && (h == nil || h.state.Unreachable != "")
		})
	})
	if len(others) == 0 {
		return nil
	}
	var near, far []string // hosts
	for _, h := range d.getting() {
		own := slices.ContainsFunc(s.Ways(), func(way sources.Source) bool {
			return slices.Equal(way.Owners(), []string{h.Member})
		})
		if own {
			near = append(near, h.Member)
		} else {
			far = append(far, h.Member)
		}
	}
	switch {
	case len(near) == 1 && len(far) > 0:
		return map[string][]string{far[0]: near}
	case len(near) == 0 && len(far) > 1:
		all := map[string][]string{far[0]: {s.Base.Owner}}
		for _, way := range others {
			for _, h := range far[1:] {
				all[h] = append(all[h], way.Base.Owner)
			}
		}
		return all
	}
	return nil
}

// alone says that all members were built from one database without checksums,
// though there are others; empty where they were not.
func (d *coordinator) alone() string {
	s := d.decision.candidate().Source
	if len(s.Alternatives(s.Index)) == 0 {
		return "" // the plan has said so
	}
	var names []string
	for _, o := range outcomes(d.decision.Plan, d.decision.Built) {
		if o.Checksummed {
			return ""
		}
		names = append(names, o.Owner)
	}
	if len(names) != 1 {
		return ""
	}
	return fmt.Sprintf("all members were built from the database of %s, and compared with no other one: it has no checksums, and damage inside keys and values would have gone unnoticed", names[0])
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
