package walfile

import (
	"context"
	"errors"
	"iter"
	"slices"

	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// Entries yields the entries from index first on (0: from the first one there
// is), each once, in order, as they are after all overwrites, to the end of the
// log, beyond the recorded commit index too. It yields nothing when the log ends
// before first.
//
// The first error is the end: *PurgedError when the log begins behind first,
// *GapError at a gap (Entries goes on with its Next), *CorruptError where damage
// begins. What is yielded before damage and is beyond the recorded commit index
// may have been overwritten in what cannot be read.
//
// The log is read twice, the first time only once for all calls: what overwrites
// an entry stands behind it. An entry's data may be kept, but keeps a block of up
// to 256 KiB with it; beside that, memory holds one block.
func (l *Log) Entries(ctx context.Context, first uint64) iter.Seq2[raftlog.Entry, error] {
	return func(yield func(raftlog.Entry, error) bool) {
		if err := l.emit(ctx, first, yield); err != nil {
			yield(raftlog.Entry{}, err)
		}
	}
}

func (l *Log) emit(ctx context.Context, first uint64, yield func(raftlog.Entry, error) bool) error {
	p, err := l.plannedFor(ctx, first)
	if err != nil {
		return err
	}
	runs, err := p.from(first)
	if err != nil {
		return errors.Join(err, l.missing)
	}
	if len(runs) == 0 {
		return p.err
	}
	return l.emitRuns(ctx, p, runs, max(first, runs[0].first), yield)
}

// emitRuns yields what the runs hold, from index next on. What ends it goes into
// end: errors that the walk's visitor returns count as damage.
func (l *Log) emitRuns(ctx context.Context, p *plan, runs []run, next uint64, yield func(raftlog.Entry, error) bool) error {
	segment := p.segmentOf(runs[0].ordinal)
	ordinal := p.ordinals[segment-p.start]
	end := errChanged
	_, err := l.walk(ctx, segment, true, func(_ int, rec record) error {
		if rec.kind != wal.EntryType {
			return nil
		}
		u, at := runs[0], ordinal
		ordinal++
		if at < u.ordinal {
			return nil // overwritten later on
		}
		if index := u.first + uint64(at-u.ordinal); index >= next {
			e, err := parseEntry(rec.data)
			if err != nil || e.Index != index || e.Term != u.term {
				return errStop
			}
			if !yield(e, nil) {
				end = nil
				return errStop
			}
			next = index + 1
		}
		if at+1 < u.ordinal+int64(u.count) {
			return nil
		}
		if runs = runs[1:]; len(runs) == 0 {
			if end = p.gapAfter(u.last()); end == nil {
				end = p.err
			}
			return errStop
		}
		if runs[0].first != u.last()+1 {
			end = p.gapAfter(u.last())
			return errStop
		}
		return nil
	})
	if err == nil || errors.Is(err, errStop) {
		err = end
	}
	return err
}

var errChanged = errors.New("the log changed while it was read: is the member running?")

// from gives the runs that hold the entries from first on.
func (p *plan) from(first uint64) ([]run, error) {
	i, _ := slices.BinarySearchFunc(p.runs, first, func(u run, first uint64) int {
		if u.last() < first {
			return -1
		}
		return 1
	})
	runs := p.runs[i:]
	if first == 0 || len(runs) > 0 && runs[0].first <= first {
		return runs, nil
	}
	for _, g := range p.summary.Gaps {
		if first > g.After && first < g.Next {
			return nil, &GapError{After: first - 1, Next: g.Next}
		}
	}
	if len(p.runs) > 0 && i == 0 {
		return nil, &PurgedError{Want: first, First: p.runs[0].first}
	}
	if len(p.runs) == 0 && first <= p.summary.LastIndex {
		return nil, &PurgedError{Want: first}
	}
	return nil, nil
}

// gapAfter is the gap behind an index, or nil.
func (p *plan) gapAfter(index uint64) error {
	for _, g := range p.summary.Gaps {
		if g.After == index {
			return &GapError{After: g.After, Next: g.Next}
		}
	}
	return nil
}

// segmentOf is the segment that holds an entry record.
func (p *plan) segmentOf(ordinal int64) int {
	i, exact := slices.BinarySearch(p.ordinals, ordinal)
	if !exact {
		return p.start + i - 1
	}
	// Segments without entries have the same number as the one behind them.
	for i+1 < len(p.ordinals) && p.ordinals[i+1] == ordinal {
		i++
	}
	return p.start + i
}
