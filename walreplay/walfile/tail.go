package walfile

import (
	"fmt"
	"io"
	"math"
	"os"

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

// Position is between two records of a log.
type Position struct {
	Segment uint64 // sequence number
	Offset  int64
	CRC     uint32 // of the chain through all records before
}

// TailOptions say from where to read a live log, and how much to hold.
type TailOptions struct {
	From uint64 // first index wanted; 0 is the oldest there is, or the one at Resume
	// PinLimit bounds the bytes of files that the member has purged and that only
	// this Tail keeps, because it did not read them yet; 0 is the default.
	PinLimit int64
	// PendingLimit bounds the bytes of pending entries; 0 is the default. Entries
	// that the log itself does not record as committed may go beyond it, since
	// only what comes later can tell what becomes of them.
	PendingLimit int64
	// Resume is a Position of an earlier Tail. If the log is not the one that it
	// is of, Poll says ErrReplaced. If the file is gone, it counts for nothing.
	Resume *Position
}

// Overwrite tells of entries that had been released, and that the log has no
// more: what was released as committed was not, or the history restarted.
type Overwrite struct {
	Index, Last      uint64 // the released entries that are gone
	OldTerm, NewTerm uint64 // of the entry at Index; OldTerm is 0 where it is not known any more
}

// Tail reads the log of a running member. It is used by one goroutine.
type Tail struct {
	dir     string
	folder  file // open, so that its inode is not given to another
	options TailOptions
	id      Identity

	held []*segment // what is not read yet; the first is being read
	seq  uint64     // of the last one that was opened
	at   place
	was  string // the file that was read before the first of held, for messages
	end  int64  // of that

	log      resolver
	pending  []pendingEntry
	bytes    int64
	released uint64
	// floor is the highest index that is not wanted; watching tells that what is
	// at or below it had been released when the records now read were written.
	floor    uint64
	watching bool

	told        error // a hole that was told, and not gone on behind
	stuck       place // where good records stood behind bad ones at the last Poll
	overwritten []Overwrite
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
	file   file
	size   int64
	linked bool // in the directory when that was last looked at
	// hole is why segments before this one are not there; nil where none is
	// missing.
	hole error
}

type pendingEntry struct {
	raftlog.Entry
	at place
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
	folder, err := os.Open(t.dir)
	if err != nil {
		return withRight(err)
	}
	t.folder = folder
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
		if o.Resume != nil {
			first = resumed(names, o, first)
		}
		t.seq = names[first].seq
		if err = t.hold(names[first]); err == nil {
			break
		}
		if !os.IsNotExist(err) || try == tries {
			return err
		}
	}
	if o.Resume != nil && o.From == 0 {
		t.floor = math.MaxUint64 // until Resume is reached
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

// resumed is where to begin with Resume: not behind From, and not without having
// passed its position, which is compared then.
func resumed(names []name, o *TailOptions, first int) int {
	for i, n := range names {
		if n.seq == o.Resume.Segment {
			if o.From == 0 {
				return i
			}
			return min(i, first)
		}
	}
	o.Resume = nil
	return first
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

// Full tells that PendingLimit is reached, or that a hole was told and pending
// entries are before it: there is more to read after a Release.
func (t *Tail) Full() bool {
	if t.told != nil {
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
		out[i] = t.pending[i].Entry
		t.bytes -= cost(out[i])
	}
	// A copy, so that what was released does not stay in memory.
	t.pending = append([]pendingEntry(nil), t.pending[n:]...)
	t.released = out[n-1].Index
	t.floor, t.watching = max(t.floor, t.released), true
	t.log.forget(t.released)
	return out
}

func cost(e raftlog.Entry) int64 { return int64(len(e.Data)) + entryOverhead }

// Position is the one from which the pending entries would be read again, and
// what follows them.
func (t *Tail) Position() Position {
	p := t.at
	if len(t.pending) > 0 {
		p = t.pending[0].at
	}
	return Position{Segment: p.segment, Offset: p.offset, CRC: p.chain.sum}
}

// Overwritten tells of released entries that were overwritten since: an alarm.
// Only the first hundred are kept.
func (t *Tail) Overwritten() []Overwrite { return t.overwritten }

// Close lets go of all files. Pending entries stay.
func (t *Tail) Close() error {
	for _, s := range t.held {
		s.file.Close()
	}
	t.held = nil
	if t.folder == nil {
		return nil
	}
	return t.folder.Close()
}
