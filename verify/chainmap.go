package verify

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// chainMap is what segments have in common: the values of the chain at all
// indexes where one begins or ends and, where chains that begin at different
// places overlap, a digest of each entry. All other entries are forgotten as soon
// as they were read.
type chainMap struct {
	headers []segment.Header
	index   map[string]int    // of a segment in headers
	wanted  map[uint64]bool   // indexes at which a value is kept
	zones   []zone            // in which digests are kept, by index
	terms   map[uint64]uint64 // at indexes that were wanted

	points  map[uint64][]chainPoint
	digests map[uint64][]entryDigest
	parent  []int // of the union of segments that share a chain
}

// chainPoint is the chain's value at an index, by one segment.
type chainPoint struct {
	segment int
	sum     raftlog.Sum
}

// entryDigest stands for an entry, whatever its chain.
type entryDigest struct {
	segment int
	digest  uint64
}

// zone is a range of indexes.
type zone struct{ first, last uint64 }

// within is what one segment holds at indexes that matter.
type within struct {
	sums    map[uint64]raftlog.Sum
	terms   map[uint64]uint64
	digests map[uint64]uint64
}

// newChainMap prepares for segments, which are ordered by their first index; at
// indexes in also, values are kept as well.
func newChainMap(headers []segment.Header, also []uint64) *chainMap {
	m := &chainMap{
		headers: headers, index: map[string]int{}, wanted: map[uint64]bool{}, terms: map[uint64]uint64{},
		points: map[uint64][]chainPoint{}, digests: map[uint64][]entryDigest{}, parent: make([]int, len(headers)),
	}
	for _, i := range also {
		m.wanted[i] = true
	}
	linked := map[uint64]map[raftlog.Sum]int{}
	for i, h := range headers {
		m.index[h.Name()], m.parent[i] = i, i
		m.wanted[h.FirstIndex-1], m.wanted[h.LastIndex] = true, true
		if h.Format == 0 { // known by name, until it was read; it overlaps no other
			continue
		}
		m.point(linked, h.FirstIndex-1, chainPoint{i, h.Before})
		m.point(linked, h.LastIndex, chainPoint{i, h.After})
		m.terms[h.FirstIndex], m.terms[h.LastIndex] = h.FirstTerm, h.LastTerm
	}
	m.findZones()
	return m
}

// point keeps a value, and links segments that have one in common.
func (m *chainMap) point(linked map[uint64]map[raftlog.Sum]int, index uint64, p chainPoint) {
	m.points[index] = append(m.points[index], p)
	if linked[index] == nil {
		linked[index] = map[raftlog.Sum]int{}
	}
	if other, ok := linked[index][p.sum]; ok {
		m.parent[m.root(p.segment)] = m.root(other)
		return
	}
	linked[index][p.sum] = p.segment
}

func (m *chainMap) root(i int) int {
	for m.parent[i] != i {
		m.parent[i] = m.parent[m.parent[i]]
		i = m.parent[i]
	}
	return i
}

// findZones finds where segments overlap that headers do not link: their chain's
// values may not be comparable, so entries are.
func (m *chainMap) findZones() {
	m.overlaps(func(a, b int, z zone) {
		if n := len(m.zones); n > 0 && z.first <= m.zones[n-1].last+1 {
			m.zones[n-1].last = max(m.zones[n-1].last, z.last)
			return
		}
		m.zones = append(m.zones, z)
	})
}

// overlaps calls do for all pairs that share entries and are not linked, in the
// order of their first common entries.
func (m *chainMap) overlaps(do func(a, b int, z zone)) {
	var open []int // those that may reach into what comes
	for b, h := range m.headers {
		open = slices.DeleteFunc(open, func(a int) bool { return m.headers[a].LastIndex < h.FirstIndex })
		for _, a := range open {
			if m.root(a) != m.root(b) {
				do(a, b, zone{h.FirstIndex, min(m.headers[a].LastIndex, h.LastIndex)})
			}
		}
		open = append(open, b)
	}
}

func (m *chainMap) inZone(index uint64) bool {
	_, in := slices.BinarySearchFunc(m.zones, index, func(z zone, index uint64) int {
		switch {
		case z.last < index:
			return -1
		case z.first > index:
			return 1
		}
		return 0
	})
	return in
}

// look takes out of a segment what is kept. It may be called concurrently.
func (m *chainMap) look(h segment.Header, entries []raftlog.Entry) within {
	w := within{map[uint64]raftlog.Sum{}, map[uint64]uint64{}, map[uint64]uint64{}}
	sum := h.Before
	for _, e := range entries {
		sum = sum.Next(e)
		if m.wanted[e.Index] {
			w.sums[e.Index], w.terms[e.Index] = sum, e.Term
		}
		if m.inZone(e.Index) {
			digest := raftlog.Sum{}.Next(e)
			w.digests[e.Index] = binary.BigEndian.Uint64(digest[:])
		}
	}
	return w
}

// add keeps what look took.
func (m *chainMap) add(h segment.Header, w within) {
	i, known := m.index[h.Name()]
	if !known {
		return // it was listed before, and is not any more
	}
	if m.headers[i].Format == 0 {
		m.headers[i] = h
		m.points[h.FirstIndex-1] = append(m.points[h.FirstIndex-1], chainPoint{i, h.Before})
		m.points[h.LastIndex] = append(m.points[h.LastIndex], chainPoint{i, h.After})
		m.terms[h.FirstIndex], m.terms[h.LastIndex] = h.FirstTerm, h.LastTerm
	}
	for index, sum := range w.sums {
		if index != h.LastIndex { // known from the header
			m.points[index] = append(m.points[index], chainPoint{i, sum})
		}
	}
	for index, term := range w.terms {
		m.terms[index] = term
	}
	for index, d := range w.digests {
		m.digests[index] = append(m.digests[index], entryDigest{i, d})
	}
}

// take takes over what an earlier listing's segments had, where they are still
// there.
func (m *chainMap) take(old *chainMap) {
	for index, all := range old.points {
		for _, p := range all {
			h := old.headers[p.segment]
			if i, known := m.index[h.Name()]; known && index >= h.FirstIndex && index < h.LastIndex {
				m.points[index] = append(m.points[index], chainPoint{i, p.sum})
			}
		}
	}
	for index, all := range old.digests {
		for _, d := range all {
			if i, known := m.index[old.headers[d.segment].Name()]; known {
				m.digests[index] = append(m.digests[index], entryDigest{i, d.digest})
			}
		}
	}
	for index, term := range old.terms {
		m.terms[index] = term
	}
}

// findForks reports indexes at which one chain has two values, or two segments
// hold different entries: each segment once, at the first such index. All that
// follows it contradicts the others as well.
func (m *chainMap) findForks(c *report.Check) {
	indexes := make([]uint64, 0, len(m.points))
	linked := map[uint64]map[raftlog.Sum]int{}
	for index, all := range m.points {
		indexes = append(indexes, index)
		m.points[index] = nil
		for _, p := range all {
			m.point(linked, index, p)
		}
	}
	slices.Sort(indexes)
	named := map[int]bool{}
	fork := func(index uint64, a, b int, text string) {
		if named[a] || named[b] {
			return
		}
		named[a], named[b] = true, true
		found(c, report.Finding{Kind: report.KindFork, Object: m.headers[max(a, b)].Name(), Where: fmt.Sprintf("index %d", index),
			Text: fmt.Sprintf("%s and in %s: two histories in one timeline", text, m.headers[min(a, b)].Name())})
	}
	m.differing(func(index uint64, a, b int) {
		fork(index, a, b, fmt.Sprintf("entry %d is another one here", index))
	})
	for _, index := range indexes {
		byChain := map[int]chainPoint{}
		all := m.points[index]
		slices.SortFunc(all, func(a, b chainPoint) int { return cmp.Compare(a.segment, b.segment) })
		for _, p := range all {
			first, ok := byChain[m.root(p.segment)]
			if !ok {
				byChain[m.root(p.segment)] = p
			} else if first.sum != p.sum {
				fork(index, first.segment, p.segment, fmt.Sprintf("the chain has another value at index %d here", index))
			}
		}
	}
}

// differing calls do for entries that two segments hold and that differ, by
// index.
func (m *chainMap) differing(do func(index uint64, a, b int)) {
	for _, index := range slices.Sorted(maps.Keys(m.digests)) {
		all := m.digests[index]
		for i := 1; i < len(all); i++ {
			if all[i].digest != all[0].digest {
				do(index, all[0].segment, all[i].segment)
			}
		}
	}
}

// sumsAt are the chain's values at an index, as far as segments were read.
func (m *chainMap) sumsAt(index uint64) []raftlog.Sum {
	var all []raftlog.Sum
	for _, p := range m.points[index] {
		if !slices.Contains(all, p.sum) {
			all = append(all, p.sum)
		}
	}
	return all
}
