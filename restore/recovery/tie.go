package recovery

import (
	"fmt"
	"slices"
)

// tie is how two sources stand to each other.
type tie int

const (
	unmet tie = iota // nothing that both hold: not known
	equal            // equal wherever both hold something
	tail             // the end of one of them was refused
	fork             // two histories
)

// relationship is a tie, and where the two part.
type relationship struct {
	tie tie
	at  uint64 // the first index that differs, for tail and fork; 0 where it is not known
	// cut is the one whose end was refused, for tail. committed tells that the
	// other's entries were: otherwise the newer last term decides, as it does when
	// a leader is elected.
	cut       *source
	committed bool
	why       string // for a fork
	last      uint64 // the last index at which both hold the same entry
	term      uint64 // its term
}

// ties finds out how each two sources stand.
type ties struct{ relations []Relation }

func (t ties) relation(a, b *source) *Relation {
	for i, r := range t.relations {
		if r.A == a.name && r.B == b.name || r.A == b.name && r.B == a.name {
			return &t.relations[i]
		}
	}
	return nil
}

// joined tells whether both were seen to hold the same entry at an index.
func (t ties) joined(a, b *source, index uint64) bool {
	r := t.relation(a, b)
	return r != nil && r.First != 0 && r.First <= index && index <= r.Last && a.holds(index) && b.holds(index)
}

// between judges two sources. It goes by what raft makes impossible within one
// history: two entries of one term at one index, two committed entries at one
// index, and members that leave without being asked.
func (t ties) between(a, b *source) relationship {
	if a.before(b) {
		a, b = b, a // b ranks lower from here on
	}
	if a.cluster != 0 && b.cluster != 0 && a.cluster != b.cluster {
		return relationship{tie: fork, why: fmt.Sprintf("%s is of cluster %s, %s of cluster %s", a.what(), a.cluster, b.what(), b.cluster)}
	}
	r := t.relation(a, b)
	if r == nil {
		return t.byImages(a, b)
	}
	out := relationship{tie: equal, last: r.Last, term: r.LastTerm}
	if r.Parted == nil {
		for _, x := range []*source{a, b} {
			if i := slices.IndexFunc(x.forced, func(index uint64) bool { return index > r.Last }); i >= 0 {
				out.tie, out.at = fork, x.forced[i]
				out.why = fmt.Sprintf("%s went on by itself at raft index %d: it was started with --force-new-cluster", x.what(), x.forced[i])
			}
		}
		return out
	}
	out.tie, out.at, out.cut = tail, r.Parted.Index, b
	switch {
	case slices.ContainsFunc(append(slices.Clone(a.forced), b.forced...), func(index uint64) bool { return index >= out.at }):
		out.tie, out.why = fork, fmt.Sprintf("%s and %s part at raft index %d: one of them was started with --force-new-cluster and went on by itself", a.what(), b.what(), out.at)
	case r.Parted.TermA == r.Parted.TermB:
		out.tie, out.why = fork, fmt.Sprintf("%s and %s hold different entries of the same term %d at raft index %d, which one cluster cannot write: one of them was restarted under the same ID", a.what(), b.what(), r.Parted.TermA, out.at)
	case a.committed >= out.at && b.committed >= out.at:
		out.tie, out.why = fork, fmt.Sprintf("%s and %s hold different entries from raft index %d on, and both went on from there with what was committed", a.what(), b.what(), out.at)
	case b.committed >= out.at: // by a leader that came later than the other's end
		out.cut, out.committed = a, true
	case a.committed >= out.at:
		out.committed = true
	}
	return out
}

// byImages judges sources whose logs do not meet by the term of the entry that a
// database of the one ends with and that the other's log holds.
func (t ties) byImages(a, b *source) relationship {
	for _, pair := range [][2]*source{{a, b}, {b, a}} {
		for _, i := range pair[0].images {
			term := pair[1].termAt(i.base.Index)
			switch {
			case i.base.Term == 0 || term == 0:
			case term == i.base.Term:
				return relationship{tie: equal}
			case pair[1].committed < i.base.Index:
				return relationship{tie: tail, at: i.base.Index, cut: pair[1], committed: true}
			default:
				return relationship{tie: fork, at: i.base.Index, why: fmt.Sprintf("%s and %s hold entries of different terms at raft index %d", a.what(), b.what(), i.base.Index)}
			}
		}
	}
	return relationship{}
}
