package recovery

import (
	"fmt"
	"slices"

	"github.com/requorum/requorum/restore/recovery/membership"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

// markContenders finds out which histories an operator has to choose between, and
// says of each what it is. The histories of members come first: archives of other
// clusters, and of what came before, are not what is being recovered.
func markContenders(all []*history, t ties) {
	anySurvivor := slices.ContainsFunc(all, func(h *history) bool { return len(h.survivors()) > 0 })
	for _, h := range all {
		h.why = h.describe()
		switch {
		case !anySurvivor:
			if h.contender = h.superseded() == nil && len(h.sources) > 0 && hasImage(h); !h.contender {
				h.why += "; it is not chosen by itself"
			}
		case len(h.survivors()) > 0:
			h.contender = !leftover(h, all)
		default:
			h.contender = rivals(h, all)
		}
	}
	for _, h := range all {
		passOn(h, all)
	}
	for _, h := range all {
		if reason := parting(h, all, t); reason != "" {
			h.why += "; " + reason
		}
	}
}

// passOn lets a history that has ended make way for the one that goes on in its place,
// where members of that were found as well: old members may have come back. Where only
// the archive of it was, the operator has to say which it is to be.
func passOn(h *history, all []*history) {
	if !h.contender || h.superseded() == nil {
		return
	}
	if o := successor(h, all); o != nil && o.contender {
		h.contender = false
		h.why += "; it is not chosen by itself"
	}
}

// successor is the history that goes on in the place of one that has ended; nil where
// it was not found.
func successor(h *history, all []*history) *history {
	seen := map[*history]bool{}
	for at := h; at != nil && !seen[at]; {
		seen[at] = true
		ended := at.superseded()
		if ended == nil {
			return at
		}
		at = nil
		for _, o := range all {
			by := ended.Superseded.By
			if slices.Contains(o.timelines(), by) || len(o.timelines()) == 0 && o.clusterID() == snapshot.ID(by.ClusterID) {
				at = o
			}
		}
	}
	return nil
}

func hasImage(h *history) bool {
	return slices.ContainsFunc(h.sources, func(s *source) bool { return len(s.images) > 0 })
}

// leftover tells a history of members that ended before anything that another one
// can be compared by, and that is no cluster by itself: those were away.
func leftover(h *history, all []*history) bool {
	for _, o := range all {
		if o == h || len(o.survivors()) == 0 {
			continue
		}
		within := !slices.ContainsFunc(h.survivors(), func(s *source) bool { return !slices.Contains(o.sources, s) })
		beside := slices.Contains(o.beside, h.sources[0]) && h.sources[0].before(o.sources[0]) && !majorityOfItself(h)
		if within && len(h.survivors()) < len(o.survivors()) || beside {
			return true
		}
	}
	return false
}

// majorityOfItself tells whether the members are a majority of the voters that
// they themselves know.
func majorityOfItself(h *history) bool {
	steps := h.memberships()
	if len(steps) == 0 {
		return false
	}
	here := h.survivors()
	for _, q := range steps[len(steps)-1].Quorums() {
		n := 0
		for _, id := range q {
			if slices.ContainsFunc(here, func(s *source) bool { return s.member.MemberID == id }) {
				n++
			}
		}
		if n < membership.Majority(len(q)) {
			return false
		}
	}
	return true
}

// rivals tells whether an archived history that no member's data belongs to may
// be the one that goes on: it is of the cluster that is recovered, it has not
// ended, and it is neither older than the members' nor what theirs came from.
func rivals(h *history, all []*history) bool {
	if h.superseded() != nil || !hasImage(h) {
		return false
	}
	rival := false
	for _, o := range all {
		if len(o.survivors()) == 0 || o.clusterID() != h.clusterID() {
			continue
		}
		for _, id := range o.timelines() {
			for _, mine := range h.timelines() {
				if mine.ClusterID == id.ClusterID && mine.N < id.N || descends(all, id, mine) {
					return false
				}
			}
		}
		older := slices.Contains(o.beside, h.sources[0]) && h.sources[0].before(o.sources[0])
		rival = rival || !older
	}
	return rival
}

// descends tells whether a timeline came from another one.
func descends(all []*history, child, ancestor repository.TimelineID) bool {
	seen := map[repository.TimelineID]bool{}
	for at := child; !seen[at]; {
		seen[at] = true
		for _, h := range all {
			for _, s := range h.sources {
				if a := s.archive; a != nil && a.Timeline == at && a.Parent != nil {
					if a.Parent.Timeline == ancestor {
						return true
					}
					at = a.Parent.Timeline
				}
			}
		}
	}
	return false
}

// parting says where a history parts from the first other one.
func parting(h *history, all []*history, t ties) string {
	for _, o := range all {
		if o == h {
			continue
		}
		for _, a := range h.sources {
			for _, b := range o.sources {
				if a == b {
					continue
				}
				if r := t.between(a, b); r.tie == fork {
					return r.why
				}
			}
		}
		if slices.Contains(o.beside, h.sources[0]) {
			return fmt.Sprintf("nothing that was found connects it with %s", o.sources[0].what())
		}
	}
	return ""
}

// remembered is the newest membership that any member tells, or else any archive,
// though changes may have been missed: no proof, but all that is known of whom to
// build and to fence.
func (h *history) remembered() []membership.State {
	var newest membership.State
	for _, s := range h.survivors() {
		if m := s.member.Membership; m.Known() && m.Index >= newest.Index {
			newest = m
		}
	}
	if !newest.Known() {
		for _, s := range h.sources {
			if s.archive == nil {
				continue
			}
			if m := s.archive.membership(); m.Known() && m.Index >= newest.Index {
				newest = m
			}
		}
	}
	if !newest.Known() {
		return nil
	}
	return []membership.State{newest}
}

// unchangedSince tells whether those that rank higher than a source hold all that
// comes after its end, and no change of the members in it.
func (h *history) unchangedSince(s *source) bool {
	end := h.cut[s].index
	for _, o := range h.sources[:slices.Index(h.sources, s)] {
		last := h.cut[o].index
		if last > end && (o.changed > end || !slices.ContainsFunc(o.stretches, func(r Stretch) bool { return r.First <= end+1 && last <= r.Last })) {
			return false
		}
	}
	return true
}

// memberships are who the members were: at what is known to be committed, and
// after each change beyond that. The source that ranks highest tells it, of those
// that can.
func (h *history) memberships() []membership.State {
	known := h.committed()
	for _, s := range h.sources {
		var steps []membership.State
		switch {
		case s.member != nil && s.member.Membership.Known():
			steps = s.member.Steps
			if c := h.cut[s]; c.by != nil {
				steps = slices.DeleteFunc(slices.Clone(steps), func(m membership.State) bool { return m.Index > c.index })
			}
		case s.archive != nil && s.archive.members.Known() && h.cut[s].by == nil:
			steps = []membership.State{s.archive.members}
		case s.archive != nil && len(h.survivors()) == 0 && len(s.archive.Fulls) > 0:
			steps = []membership.State{s.archive.membership()}
		}
		if len(steps) == 0 {
			continue
		}
		if !h.unchangedSince(s) {
			return nil
		}
		from := 0
		for i, m := range steps {
			if m.Index <= known {
				from = i
			}
		}
		return steps[from:]
	}
	return nil
}
