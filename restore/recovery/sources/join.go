// compareLogs compares logs with each other: where they are equal, and where
// they part.
//
// It promises:
//
//  1. All logs are read once, at the same time, in the order of raft indexes.
//     Memory holds a few entries of each, whatever their length.
//  2. Equal means term, type and data, by a SHA-256, not a name or an index alone.
//  3. What a log could not be read for is reported beside its result, and does not
//     keep the others from being compared.

package sources

import (
	"context"
	"iter"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// logEntry is an entry of a log that is compared.
type logEntry struct {
	Index, Term uint64
	Sum         entrySum
}

// entrySum stands for an entry, with its type and data: the first half of the SHA-256 with
// which an archive chains it. That two entries have one sum by chance does not happen.
type entrySum [len(raftlog.Sum{}) / 2]byte

func entryOf(e raftlog.Entry) logEntry {
	sum := raftlog.Sum{}.Next(e)
	return logEntry{e.Index, e.Term, entrySum(sum[:])}
}

// logHead is where the reading of one log is.
type logHead struct {
	next  func() (logEntry, error, bool)
	entry logEntry
	ended bool
	err   error
}

func (h *logHead) advance() {
	e, err, ok := h.next()
	h.entry, h.err, h.ended = e, err, !ok || err != nil
}

// compareLogs compares logs, each in the order of its indexes, of which some may be
// missing, and gives what each two have in common that met. Of logs that parted nothing
// behind that point is compared. visit, which may be nil, sees every entry of each log, in
// order.
//
// errs are the errors that logs ended with. The error is that of ctx alone.
func compareLogs(ctx context.Context, names []string, logs []iter.Seq2[logEntry, error], visit func(log int, e logEntry)) (met []Relation, errs []error, err error) {
	heads, pairs := make([]logHead, len(logs)), make([][]Relation, len(logs))
	for i, log := range logs {
		pairs[i] = make([]Relation, len(logs))
		next, stop := iter.Pull2(log)
		defer stop()
		heads[i].next = next
		heads[i].advance()
	}
	var at []int // the logs that hold the lowest index
	for n := 1; ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		if at = lowest(heads, at[:0]); len(at) == 0 {
			break
		}
		for x, a := range at {
			for _, b := range at[x+1:] {
				pairs[a][b].compare(heads[a].entry, heads[b].entry)
			}
		}
		for _, i := range at {
			if visit != nil {
				visit(i, heads[i].entry)
			}
			heads[i].advance()
		}
	}
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	for a := range heads {
		errs = append(errs, heads[a].err)
		for b := a + 1; b < len(heads); b++ {
			if r := pairs[a][b]; r.Last > 0 || r.Parted != nil {
				r.A, r.B = names[a], names[b]
				met = append(met, r)
			}
		}
	}
	return met, errs, nil
}

// lowest adds the logs whose next entry has the lowest index, in their order.
func lowest(heads []logHead, at []int) []int {
	for i, h := range heads {
		switch {
		case h.ended || len(at) > 0 && h.entry.Index > heads[at[0]].entry.Index:
			continue
		case len(at) > 0 && h.entry.Index < heads[at[0]].entry.Index:
			at = at[:0]
		}
		at = append(at, i)
	}
	return at
}

// compare takes up the entries that both logs have at an index, the next one that both have.
func (r *Relation) compare(a, b logEntry) {
	switch {
	case r.Parted != nil:
	case a != b:
		r.Parted = &Parting{Index: a.Index, TermA: a.Term, TermB: b.Term}
	default:
		if r.First == 0 {
			r.First = a.Index
		}
		r.Last, r.LastTerm = a.Index, a.Term
	}
}
