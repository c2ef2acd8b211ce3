package walfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

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

// errAgain says that a listing may have been taken in the middle of a change.
var errAgain = errors.New("the directory changes faster than it can be listed")

func (t *Tail) sameFolder() error {
	here, err := os.Stat(t.dir)
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
				return errAgain // a file that is being renamed can be missing in a listing
			}
			if hole = ErrPurged; names[0].seq < n.seq {
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
	here, err := os.Stat(path)
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

// DropPins lets go of purged files. lost tells that there was something to read
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
	lost = lost || len(t.held) > 0 && t.at.offset == 0 && errors.Is(t.held[0].hole, ErrPurged) && t.at.chain.known
	if lost {
		t.skip()
	}
	return lost
}

// skip goes on behind files that can't be read any more.
func (t *Tail) skip() {
	t.log.skip()
	if t.options.Resume != nil && t.options.From == 0 {
		t.floor = t.log.last()
		t.options.From = t.floor + 1
	}
	t.at.chain, t.options.Resume = chain{}, nil
	t.cutPending(t.log.last() + 1)
}

// advance goes on to the segment behind the first that is held.
func (t *Tail) advance() {
	s := t.held[0]
	t.was, t.end = s.name.String(), t.at.offset
	s.file.Close()
	t.held = t.held[1:]
	t.at.offset, t.at.segment = 0, s.name.seq+1
	if len(t.held) > 0 {
		t.at.segment = t.held[0].name.seq
	}
}
