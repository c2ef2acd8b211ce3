package recovery

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
	// beside are sources that nothing contradicts, and nothing connects.
	beside []*source
	// contender and why are as in History.
	contender bool
	why       string
}

// limit is how far a source is of its history.
type limit struct {
	index, term uint64
	by          *source // who shows that what is behind was refused; nil for none
	committed   bool    // by's entries there are known to be committed
}

// findHistories sorts sources into histories. One that ends before two of them
// part belongs to both.
func findHistories(all []*source, t ties) []*history {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b *source) int {
		switch {
		case b.before(a):
			return -1
		case a.before(b):
			return 1
		}
		return 0
	})
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
// its own as far as anybody can tell.
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
				h.beside = append(h.beside, o.sources...)
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
