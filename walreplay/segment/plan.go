package segment

import (
	"math"
	"slices"
)

// The cheapest way through the segments is the one with the fewest, and among
// those with as many, the one through the most merged ones. A join that may turn
// out to be none is worse than any number of others.
const (
	costSegment = 1 << 8 // less the level
	costDoubt   = 1 << 40
)

// search looks for ways through a view, by headers alone.
type search struct {
	view   *view
	usable func(Header) bool
	joins  func(a, b Header) bool // false: known not to join
	start  func(Header) bool      // where a way may start
	low    uint64                 // segments that end before it lead nowhere
}

// ways are the cheapest ways from a start to each segment.
type ways struct {
	cost     []int64 // math.MaxInt64 where there is none
	from     []int   // the segment before; -1 at a start
	farthest int     // the segment that ends last, of those that were reached; -1 for none
}

// run finds the ways. Each leads through segments in their order in the view,
// so one pass from the left finds them all.
func (s search) run() ways {
	segments := s.view.segments
	w := ways{cost: make([]int64, len(segments)), from: make([]int, len(segments)), farthest: -1}
	for i := range segments {
		w.cost[i], w.from[i] = math.MaxInt64, -1
	}
	good := make([]bool, len(segments))
	for i, h := range segments {
		good[i] = h.LastIndex >= s.low && s.usable(h)
		if good[i] && s.start(h) {
			w.cost[i] = costOf(h)
		}
	}
	for i, a := range segments {
		if w.cost[i] == math.MaxInt64 {
			continue
		}
		if w.farthest < 0 || a.LastIndex > segments[w.farthest].LastIndex {
			w.farthest = i
		}
		for j := i + 1; j < len(segments) && segments[j].FirstIndex-1 <= a.LastIndex; j++ {
			if !good[j] || !mayFollow(a, segments[j]) || !s.joins(a, segments[j]) {
				continue
			}
			cost := w.cost[i] + costOf(segments[j])
			if s.doubtful(i, j) {
				cost += costDoubt
			}
			if cost < w.cost[j] {
				w.cost[j], w.from[j] = cost, i
			}
		}
	}
	return w
}

// mayFollow tells whether b, which begins no earlier than a and no later than
// right behind it, can be what is read after a, as far as headers tell.
func mayFollow(a, b Header) bool {
	switch {
	case b.FirstIndex-1 == a.LastIndex:
		return !b.Anchor && b.Before == a.After
	case b.Anchor:
		return true // a has an entry of it. It may end sooner than a: others go on from it
	case b.FirstIndex == a.FirstIndex && b.Before != a.Before:
		return false
	}
	return b.LastIndex > a.LastIndex
}

// doubtful tells a join that only reading proves, and that nothing speaks for.
func (s search) doubtful(i, j int) bool {
	a, b := s.view.segments[i], s.view.segments[j]
	return b.FirstIndex <= a.LastIndex && !b.Anchor && !s.view.sameChain(i, j)
}

func costOf(h Header) int64 { return costSegment - int64(h.Level) }

// to is the way to a segment.
func (w ways) to(i int) []int {
	var path []int
	for ; i >= 0; i = w.from[i] {
		path = append(path, i)
	}
	slices.Reverse(path)
	return path
}

// through is the cheapest way that gets as far as index; nil where none does.
func (w ways) through(v *view, index uint64) []int {
	best := -1
	for i, h := range v.segments {
		if h.LastIndex >= index && w.cost[i] != math.MaxInt64 && (best < 0 || w.cost[i] < w.cost[best]) {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	return w.to(best)
}
