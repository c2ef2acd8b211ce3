package segment

import (
	"cmp"
	"math"
	"slices"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// view is a log as one listing and the headers show it. It never changes.
type view struct {
	segments []Header // whose headers are good, by first index, chain starts behind others, then last, then level
	alive    []repository.MarkName
	records  []GapRecord
	damaged  []Damage
	foreign  []string
	byNames  bool // not all headers were read; the segments do not overlap

	chains []int // for each segment, which of them share a chain for certain
	forks  []fork
}

// fork is an index for which one chain has two values.
type fork struct {
	chain   int
	index   uint64
	objects [2]string
}

// point is a value of a chain at an index. Two segments that have one in
// common share all that is before it.
type point struct {
	index uint64
	sum   raftlog.Sum
}

func (h Header) begin() point { return point{h.FirstIndex - 1, h.Before} }
func (h Header) end() point   { return point{h.LastIndex, h.After} }

// arrange orders the segments and finds out which share a chain: those that
// are linked by common points. Overlapping ones may share a chain without
// that; only reading them shows it. A way leads from one to a later one: a chain
// start is behind what it may be joined to, which may begin where it does.
func (v *view) arrange() {
	slices.SortFunc(v.segments, func(a, b Header) int {
		first := cmp.Compare(a.FirstIndex, b.FirstIndex)
		if first == 0 && a.ChainStart != b.ChainStart {
			if a.ChainStart {
				return 1
			}
			return -1
		}
		return cmp.Or(first, cmp.Compare(a.LastIndex, b.LastIndex), cmp.Compare(a.Level, b.Level))
	})
	linked := map[point]int{} // to the first segment seen there
	parent := make([]int, len(v.segments))
	find := func(i int) int {
		for parent[i] != i {
			parent[i] = parent[parent[i]]
			i = parent[i]
		}
		return i
	}
	for i, h := range v.segments {
		parent[i] = i
		if v.byNames {
			if i > 0 && v.segments[i-1].GoesOn(h) {
				parent[i] = find(i - 1)
			}
			continue
		}
		for _, p := range []point{h.begin(), h.end()} {
			if first, ok := linked[p]; ok {
				parent[find(i)] = find(first)
			} else {
				linked[p] = i
			}
		}
	}
	v.chains = make([]int, len(v.segments))
	for i := range v.segments {
		v.chains[i] = find(i)
	}
	if !v.byNames {
		v.findForks()
	}
}

// plain says that the segments are of one chain, but for what is missing between.
func (v *view) plain() bool {
	var ranges []Range
	chains := map[int]bool{}
	for i, h := range v.segments {
		ranges = append(ranges, Range{h.FirstIndex, h.LastIndex})
		chains[v.chains[i]] = true
	}
	return len(chains) <= len(united(ranges)) && len(v.forks) == 0
}

// findForks finds indexes at which a chain has two values.
func (v *view) findForks() {
	type place struct {
		chain int
		index uint64
	}
	type value struct {
		sum    raftlog.Sum
		object string
	}
	values := map[place]value{}
	for i, h := range v.segments {
		for _, p := range []point{h.begin(), h.end()} {
			at := place{v.chains[i], p.index}
			known, ok := values[at]
			switch {
			case !ok:
				values[at] = value{p.sum, h.Name()}
			case known.sum != p.sum:
				v.forks = append(v.forks, fork{at.chain, at.index, [2]string{known.object, h.Name()}})
			}
		}
	}
	slices.SortFunc(v.forks, func(a, b fork) int { return cmp.Compare(a.index, b.index) })
}

// sameChain reports whether two segments share a chain for certain.
func (v *view) sameChain(a, b int) bool { return v.chains[a] == v.chains[b] }

// related reports the same of segments by their headers.
func (v *view) related(a, b Header) bool {
	i := slices.IndexFunc(v.segments, func(h Header) bool { return h.name() == a.name() })
	j := slices.IndexFunc(v.segments, func(h Header) bool { return h.name() == b.name() })
	return i >= 0 && j >= 0 && v.sameChain(i, j)
}

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

// mayFollow reports whether b, which begins no earlier than a and no later than
// right behind it, can be what is read after a, as far as headers show.
func mayFollow(a, b Header) bool {
	switch {
	case b.FirstIndex-1 == a.LastIndex:
		return a.GoesOn(b)
	case b.ChainStart:
		return true // a has an entry of it. It may end sooner than a: others go on from it
	case b.FirstIndex == a.FirstIndex && b.Before != a.Before:
		return false
	}
	return b.LastIndex > a.LastIndex
}

// doubtful reports whether only reading proves a join, and nothing speaks for it.
func (s search) doubtful(i, j int) bool {
	a, b := s.view.segments[i], s.view.segments[j]
	return b.FirstIndex <= a.LastIndex && !b.ChainStart && !s.view.sameChain(i, j)
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
