package segment

import (
	"slices"
	"strings"
	"time"
)

// Coverage is a run of entries that Entries can read in one go, as far as headers
// show. Between two spans there is a gap, or nothing that joins them.
type Coverage struct {
	FirstIndex          uint64
	LastIndex, LastTerm uint64
	// LastRevision is known to be reached by the end of the span; 0 where none is known.
	LastRevision int64
	// FirstMark and LastMark are the earliest and the latest time of a mark,
	// alive marks included; zero where there is none.
	FirstMark, LastMark time.Time
}

// Gap is what lies between two spans, or was recorded outside of them.
type Gap struct {
	// After is the last entry before the gap, Next the first one behind it.
	// Where Next is not beyond After + 1 nothing is missing: the two spans are
	// not known to be of one history.
	After, Next uint64
	// Reason as recorded; empty where nobody recorded any.
	Reason  string
	Records []GapRecord
}

// Missing is the number of entries that are not there.
func (g Gap) Missing() uint64 {
	if g.Next <= g.After {
		return 0
	}
	return g.Next - g.After - 1
}

// Recorded reports whether the records of the gap name all entries that are missing.
func (g Gap) Recorded() bool {
	next := g.After + 1
	for again := true; again; {
		again = false
		for _, r := range g.Records {
			if r.First <= next && r.Last >= next {
				next, again = r.Last+1, true
			}
		}
	}
	return next >= g.Next
}

// Unexplained reports whether nobody recorded all that the gap lacks, and no chain begins
// anew behind it. all are the log's headers.
func (g Gap) Unexplained(all []Header) bool {
	chainStart := BeginsChain(all, g.Next)
	if g.Missing() == 0 {
		return !chainStart
	}
	return !g.Recorded() && (!chainStart || len(g.Records) > 0)
}

// BeginsChain reports whether segments begin at an index, and all that do begin a chain.
func BeginsChain(all []Header, index uint64) bool {
	begins := slices.DeleteFunc(slices.Clone(all), func(h Header) bool { return h.FirstIndex != index })
	return len(begins) > 0 && !slices.ContainsFunc(begins, func(h Header) bool { return !h.ChainStart })
}

// Coverage are the runs of entries that the log holds, in their order. They are
// known from headers alone, less what reading showed to be damaged.
func (l *Log) Coverage() []Coverage {
	v := l.current()
	usable := func(h Header) bool { return !l.spoiled(h.name()) }
	var all []Coverage
	for end := uint64(0); ; {
		first := slices.IndexFunc(v.segments, func(h Header) bool { return h.LastIndex > end && usable(h) })
		if first < 0 {
			return all
		}
		// One that begins inside of the span before it was not joined to it; what
		// it holds beyond that one's end is a span of its own.
		begin := v.segments[first]
		w := search{
			view: v, usable: usable, low: end + 1,
			joins: func(Header, Header) bool { return true },
			start: func(h Header) bool { return h.FirstIndex == begin.FirstIndex },
		}.run()
		last := v.segments[w.farthest]
		all = append(all, v.coverage(begin, last, usable))
		end = last.LastIndex
	}
}

// coverage describes the run from the segment first to the segment last.
func (v *view) coverage(first, last Header, usable func(Header) bool) Coverage {
	s := Coverage{FirstIndex: first.FirstIndex, LastIndex: last.LastIndex, LastTerm: last.LastTerm}
	for _, h := range v.segments {
		if h.FirstIndex < s.FirstIndex || h.LastIndex > s.LastIndex || !usable(h) {
			continue
		}
		s.LastRevision = max(s.LastRevision, h.Revision)
		if h.Marks > 0 {
			s.marked(h.FirstMark, h.LastMark)
		}
	}
	for _, m := range v.alive {
		if s.FirstIndex <= m.Index && m.Index <= s.LastIndex {
			s.marked(m.Time, m.Time)
		}
	}
	return s
}

func (s *Coverage) marked(first, last time.Time) {
	if s.FirstMark.IsZero() || first.Before(s.FirstMark) {
		s.FirstMark = first
	}
	if last.After(s.LastMark) {
		s.LastMark = last
	}
}

// Gaps are the gaps between the spans, and those that were recorded before the
// first span or behind the last one, in their order. A record whose entries are
// there after all is left out.
func (l *Log) Gaps() []Gap {
	v := l.current()
	spans := l.Coverage()
	if len(spans) == 0 {
		var all []Gap
		for _, r := range v.records {
			all = append(all, outside(r))
		}
		return all
	}
	var before, between, behind []Gap
	for i := 1; i < len(spans); i++ {
		between = append(between, Gap{After: spans[i-1].LastIndex, Next: spans[i].FirstIndex})
	}
	for _, r := range v.records {
		switch first, last := spans[0], spans[len(spans)-1]; {
		case r.First < first.FirstIndex:
			before = append(before, outside(r))
		case r.Last > last.LastIndex:
			behind = append(behind, outside(r))
		}
		for i := range between {
			if g := &between[i]; r.First < g.Next && r.Last > g.After {
				g.record(r)
			}
		}
	}
	return append(append(before, between...), behind...)
}

func outside(r GapRecord) Gap {
	g := Gap{After: r.First - 1, Next: r.Last + 1}
	g.record(r)
	return g
}

func (g *Gap) record(r GapRecord) {
	g.Records = append(g.Records, r)
	if !strings.Contains(g.Reason, r.Reason) {
		g.Reason = strings.TrimPrefix(g.Reason+"; "+r.Reason, "; ")
	}
}
