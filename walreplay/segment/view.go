package segment

import (
	"cmp"
	"slices"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// view is a log as one listing and the headers show it. It never changes.
type view struct {
	segments []Header // whose headers are good, by first index, then last, then level
	alive    []repository.MarkName
	records  []GapRecord
	damaged  []Damage

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
// that; only reading them tells.
func (v *view) arrange() {
	slices.SortFunc(v.segments, func(a, b Header) int {
		return cmp.Or(cmp.Compare(a.FirstIndex, b.FirstIndex), cmp.Compare(a.LastIndex, b.LastIndex), cmp.Compare(a.Level, b.Level))
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
	v.findForks()
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

// sameChain tells whether two segments share a chain for certain.
func (v *view) sameChain(a, b int) bool { return v.chains[a] == v.chains[b] }

// related tells the same of segments by their headers.
func (v *view) related(a, b Header) bool {
	i := slices.IndexFunc(v.segments, func(h Header) bool { return h.name() == a.name() })
	j := slices.IndexFunc(v.segments, func(h Header) bool { return h.name() == b.name() })
	return i >= 0 && j >= 0 && v.sameChain(i, j)
}

// damageWithin is the damage of a segment that, by its name, may hold entries
// of a range; nil where there is none.
func damageWithin(all []Damage, first, last uint64) error {
	for _, d := range all {
		n, err := repository.ParseSegmentName(d.Name)
		if err == nil && n.First <= last && (n.First >= first || n.Last >= first) {
			return d.Err
		}
	}
	return nil
}
