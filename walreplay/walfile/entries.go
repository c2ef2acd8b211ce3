package walfile

import (
	"context"
	"errors"
	"fmt"
	"io"
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
// an entry stands behind it. An entry's data is valid until the next one is asked
// for; memory holds one block.
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
	_, err := l.walk(ctx, segment, func(_ int, rec record) error {
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

// checkEvery is how many records are read between two looks at the context.
const checkEvery = 4096

// TornTail is the end of a log that a crash cut off: what is behind it was never
// acknowledged by this member.
type TornTail struct {
	Segment string // the file's name
	Offset  int64
}

// walk reads the segments from the given one on, and calls visit with each
// record and the number of its segment. It checks the chain of CRCs through all
// of them, and that all are the same member's. It ends with an error, or with
// nil, and what the torn tail is, if any. The records' data is valid during the
// visit only.
func (l *Log) walk(ctx context.Context, from int, visit func(segment int, rec record) error) (*TornTail, error) {
	var c chain
	var before int64 // where the segment before ended
	for i := from; i < len(l.names); i++ {
		end, torn, err := l.walkSegment(ctx, i, &c, visit)
		if errors.Is(err, errBroken) && i > from {
			return nil, l.corrupt(i-1, before, fmt.Errorf("%s: %w", l.names[i], err))
		}
		if err != nil || torn != nil {
			return torn, err
		}
		before = end
	}
	return nil, nil
}

func (l *Log) walkSegment(ctx context.Context, i int, c *chain, visit func(int, record) error) (end int64, torn *TornTail, err error) {
	f, size, err := openSegment(l.dir, l.names[i])
	if err != nil {
		return 0, nil, err
	}
	defer f.Close() //nolint:errcheck // reading
	r := newReader(f, 0, size, *c)
	for n := 1; ; n++ {
		if n%checkEvery == 0 && ctx.Err() != nil {
			return 0, nil, context.Cause(ctx)
		}
		rec, err := r.next()
		if err != nil && errors.Is(err, errBroken) {
			return 0, nil, err
		}
		newest := i == len(l.names)-1
		switch {
		case isPathError(err):
			return 0, nil, fmt.Errorf("the write-ahead log: %w", err)
		case err == io.EOF && !newest:
			*c = r.chain
			return r.at, nil, nil
		case err != nil && newest:
			torn, err := l.judge(f, i, rec, size, err)
			return rec.at, torn, err
		case err != nil:
			return 0, nil, l.corrupt(i, rec.at, explain(err))
		}
		if err := l.visitRecord(i, rec, visit); err != nil {
			return 0, nil, err
		}
	}
}

func (l *Log) visitRecord(i int, rec record, visit func(int, record) error) error {
	switch rec.kind {
	case wal.EntryType, wal.StateType, wal.SnapshotType:
		err := visit(i, rec)
		// Of a record whose CRC was right.
		if err != nil && !errors.Is(err, errStop) && !errors.Is(err, ErrNewer) {
			err = l.corrupt(i, rec.at, err)
		}
		return err
	case wal.MetadataType:
		id, err := parseIdentity(rec.data)
		if err == nil && id != l.identity {
			err = l.corrupt(i, rec.at, fmt.Errorf("it is the log of %s, the newest file that of %s", id, l.identity))
		}
		return err
	case wal.CrcType:
		return nil
	}
	err := unknownKind(rec.kind)
	if !errors.Is(err, ErrNewer) {
		err = l.corrupt(i, rec.at, err)
	}
	return err
}

// judge says what the end of the newest segment is: a clean end, a torn tail, or
// damage.
func (l *Log) judge(f io.ReaderAt, i int, rec record, size int64, why error) (*TornTail, error) {
	at := rec.at
	found, err := examine(f, at, size, rec.before)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the write-ahead log: %w", err)
	case found.nothing && at > 0:
		return nil, nil
	case !found.damaged():
		return &TornTail{Segment: l.names[i].String(), Offset: at}, nil
	}
	if why == io.EOF {
		why = errors.New("zeros in the place of records")
	}
	switch {
	case found.misframed:
		return nil, l.corrupt(i, at, errors.New("a record's length is wrong"))
	case found.follows:
		return nil, l.corrupt(i, at, fmt.Errorf("%w, and good records follow", explain(why)))
	}
	return nil, l.corrupt(i, at, fmt.Errorf("%w, and no write that was cut off looks like that", explain(why)))
}

// errStop ends a walk early.
var errStop = errors.New("stop")

func (l *Log) corrupt(i int, at int64, err error) error {
	return &CorruptError{Dir: l.dir, Segment: l.names[i].String(), Offset: at, Err: err}
}
