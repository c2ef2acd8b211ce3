// Package join compares logs with each other: where they are equal, and where
// they part.
//
// It promises:
//
//  1. All logs are read once, at the same time, in the order of raft indexes.
//     Memory holds one entry of each, whatever their length.
//  2. Equal means term, type and data, not a name or an index alone. Where the data
//     of one of two is elsewhere, its SHA-256 is compared.
//  3. What a log could not be read for is told beside its result, and does not
//     keep the others from being compared.
package join

import (
	"context"
	"iter"
)

// Parting is the first index at which two logs hold different entries.
type Parting struct {
	Index        uint64
	TermA, TermB uint64
}

// Pair is what two logs have in common. Of logs that parted nothing behind that
// point is compared.
type Pair struct {
	// First and Last are the lowest and the highest index at which both hold the
	// same entry; 0 where there is none. LastTerm is the term of that last one.
	First, Last, LastTerm uint64
	// Parted is nil where no index holds different entries.
	Parted *Parting
}

// Met tells whether there was anything to compare.
func (p Pair) Met() bool { return p.Last > 0 || p.Parted != nil }

// Logs compares logs, each in the order of its indexes, of which some may be
// missing. visit, which may be nil, sees every entry of each log, in order; its
// data is valid during the call. pairs[a][b] is there for a < b.
//
// errs are the errors that logs ended with. The error is that of ctx alone.
func Logs(ctx context.Context, logs []iter.Seq2[Entry, error], visit func(log int, e Entry)) (pairs [][]Pair, errs []error, err error) {
	m := &merge{heads: make([]head, len(logs)), pairs: make([][]Pair, len(logs)), errs: make([]error, len(logs))}
	for i, log := range logs {
		m.pairs[i] = make([]Pair, len(logs))
		next, stop := iter.Pull2(log)
		defer stop()
		m.heads[i].next = next
		m.advance(i)
	}
	var at []int // the logs that hold the lowest index
	for n := 1; ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		if at = m.lowest(at[:0]); len(at) == 0 {
			break
		}
		m.compare(at)
		for _, i := range at {
			if visit != nil {
				visit(i, m.heads[i].entry)
			}
			m.advance(i)
		}
	}
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	return m.pairs, m.errs, nil
}

// head is where the reading of one log is.
type head struct {
	next  func() (Entry, error, bool)
	entry Entry
	// summed tells that entry.Sum was made here.
	summed bool
	ended  bool
}

type merge struct {
	heads []head
	pairs [][]Pair
	errs  []error
}

func (m *merge) advance(i int) {
	h := &m.heads[i]
	e, err, ok := h.next()
	if !ok || err != nil {
		h.ended, m.errs[i] = true, err
		return
	}
	h.entry, h.summed = e, false
}

// lowest adds the logs whose next entry has the lowest index, in their order.
func (m *merge) lowest(at []int) []int {
	for i := range m.heads {
		if m.heads[i].ended {
			continue
		}
		if len(at) > 0 {
			switch lowest := m.heads[at[0]].entry.Index; {
			case m.heads[i].entry.Index > lowest:
				continue
			case m.heads[i].entry.Index < lowest:
				at = at[:0]
			}
		}
		at = append(at, i)
	}
	return at
}

// compare compares the next entries of some logs, which have one index.
func (m *merge) compare(at []int) {
	for x, a := range at {
		for _, b := range at[x+1:] {
			p := &m.pairs[a][b]
			if p.Parted != nil {
				continue
			}
			one, other := &m.heads[a].entry, &m.heads[b].entry
			if !same(&m.heads[a], &m.heads[b]) {
				p.Parted = &Parting{Index: one.Index, TermA: one.Term, TermB: other.Term}
				continue
			}
			if p.First == 0 {
				p.First = one.Index
			}
			p.Last, p.LastTerm = one.Index, one.Term
		}
	}
}
