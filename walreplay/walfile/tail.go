package walfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/walreplay/raftlog"
)

const (
	// DefaultPinLimit is 16 of etcd's files: minutes of writing at full speed.
	DefaultPinLimit = 1 << 30
	// DefaultPendingLimit is far more than a cluster has on the way between the
	// writing of an entry and its commit.
	DefaultPendingLimit = 32 << 20
	// hardLimit, in times of PendingLimit, is where even entries that nothing
	// recorded as committed are not read on.
	hardLimit = 8
	// entryOverhead is what a pending entry takes beside its data.
	entryOverhead = 128
)

// TailOptions say from where to read a live log, and how much to hold.
type TailOptions struct {
	From uint64 // first index wanted; 0 is the oldest there is
	// PinLimit bounds the bytes of files that the member has purged and that only
	// this Tail keeps, because it did not read them yet; 0 is the default.
	PinLimit int64
	// PendingLimit bounds the bytes of pending entries; 0 is the default. Entries
	// that the log itself does not record as committed may go beyond it, since
	// only what comes later can show what becomes of them.
	PendingLimit int64
}

// Tail reads the log of a running member. It is used by one goroutine.
type Tail struct {
	dir     string
	folder  *os.File // open, so that its inode is not given to another
	options TailOptions
	id      Identity

	held []*segment // what is not read yet; the first is being read
	seq  uint64     // of the last one that was opened
	at   place
	was  string // the file that was read before the first of held, for messages
	end  int64  // of that

	log      resolver
	pending  []raftlog.Entry
	bytes    int64
	released uint64
	// floor is the highest index that is not wanted; watching says that what is
	// at or below it had been released when the records now read were written.
	floor    uint64
	watching bool

	reported    error // a hole that was reported, and not gone on behind
	ended       place // where zeros stood behind what was read at an earlier Poll
	stuck       place // where good records stood behind bad ones at the last Poll
	overwritten uint64
}

// place is where reading goes on.
type place struct {
	segment uint64
	offset  int64
	chain   chain
}

// segment is a file that is held open: it stays readable when it is purged.
type segment struct {
	name   name
	file   *os.File
	size   int64
	linked bool // in the directory when that was last looked at
	// hole is why segments before this one are not there; nil where none is
	// missing.
	hole error
}

// OpenTail opens the log that a running member is writing. It is ErrNoLog when
// there is none in the directory. Close it.
func OpenTail(dir string, o TailOptions) (*Tail, error) {
	if o.PinLimit == 0 {
		o.PinLimit = DefaultPinLimit
	}
	if o.PendingLimit == 0 {
		o.PendingLimit = DefaultPendingLimit
	}
	t := &Tail{dir: dir, options: o}
	if err := t.open(); err != nil {
		return nil, fmt.Errorf("open the write-ahead log: %w", closing(t, err))
	}
	return t, nil
}

// closing closes c because of err.
func closing(c io.Closer, err error) error {
	_ = c.Close() // it was only read
	return err
}

func (t *Tail) open() error {
	dir, err := safedir.OpenDir(t.dir)
	if err != nil {
		return withRight(err)
	}
	t.folder, err = dir.File()
	if err := errors.Join(err, dir.Close()); err != nil {
		return withRight(err)
	}
	o := &t.options
	t.floor = max(1, o.From) - 1
	// A member may purge between listing and opening.
	for try := 0; ; try++ {
		names, err := list(t.dir)
		if err != nil {
			return err
		}
		if len(names) == 0 {
			return fmt.Errorf("%s: %w", t.dir, ErrNoLog)
		}
		first := holding(names, max(1, o.From))
		if o.From == 0 {
			first = 0
		}
		t.seq = names[first].seq
		if err = t.hold(names[first]); err == nil {
			break
		}
		if !os.IsNotExist(err) || try == tries {
			return err
		}
	}
	n := t.held[0].name
	t.log.base.Index = max(1, n.index) - 1
	t.at = place{segment: n.seq}
	t.id, err = headOf(t.held[0].file, t.held[0].size, t.dir, n)
	if err != nil {
		return err
	}
	return t.scan()
}

// Identity is whose log it is.
func (t *Tail) Identity() Identity { return t.id }

// First is the index of the first pending entry, 0 when there is none.
func (t *Tail) First() uint64 {
	if len(t.pending) == 0 {
		return 0
	}
	return t.pending[0].Index
}

// Last is the index of the last pending entry, 0 when there is none.
func (t *Tail) Last() uint64 {
	if n := len(t.pending); n > 0 {
		return t.pending[n-1].Index
	}
	return 0
}

// Term is that of a pending entry, of the last one that was released, or of the
// snapshot behind which the log goes on.
func (t *Tail) Term(index uint64) (uint64, bool) { return t.log.termAt(index) }

// Recorded is the highest commit index that the log records for entries it has:
// up to it entries are final, by raft's own record. It lags behind.
func (t *Tail) Recorded() uint64 { return t.log.commit }

// Full says that PendingLimit is reached, or that a hole was reported and pending
// entries are before it: there is more to read after a Release.
func (t *Tail) Full() bool {
	if t.reported != nil {
		return len(t.pending) > 0
	}
	o := t.options
	return t.bytes >= o.PendingLimit && (t.First() <= t.Recorded() || t.bytes >= hardLimit*o.PendingLimit)
}

// Release hands out the pending entries up to an index and forgets them.
func (t *Tail) Release(through uint64) []raftlog.Entry {
	n := 0
	for n < len(t.pending) && t.pending[n].Index <= through {
		n++
	}
	if n == 0 {
		return nil
	}
	out := make([]raftlog.Entry, n)
	for i := range out {
		out[i] = t.pending[i]
		t.bytes -= cost(out[i])
	}
	// A copy, so that what was released does not stay in memory.
	t.pending = slices.Clone(t.pending[n:])
	t.released = out[n-1].Index
	t.floor, t.watching = max(t.floor, t.released), true
	t.log.forget(t.released)
	return out
}

func cost(e raftlog.Entry) int64 { return int64(len(e.Data)) + entryOverhead }

// Overwritten is the first released entry that was overwritten since: what was released
// as committed was not, or the history restarted. 0: none was.
func (t *Tail) Overwritten() uint64 { return t.overwritten }

// Close releases all files. Pending entries stay.
func (t *Tail) Close() error {
	for _, s := range t.held {
		s.file.Close() //nolint:errcheck // reading
	}
	t.held = nil
	if t.folder == nil {
		return nil
	}
	return t.folder.Close()
}

// record takes one record. When it gives an error, the record was not taken and
// is read again.
func (t *Tail) record(s *segment, rec record) error {
	if rec.kind != wal.SnapshotType {
		if err := t.log.settle(); err != nil {
			return err
		}
	}
	err := t.content(s, rec)
	if err == nil || IsHole(err) || errors.Is(err, ErrNewer) || errors.Is(err, ErrReplaced) {
		return err
	}
	return &CorruptError{Dir: t.dir, Segment: s.name.String(), Offset: rec.at, Err: err}
}

func (t *Tail) content(s *segment, rec record) error {
	switch rec.kind {
	case wal.CrcType:
	case wal.MetadataType:
		id, err := parseIdentity(rec.data)
		if err != nil {
			return err
		}
		if id != t.id {
			return fmt.Errorf("%s is the log of %s, not of %s: %w", filepath.Join(t.dir, s.name.String()), id, t.id, ErrReplaced)
		}
	case wal.SnapshotType:
		m, err := parseMark(rec.data)
		if err != nil {
			return fmt.Errorf("a snapshot record: %w", err)
		}
		t.log.snapshot(m)
	case wal.StateType:
		state, err := parseState(rec.data)
		if err != nil {
			return fmt.Errorf("a hard state: %w", err)
		}
		t.log.hardState(state)
	case wal.EntryType:
		return t.entry(rec)
	default:
		return unknownKind(rec.kind)
	}
	return nil
}

func (t *Tail) entry(rec record) error {
	e, err := parseEntry(rec.data)
	if err != nil {
		return err
	}
	if err := refuseNewer(e); err != nil {
		return err
	}
	if err := t.begin(e.Index); err != nil {
		return err
	}
	if err := t.log.hole(e.Index); err != nil {
		return err
	}
	t.noteOverwrite(e.Index)
	t.log.add(e.Index, e.Term)
	t.cutPending(e.Index)
	if e.Index > t.floor {
		e.Data = bytes.Clone(e.Data)
		t.pending = append(t.pending, e)
		t.bytes += cost(e)
	}
	return nil
}

// begin reports, once, that the log begins behind the first index that is wanted.
func (t *Tail) begin(index uint64) error {
	from := t.options.From
	t.options.From = 0
	if from == 0 || index <= from {
		return nil
	}
	t.floor = index - 1
	if base := t.log.base; base.Term > 0 && base.Index == index-1 {
		return &GapError{After: from - 1, Next: index}
	}
	return &PurgedError{Want: from, First: index}
}

// noteOverwrite notices that a released entry is overwritten.
func (t *Tail) noteOverwrite(index uint64) {
	if t.watching && t.log.started && t.overwritten == 0 && index <= min(t.log.last(), t.floor) {
		t.overwritten = index
	}
}

// cutPending drops the pending entries from an index on.
func (t *Tail) cutPending(index uint64) {
	n := len(t.pending)
	for n > 0 && t.pending[n-1].Index >= index {
		n--
		t.bytes -= cost(t.pending[n])
	}
	clear(t.pending[n:])
	t.pending = t.pending[:n]
}

// IsHole reports that a log goes on behind entries that are not in it: the member
// purged them, or never had them.
func IsHole(err error) bool {
	var gap *GapError
	var purged *PurgedError
	return errors.As(err, &gap) || errors.As(err, &purged)
}

// isPathError distinguishes errors of the file system from those of what is in a file.
func isPathError(err error) bool {
	var e *fs.PathError
	return errors.As(err, &e)
}
