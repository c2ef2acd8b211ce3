package walfile

import (
	"context"
	"errors"
	"fmt"
	"io"

	"go.etcd.io/etcd/server/v3/storage/wal"
)

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
// nil, and what the torn tail is, if any. With keep the records' data stays as it
// is; otherwise it is valid during the visit only.
func (l *Log) walk(ctx context.Context, from int, keep bool, visit func(segment int, rec record) error) (*TornTail, error) {
	var c chain
	var before int64 // where the segment before ended
	for i := from; i < len(l.names); i++ {
		end, torn, err := l.walkSegment(ctx, i, &c, keep, visit)
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

func (l *Log) walkSegment(ctx context.Context, i int, c *chain, keep bool, visit func(int, record) error) (end int64, torn *TornTail, err error) {
	f, size, err := openSegment(l.dir, l.names[i])
	if err != nil {
		return 0, nil, err
	}
	defer f.Close()
	r := newReader(f, 0, size, *c)
	r.keep = keep
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

// judge tells the end of the newest segment: its clean end, a torn tail, or
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
