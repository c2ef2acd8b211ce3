package retention

import (
	"cmp"
	"slices"
)

// held is what a timeline holds at one moment: which full snapshots, and which
// part of the log. It answers what can be restored.
type held struct {
	bases []uint64 // indexes of full snapshots, ascending
	runs  []Run    // of the log, ascending, apart
}

// holding is what a timeline holds with those of its backups that pass, and
// without the log up to and with cut. Segments that end behind cut stay whole.
func (t *Timeline) holding(pass func(Backup) bool, cut uint64) held {
	var h held
	for _, b := range t.Backups {
		if b.known() && pass(b) {
			h.bases = append(h.bases, b.Index)
		}
	}
	slices.Sort(h.bases)
	h.bases = slices.Compact(h.bases)
	for _, s := range t.Spans {
		if s.Last <= cut {
			continue
		}
		if cut >= s.First {
			s.First = t.beginsAfter(cut, s)
		}
		h.runs = append(h.runs, s)
	}
	slices.SortFunc(h.runs, func(a, b Run) int { return cmp.Compare(a.First, b.First) })
	return h
}

// beginsAfter is where a span begins of which all segments that end at or before
// cut are gone.
func (t *Timeline) beginsAfter(cut uint64, span Run) uint64 {
	first := cut + 1
	for _, s := range t.Segments {
		if !s.Damaged && s.Last > cut && s.First >= span.First && s.First < first {
			first = s.First
		}
	}
	return first
}

// reach is the last index that can be replayed to from a full snapshot.
func (h held) reach(base uint64) uint64 {
	for _, r := range h.runs {
		if r.First <= base+1 && base+1 <= r.Last {
			return r.Last
		}
	}
	return base
}

// ranges are the points that can be restored, in runs that do not touch.
func (h held) ranges() []Run {
	var all []Run
	for _, b := range h.bases {
		r := Run{b, h.reach(b)}
		if n := len(all); n > 0 && r.First <= all[n-1].Last {
			all[n-1].Last = max(all[n-1].Last, r.Last)
			continue
		}
		all = append(all, r)
	}
	return all
}

// missing is the first point at or behind from that is in before and not in
// after; 0 where there is none. Both are ranges.
func missing(before, after []Run, from uint64) uint64 {
	for _, r := range before {
		next := max(r.First, from)
		for _, a := range after {
			if a.First <= next && next <= a.Last {
				next = a.Last + 1
			}
		}
		if next <= r.Last {
			return next
		}
	}
	return 0
}
