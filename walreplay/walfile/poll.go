package walfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/requorum/requorum/store/safedir"
)

// Poll reads what is new, up to PendingLimit, and resolves overwrites of what is
// pending. It is nil when nothing is new, and when the newest record is not
// whole: it is read again at the next Poll. When Full, it still opens new files,
// so that they can't be purged.
//
// A hole is reported once, as a *GapError where a leader's snapshot came, as a
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
	if t.reported != nil {
		if len(t.pending) > 0 {
			return nil
		}
		t.log.restart()
		t.reported = nil
	}
	for !t.Full() && len(t.held) > 0 {
		// What has a successor before it is read is final.
		final := len(t.held) > 1
		err := t.read(ctx, t.held[0], final)
		if err != nil || t.Full() {
			return t.report(err)
		}
		if !final {
			if err := t.scan(); err != nil {
				return err
			}
			if len(t.held) == 1 {
				return t.report(t.log.settle())
			}
			continue
		}
		if err := t.next(); err != nil {
			return err
		}
	}
	return nil
}

// report remembers a hole that is reported.
func (t *Tail) report(err error) error {
	if IsHole(err) {
		t.reported = err
		t.cutPending(t.log.last() + 1)
	}
	return err
}

// next goes on to the next segment.
func (t *Tail) next() error {
	s := t.held[1]
	switch {
	case s.hole == nil:
		t.advance()
	case errors.Is(s.hole, errPurged):
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

// idle says that nothing was written behind what was read. It spares the member
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

// ends says what it means that no record can be read.
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
	// Where the member writes, reading ends at zeros each time, and elsewhere the next time:
	// looking behind them each time would cost more than reading what is new.
	if why == io.EOF && t.ended != t.at {
		t.ended = t.at
		return nil
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

const (
	// tries is how often a directory is listed again because it changed meanwhile.
	tries = 10
	// mostHeld is how many files are open at once. A member purges the oldest
	// first, so the later ones can wait.
	mostHeld = 256
)

// hold opens a segment.
func (t *Tail) hold(n name) error {
	f, size, err := openSegment(t.dir, n)
	if err != nil {
		return err
	}
	t.held = append(t.held, &segment{name: n, file: f, size: size, linked: true})
	t.seq = n.seq
	return nil
}

// scan looks at the directory: it opens the segments that are new, before the
// member can purge them, and notices which are gone. ErrReplaced when it is
// another directory, or has another log.
func (t *Tail) scan() error {
	for try := 0; ; try++ {
		if err := t.sameFolder(); err != nil {
			return err
		}
		names, err := list(t.dir)
		if err != nil {
			return fmt.Errorf("the write-ahead log: %w", err)
		}
		if err = t.take(names, try == tries); err == nil {
			return nil
		}
		if !errors.Is(err, errAgain) && !errors.Is(err, fs.ErrNotExist) || try == tries {
			return err
		}
	}
}

// errPurged says that the files before one were purged before they were opened.
var errPurged = errors.New(purged)

// errAgain says that a listing may have been taken in the middle of a change: a file that is
// being renamed can be missing in it, and so can those that were purged meanwhile, when
// this process did not run for long enough.
var errAgain = errors.New("the directory changes faster than it can be listed")

func (t *Tail) sameFolder() error {
	here, err := safedir.Stat(t.dir)
	if err != nil {
		return fmt.Errorf("the write-ahead log: %w", err)
	}
	was, err := t.folder.Stat()
	if err != nil {
		return fmt.Errorf("the write-ahead log: %w", err)
	}
	if !os.SameFile(here, was) {
		return fmt.Errorf("%s is another directory now: %w", t.dir, ErrReplaced)
	}
	return nil
}

// take compares a listing with what is held, and opens what is new in it.
func (t *Tail) take(names []name, surely bool) error {
	if len(names) == 0 || names[len(names)-1].seq < t.seq {
		if !surely {
			return errAgain
		}
		return fmt.Errorf("%s holds no segment %016x: %w", t.dir, t.seq, ErrReplaced)
	}
	listed := make(map[uint64]name, len(names))
	for _, n := range names {
		listed[n.seq] = n
	}
	for _, s := range t.held {
		was, err := s.file.Stat()
		if err != nil {
			return fmt.Errorf("the write-ahead log: %w", err)
		}
		s.size = was.Size() // cut shortens a file, also one that is purged by now
		n, ok := listed[s.name.seq]
		if s.linked = ok; !ok {
			continue
		}
		if err := t.sameSegment(s, n, was); err != nil {
			return err
		}
	}
	for _, n := range names {
		if n.seq <= t.seq {
			continue
		}
		if len(t.held) >= mostHeld {
			return nil
		}
		var hole error
		if n.seq != t.seq+1 {
			if !surely {
				return errAgain
			}
			if hole = errPurged; names[0].seq < n.seq {
				hole = fmt.Errorf("the file before it is missing, and older ones are there: %s is the oldest", names[0])
			}
		}
		if err := t.hold(n); err != nil {
			return err
		}
		t.held[len(t.held)-1].hole = hole
	}
	return nil
}

// sameSegment notices a file that took the place of one that is held.
func (t *Tail) sameSegment(s *segment, n name, was fs.FileInfo) error {
	path := filepath.Join(t.dir, n.String())
	here, err := safedir.Stat(path)
	if err != nil {
		return err // purged just now: the listing is taken again
	}
	if n != s.name || !os.SameFile(here, was) {
		return fmt.Errorf("%s is another file now: %w", path, ErrReplaced)
	}
	if s == t.held[0] && s.size < t.at.offset {
		return fmt.Errorf("%s is shorter than what was read of it: %w", path, ErrReplaced)
	}
	return nil
}

// Pinned are the bytes of files that the member has purged, by the last Poll,
// and that are held because they are not read.
func (t *Tail) Pinned() int64 {
	var bytes int64
	for _, s := range t.held {
		if !s.linked {
			bytes += s.size
		}
	}
	return bytes
}

// DropPins releases purged files. lost says that there was something to read
// in them: what is pending and not recorded as committed is dropped with them,
// since it may have been overwritten there, and a later Poll gives a
// *PurgedError, once.
func (t *Tail) DropPins() (lost bool) {
	for len(t.held) > 0 && !t.held[0].linked {
		s := t.held[0]
		if t.at.segment != s.name.seq || t.at.offset < s.size || !t.at.chain.known {
			lost = true
		}
		t.advance()
	}
	// What comes next may itself stand behind files that are gone.
	lost = lost || len(t.held) > 0 && t.at.offset == 0 && errors.Is(t.held[0].hole, errPurged) && t.at.chain.known
	if lost {
		t.skip()
	}
	return lost
}

// skip goes on behind files that can't be read any more.
func (t *Tail) skip() {
	t.log.skip()
	t.at.chain = chain{}
	t.cutPending(t.log.last() + 1)
}

// advance goes on to the segment behind the first that is held.
func (t *Tail) advance() {
	s := t.held[0]
	t.was, t.end = s.name.String(), t.at.offset
	s.file.Close() //nolint:errcheck // reading
	t.held = t.held[1:]
	t.at.offset, t.at.segment = 0, s.name.seq+1
	if len(t.held) > 0 {
		t.at.segment = t.held[0].name.seq
	}
}
