package sources

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

// history is one history: sources that agree, wherever they can be compared, but
// for ends that were refused.
type history struct {
	number  int
	sources []*source // those that rank highest first
	cut     map[*source]limit
	// unconnected are sources that nothing contradicts, and nothing connects.
	unconnected []*source
	// candidate and why are as in History.
	candidate bool
	why       string
}

// limit is the last entry of a source that belongs to its history.
type limit struct {
	index, term uint64
	by          *source // who shows that what is behind was refused; nil for none
	committed   bool    // by's entries there are known to be committed
}

// findHistories sorts sources into histories. One that ends before two of them
// part belongs to both.
func findHistories(all []*source, t ties) []*history {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b *source) int { return b.compare(a) })
	var lines [][]*source
	for _, s := range all {
		fits := false
		for i, line := range lines {
			if !slices.ContainsFunc(line, func(o *source) bool { return t.between(s, o).tie == fork }) {
				lines[i], fits = append(line, s), true
			}
		}
		if !fits {
			lines = append(lines, []*source{s})
		}
	}
	var found []*history
	for _, line := range lines {
		found = append(found, connect(line, t)...)
	}
	for i, h := range found {
		h.number = i + 1
		h.limit(t)
	}
	return found
}

// connect takes a line apart into what is connected: each part is a history of
// its own as far as anybody knows.
func connect(line []*source, t ties) []*history {
	var parts []*history
	left := slices.Clone(line)
	for len(left) > 0 {
		part := []*source{left[0]}
		left = left[1:]
		for i := 0; i < len(part); i++ {
			left = slices.DeleteFunc(left, func(o *source) bool {
				met := t.between(part[i], o).tie != unmet
				if met {
					part = append(part, o)
				}
				return met
			})
		}
		slices.SortStableFunc(part, func(a, b *source) int { return slices.Index(line, a) - slices.Index(line, b) })
		parts = append(parts, &history{sources: part})
	}
	for _, h := range parts {
		for _, o := range parts {
			if o != h {
				h.unconnected = append(h.unconnected, o.sources...)
			}
		}
	}
	return parts
}

// limit finds out where each source was refused. What was committed decides; where
// nothing shows that, the newer end does, of those that are not refused there
// themselves. All that is left lies on one line, and the longest is first then.
func (h *history) limit(t ties) {
	h.cut = map[*source]limit{}
	for _, s := range h.sources {
		h.cut[s] = limit{index: s.index, term: s.term}
	}
	for _, s := range h.sources {
		for _, o := range h.sources {
			if r := t.between(s, o); r.tie == tail && r.cut == s && r.committed {
				h.refuse(s, o, r)
			}
		}
	}
	h.order()
	for i, s := range h.sources {
		for _, o := range h.sources[:i] {
			if r := t.between(s, o); r.tie == tail && r.at <= min(h.cut[s].index, h.cut[o].index) {
				h.refuse(s, o, r)
			}
		}
	}
	slices.SortStableFunc(h.sources, func(a, b *source) int { return cmp.Compare(h.cut[b].index, h.cut[a].index) })
}

// refuse cuts a source where another one holds other entries.
func (h *history) refuse(s, by *source, r relationship) {
	if r.at > h.cut[s].index {
		return
	}
	end := limit{index: r.at - 1, by: by, committed: r.committed}
	if r.last == end.index {
		end.term = r.term
	}
	h.cut[s] = end
}

// order puts those first that rank highest with what is left of them.
func (h *history) order() {
	slices.SortStableFunc(h.sources, func(a, b *source) int {
		x, y := h.cut[a], h.cut[b]
		return cmp.Or(cmp.Compare(y.term, x.term), cmp.Compare(y.index, x.index))
	})
}

// end is the last entry that any source has.
func (h *history) end() limit { return h.cut[h.sources[0]] }

func (h *history) survivors() []*source {
	return slices.DeleteFunc(slices.Clone(h.sources), func(s *source) bool { return s.member == nil })
}

func (h *history) timelines() []repository.TimelineID {
	var all []repository.TimelineID
	for _, s := range h.sources {
		if s.archive != nil && !slices.Contains(all, s.archive.Timeline) {
			all = append(all, s.archive.Timeline)
		}
	}
	return all
}

// superseded is the archive that says that this history has ended, nil for none.
func (h *history) superseded() *Archive {
	for _, s := range h.sources {
		if s.archive != nil && s.archive.Superseded != nil {
			return s.archive
		}
	}
	return nil
}

func (h *history) clusterID() snapshot.ID {
	for _, s := range h.sources {
		if s.cluster != 0 {
			return s.cluster
		}
	}
	return 0
}

// committed is the last index that anything shows to be committed.
func (h *history) committed() uint64 {
	var index uint64
	for _, s := range h.sources {
		index = max(index, min(s.committed, h.cut[s].index))
	}
	return index
}

// describe says which history it is.
func (h *history) describe() string {
	var parts []string
	var names []string
	for _, s := range h.survivors() {
		names = append(names, s.name)
	}
	if len(names) > 0 {
		parts = append(parts, "of "+strings.Join(names, ", "))
	}
	for _, t := range h.timelines() {
		parts = append(parts, "timeline "+t.String())
	}
	end := h.end()
	text := fmt.Sprintf("%s, up to raft index %d", strings.Join(parts, ", "), end.index)
	if end.term > 0 {
		text += fmt.Sprintf(" of term %d", end.term)
	}
	if s := h.superseded(); s != nil {
		text += fmt.Sprintf("; it was superseded by timeline %s: %s", s.Superseded.By, s.Superseded.Reason)
	}
	return text
}

// markCandidates finds out which histories an operator has to choose between, and
// says of each what it is. The histories of members come first: archives of other
// clusters, and of what came before, are not what is being recovered.
func markCandidates(all []*history, t ties) {
	anySurvivor := slices.ContainsFunc(all, func(h *history) bool { return len(h.survivors()) > 0 })
	for _, h := range all {
		h.why = h.describe()
		switch {
		case !anySurvivor:
			if h.candidate = h.superseded() == nil && len(h.sources) > 0 && hasImage(h); !h.candidate {
				h.why += "; it is not chosen by itself"
			}
		case len(h.survivors()) > 0:
			h.candidate = !leftover(h, all) && !besideTheRest(h, all)
		default:
			h.candidate = isAlternative(h, all)
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
	if !h.candidate || h.superseded() == nil {
		return
	}
	if o := successor(h, all); o != nil && o.candidate {
		h.candidate = false
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

// leftover reports whether a history is of members that ended before anything that another one
// can be compared by, and is no cluster by itself: those were away.
func leftover(h *history, all []*history) bool {
	for _, o := range all {
		if o == h || len(o.survivors()) == 0 {
			continue
		}
		within := !slices.ContainsFunc(h.survivors(), func(s *source) bool { return !slices.Contains(o.sources, s) })
		beside := slices.Contains(o.unconnected, h.sources[0]) && h.sources[0].before(o.sources[0]) && !majorityOfItself(h)
		if within && len(h.survivors()) < len(o.survivors()) || beside {
			return true
		}
	}
	return false
}

// besideTheRest reports whether a history is of members that were restored by hand beside a
// majority that was not.
func besideTheRest(h *history, all []*history) bool {
	return slices.ContainsFunc(all, func(o *history) bool {
		return o != h && len(o.survivors()) > 0 && majorityOfItself(o) && !slices.ContainsFunc(h.survivors(), func(s *source) bool {
			return slices.ContainsFunc(o.survivors(), func(other *source) bool { return other.member.Log.Restored || restoredUnder(s, other) == "" })
		})
	})
}

// majorityOfItself reports whether the members are a majority of the voters that
// they themselves know.
func majorityOfItself(h *history) bool {
	steps := h.memberships()
	if len(steps) == 0 {
		return false
	}
	here := h.survivors()
	voters := steps[len(steps)-1].Voters()
	n := 0
	for _, id := range voters {
		if slices.ContainsFunc(here, func(s *source) bool { return s.member.MemberID == id }) {
			n++
		}
	}
	return n >= Majority(len(voters))
}

// isAlternative reports whether an archived history that no member's data belongs to may
// be the one that goes on: it is of the cluster that is recovered, it has not
// ended, and it is neither older than the members' nor what theirs came from, unless these
// began again without what it holds.
func isAlternative(h *history, all []*history) bool {
	if h.superseded() != nil || !hasImage(h) {
		return false
	}
	open := false
	for _, o := range all {
		if len(o.survivors()) == 0 || o.clusterID() != h.clusterID() {
			continue
		}
		for _, id := range o.timelines() {
			if startedOver(o, id) {
				return true
			}
			for _, mine := range h.timelines() {
				if mine.ClusterID == id.ClusterID && mine.N < id.N || descends(all, id, mine) {
					return false
				}
			}
		}
		older := slices.Contains(o.unconnected, h.sources[0]) && h.sources[0].before(o.sources[0])
		open = open || !older
	}
	return open
}

// startedOver reports whether a timeline of a history began again without archived writes.
func startedOver(h *history, t repository.TimelineID) bool {
	return slices.ContainsFunc(h.sources, func(s *source) bool { return s.archive != nil && s.archive.Timeline == t && s.archive.Lost })
}

// descends reports whether a timeline came from another one.
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
		if slices.Contains(o.unconnected, h.sources[0]) {
			return fmt.Sprintf("nothing that was found connects it with %s", o.sources[0].what())
		}
	}
	return ""
}

// remembered is the newest membership that any member shows, or else any archive,
// though changes may have been missed: no proof, but all that is known of whom to
// build and to fence.
func (h *history) remembered() []Membership {
	var newest Membership
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
	return []Membership{newest}
}

// unchangedSince reports whether those that rank higher than a source hold all that
// comes after its end, and no change of the members in it.
func (h *history) unchangedSince(s *source) bool {
	end := h.cut[s].index
	for _, o := range h.sources[:slices.Index(h.sources, s)] {
		last := h.cut[o].index
		if last > end && (o.changed > end || !slices.ContainsFunc(o.ranges, func(r Range) bool { return r.First <= end+1 && last <= r.Last })) {
			return false
		}
	}
	return true
}

// memberships are who the members were: at what is known to be committed, and
// after each change beyond that. The source that ranks highest shows it, of those
// that can.
func (h *history) memberships() []Membership {
	known := h.committed()
	for _, s := range h.sources {
		var steps []Membership
		switch {
		case s.member != nil && s.member.Membership.Known():
			steps = s.member.Steps
			if c := h.cut[s]; c.by != nil {
				steps = slices.DeleteFunc(slices.Clone(steps), func(m Membership) bool { return m.Index > c.index })
			}
		case s.archive != nil && s.archive.members.Known() && h.cut[s].by == nil:
			steps = []Membership{s.archive.members}
		case s.archive != nil && len(h.survivors()) == 0 && len(s.archive.Fulls) > 0:
			steps = []Membership{s.archive.membership()}
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
