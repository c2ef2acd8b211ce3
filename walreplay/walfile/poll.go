package walfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/storage/wal"
)

// Poll reads what is new, up to PendingLimit, and resolves overwrites of what is
// pending. It is nil when nothing is new, and when the newest record is not
// whole: it is read again at the next Poll. When Full, it still opens new files,
// so that they can't be purged.
//
// A hole is told once, as a *GapError where a leader's snapshot came, as a
// *PurgedError where files were gone before they were read, From included. What
// is pending then is what is final before the hole; when it is released, the
// next Poll goes on behind the hole.
//
// All other errors come again at the next Poll, unless the cause goes away:
// *CorruptError, ErrNewer, ErrReplaced.
func (t *Tail) Poll(ctx context.Context) error {
	if err := t.scan(); err != nil {
		return err
	}
	if t.Pinned() > t.options.PinLimit {
		t.DropPins()
	}
	if t.told != nil {
		if len(t.pending) > 0 {
			return nil
		}
		t.log.restart()
		t.told = nil
	}
	for !t.Full() && len(t.held) > 0 {
		// What has a successor before it is read is final.
		final := len(t.held) > 1
		err := t.read(ctx, t.held[0], final)
		if err != nil || t.Full() {
			return t.tell(err)
		}
		if !final {
			if err := t.scan(); err != nil {
				return err
			}
			if len(t.held) == 1 {
				return t.tell(t.log.settle())
			}
			continue
		}
		if err := t.next(); err != nil {
			return err
		}
	}
	return nil
}

// tell remembers a hole that is told.
func (t *Tail) tell(err error) error {
	if isHole(err) {
		t.told = err
		t.cutPending(t.log.last() + 1)
	}
	return err
}

// next goes on to the next segment.
func (t *Tail) next() error {
	s := t.held[1]
	switch {
	case s.hole == nil:
		if err := t.checkResume(t.at.offset); err != nil {
			return err
		}
		t.advance()
	case errors.Is(s.hole, ErrPurged):
		t.advance()
		t.skip()
	default:
		return &CorruptError{Dir: t.dir, Segment: s.name.String(), Err: s.hole}
	}
	return nil
}

// read reads on in the segment. It gives nil at its end, or where a record is
// not whole yet.
func (t *Tail) read(ctx context.Context, s *segment, final bool) error {
	if !final && t.idle(s) {
		return nil
	}
	info, err := s.file.Stat()
	if err != nil {
		return fmt.Errorf("the write-ahead log: %w", err)
	}
	r := newReader(s.file, t.at.offset, info.Size(), t.at.chain)
	for n := 1; !t.Full(); n++ {
		if n%checkEvery == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		rec, err := r.next()
		if err != nil {
			return t.ends(s, info.Size(), final, err)
		}
		if err := t.record(s, rec); err != nil {
			return err
		}
		t.at.offset, t.at.chain = rec.end, r.chain
		if rec.kind == wal.SnapshotType {
			if err := t.log.settle(); err != nil {
				return err
			}
		}
	}
	return nil
}

// idle tells that nothing was written behind what was read. It spares the member
// a read of a whole buffer at each Poll.
func (t *Tail) idle(s *segment) bool {
	var b [4096]byte
	n, err := s.file.ReadAt(b[:], t.at.offset)
	if err != nil && err != io.EOF {
		return false
	}
	for _, v := range b[:n] {
		if v != 0 {
			return false
		}
	}
	return true
}

// liveWindow is how far behind an unreadable record of a live file others are
// looked for. Looking further would bring the whole file into the page cache at
// each torn record; and once it has a successor, all of it has to be readable.
const liveWindow = 4 << 20

// ends tells what it means that no record can be read.
func (t *Tail) ends(s *segment, size int64, final bool, why error) error {
	file := filepath.Join(t.dir, s.name.String())
	switch {
	case isPathError(why):
		return fmt.Errorf("%s: %w", file, why)
	case errors.Is(why, errBroken) && t.was != "":
		return &CorruptError{Dir: t.dir, Segment: t.was, Offset: t.end, Err: fmt.Errorf("%s: %w", s.name, why)}
	case why == io.EOF && final:
		return nil
	case final:
		return &CorruptError{Dir: t.dir, Segment: s.name.String(), Offset: t.at.offset, Err: explain(why)}
	}
	// The member is writing, or was killed while it wrote. If records follow that
	// can be read, though, then nobody will come back to this place.
	found, err := examine(s.file, t.at.offset, min(size, t.at.offset+liveWindow), t.at.chain.sum)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if !found.follows {
		t.stuck = place{}
		return nil
	}
	if t.stuck != t.at {
		t.stuck = t.at
		return nil
	}
	if why == io.EOF {
		why = errors.New("zeros in the place of records")
	}
	return &CorruptError{Dir: t.dir, Segment: s.name.String(), Offset: t.at.offset, Err: fmt.Errorf("%w, and good records follow", explain(why))}
}
