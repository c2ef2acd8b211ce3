// compareLogs compares logs with each other: where they are equal, and where
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

package sources

import (
	"context"
	"crypto/sha256"
	"iter"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// logPair is what two logs have in common. Of logs that parted nothing behind that
// point is compared.
type logPair struct {
	// First and Last are the lowest and the highest index at which both hold the
	// same entry; 0 where there is none. LastTerm is the term of that last one.
	First, Last, LastTerm uint64
	// Parted is nil where no index holds different entries.
	Parted *Parting
}

// Met reports whether there was anything to compare.
func (p logPair) Met() bool { return p.Last > 0 || p.Parted != nil }

// compareLogs compares logs, each in the order of its indexes, of which some may be
// missing. visit, which may be nil, sees every entry of each log, in order; its
// data is valid during the call. pairs[a][b] is there for a < b.
//
// errs are the errors that logs ended with. The error is that of ctx alone.
func compareLogs(ctx context.Context, logs []iter.Seq2[logEntry, error], visit func(log int, e logEntry)) (pairs [][]logPair, errs []error, err error) {
	m := &logMerge{heads: make([]logHead, len(logs)), pairs: make([][]logPair, len(logs)), errs: make([]error, len(logs))}
	for i, log := range logs {
		m.pairs[i] = make([]logPair, len(logs))
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

// logHead is where the reading of one log is.
type logHead struct {
	next  func() (logEntry, error, bool)
	entry logEntry
	// summed says that entry.Sum was made here.
	summed bool
	ended  bool
}

type logMerge struct {
	heads []logHead
	pairs [][]logPair
	errs  []error
}

func (m *logMerge) advance(i int) {
	h := &m.heads[i]
	e, err, ok := h.next()
	if !ok || err != nil {
		h.ended, m.errs[i] = true, err
		return
	}
	h.entry, h.summed = e, false
}

// lowest adds the logs whose next entry has the lowest index, in their order.
func (m *logMerge) lowest(at []int) []int {
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
func (m *logMerge) compare(at []int) {
	for x, a := range at {
		for _, b := range at[x+1:] {
			p := &m.pairs[a][b]
			if p.Parted != nil {
				continue
			}
			one, other := &m.heads[a].entry, &m.heads[b].entry
			if !sameEntry(&m.heads[a], &m.heads[b]) {
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

// logEntry is an entry of a log that is compared. Of a log that is read elsewhere its
// data may have stayed there: a sum stands for it then.
type logEntry struct {
	raftlog.Entry
	// Outline says that Data is left out. Sum stands for it then, and Moves tells
	// whether the entry may have moved the revision.
	Outline bool
	Sum     entrySum
	Moves   bool
}

// entrySum stands for the data of an entry: the first half of its SHA-256. That two
// entries of one index and term have one sum by chance does not happen.
type entrySum [sha256.Size / 2]byte

// entrySumOf is the sum of an entry's data.
func entrySumOf(data []byte) entrySum {
	full := sha256.Sum256(data)
	return entrySum(full[:len(entrySum{})])
}

// wholeEntry gives entries that have their data.
func wholeEntry(e raftlog.Entry) logEntry { return logEntry{Entry: e} }

// same reports whether two entries are the same. What it has to sum it keeps.
func sameEntry(a, b *logHead) bool {
	x, y := &a.entry, &b.entry
	if !x.Outline && !y.Outline {
		return x.Equal(y.Entry)
	}
	return x.Index == y.Index && x.Term == y.Term && x.Type == y.Type && a.sum() == b.sum()
}

// sum is that of the next entry's data.
func (h *logHead) sum() entrySum {
	if !h.entry.Outline && !h.summed {
		h.entry.Sum, h.summed = entrySumOf(h.entry.Data), true
	}
	return h.entry.Sum
}
