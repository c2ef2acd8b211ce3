package walreplay

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// Base is a database image that a replay can begin from.
type Base struct {
	// Name is how messages call it, ID what names it in a Recipe: a backup's ID,
	// a file's path, or empty for the empty database before the first entry.
	Name, ID string
	// Image is nil for the empty database.
	Image snapshot.Image
	Facts snapshot.Facts
	Taken time.Time // when the cluster had that state: when the image was read; zero where it is not known
	// Manifest is that of a stored backup, nil otherwise.
	Manifest *snapshot.Manifest
}

// Index is that of the last entry that the image holds.
func (b *Base) Index() uint64 { return b.Facts.RaftIndex }

func (b *Base) near() *Near {
	n := &Near{Index: b.Index(), Revision: b.Facts.Revision, Backup: b.Name}
	if !b.Taken.IsZero() {
		n.Time = instant(b.Taken)
	}
	return n
}

// stretch is a part of a log without a hole.
type stretch struct {
	First, Last uint64
	Revision    int64 // known to be reached at Last; 0 where none is
	Until       time.Time
}

// entryLog is where entries come from: the archive, a member's WAL, or several
// of them.
type entryLog interface {
	stretches() []stretch // in order, with holes between them
	// entries yields the entries from first to last in order. The first error is
	// the end.
	entries(ctx context.Context, first, last uint64) iter.Seq2[raftlog.Entry, error]
	// size is about how many bytes the entries from first to last have.
	size(first, last uint64) int64
}

// History is one history of a cluster: images and the log between and after
// them.
type History struct {
	// Name is how messages call it.
	Name string
	// Timeline is zero for a member's data directory. Of a joined history it is that
	// of the backup which it begins from, zero where it begins from another image.
	Timeline repository.TimelineID

	bases []*Base // by index
	log   entryLog
	clock clock // nil: nothing tells the time
	// chainAt is the archive's chain value at an index; nil where there is none.
	chainAt func(ctx context.Context, index uint64) (raftlog.Sum, error)
	// member is the data directory, nil for an archive.
	member *member
}

// Bases are the images, by index.
func (h *History) Bases() []*Base { return slices.Clone(h.bases) }

// base finds an image by its ID.
func (h *History) base(id string) (*Base, error) {
	for _, b := range h.bases {
		if b.ID == id {
			return b, nil
		}
	}
	return nil, fmt.Errorf("%w: %s has no full snapshot %s", snapshot.ErrNoBackup, h.Name, id)
}

// after is the stretch of the log that goes on from b, nil where none does.
func (h *History) after(b *Base) *stretch {
	for _, s := range h.log.stretches() {
		if s.First <= b.Index()+1 && b.Index()+1 <= s.Last {
			return &s
		}
	}
	return nil
}

// Encrypted tells whether any part of the log that holds entries from first to
// last is encrypted.
func (h *History) Encrypted(first, last uint64) bool {
	l, ok := h.log.(interface{ encrypted(first, last uint64) bool })
	return ok && l.encrypted(first, last)
}

// Reach is the last index that can be replayed to from b.
func (h *History) Reach(b *Base) uint64 {
	if s := h.after(b); s != nil {
		return s.Last
	}
	return b.Index()
}

// end is the furthest recoverable point, and the newest image before it.
func (h *History) end() (b *Base, last uint64) {
	for _, next := range h.bases {
		if reach := h.Reach(next); b == nil || reach >= last {
			b, last = next, reach
		}
	}
	return b, last
}

// newest is the newest image that passes, or nil.
func (h *History) newest(pass func(*Base) bool) *Base {
	for _, b := range slices.Backward(h.bases) {
		if pass(b) {
			return b
		}
	}
	return nil
}

// around are the nearest recoverable points on both sides of a raft index that
// is not recoverable itself.
func (h *History) around(index uint64) (before, after *Near) {
	var last uint64
	for _, b := range h.bases {
		if b.Index() > index {
			return before, b.near()
		}
		if reach := h.Reach(b); reach >= last && reach < index {
			last = reach
			before = h.nearReach(b)
		}
	}
	return before, nil
}

// nearReach is the end of what can be replayed from b.
func (h *History) nearReach(b *Base) *Near {
	s := h.after(b)
	if s == nil {
		return b.near()
	}
	n := &Near{Index: s.Last, Revision: max(s.Revision, b.Facts.Revision), AtLeast: true}
	if !s.Until.IsZero() {
		n.Time = instant(s.Until)
	}
	return n
}

// HighestRevision is the highest one that an image or the log is known to have
// reached; 0 where nothing is known.
func (h *History) HighestRevision() int64 {
	var highest int64
	for _, b := range h.bases {
		highest = max(highest, b.Facts.Revision)
	}
	for _, s := range h.log.stretches() {
		highest = max(highest, s.Revision)
	}
	return highest
}
