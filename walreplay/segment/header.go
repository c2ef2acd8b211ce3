package segment

import (
	"errors"
	"fmt"
	"time"

	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
)

const (
	headerFormat = 1
	// KindLog is the kind of a log segment's header.
	KindLog = "log"
)

// Bounds of a segment, in raw bytes.
const (
	// MaxRaw is where a writer should cut a segment at the latest: what one
	// takes in memory, since its header needs its sums before its body is sent.
	MaxRaw = 16 << 20
	// rawLimit is what Encode and readers refuse to go beyond. Between the two
	// is room for one entry of any size that etcd can be configured to take.
	rawLimit = 256 << 20
	// maxFrameSize bounds what a reader allocates on a header's word.
	maxFrameSize = 4 << 20
)

// Header describes a segment. It stands before the body and outside the
// encryption, so that a writer without an identity can go on from it; it
// commits to the entries through the chain and the sums. docs/format.md has
// every field.
type Header struct {
	Format   int                   `json:"format"`
	Kind     string                `json:"kind"` // "log"
	Timeline repository.TimelineID `json:"timeline"`
	Level    int                   `json:"level"` // 0: by an archiver; above: merged

	FirstIndex uint64 `json:"first_index"`
	FirstTerm  uint64 `json:"first_term"`
	LastIndex  uint64 `json:"last_index"`
	LastTerm   uint64 `json:"last_term"`

	// Before is the chain's value before the first entry, After that of the
	// last one. With Anchor the chain begins anew here, and Before is zero.
	Before raftlog.Sum `json:"before"`
	After  raftlog.Sum `json:"after"`
	// Anchor: before this segment is a gap or nothing, as far as its writer
	// knew.
	Anchor bool `json:"anchor,omitempty"`

	// Revision is the highest one known to be reached at or before LastIndex;
	// 0 where none is known.
	Revision int64 `json:"revision,omitempty"`

	Entries   int       `json:"entries"`
	Marks     int       `json:"marks"`
	FirstMark time.Time `json:"first_mark,omitzero"` // the earliest time of a mark
	LastMark  time.Time `json:"last_mark,omitzero"`  // the latest

	Member snapshot.ID `json:"member_id"` // whose WAL it was read from
	Cut    time.Time   `json:"cut"`       // when, by the writer's clock
	Tool   string      `json:"tool"`      // "requorum 1.2.3"

	// Object describes the body, behind the first HeaderSize bytes. It names no
	// recipients.
	Object codec.Encoding `json:"object"`
}

// Name is the object's name, given by the header's fields alone.
func (h Header) Name() string { return h.name().String() }

func (h Header) name() repository.SegmentName {
	n := repository.SegmentName{Timeline: h.Timeline, Level: h.Level, First: h.FirstIndex}
	if h.Level > 0 {
		n.Last = h.LastIndex
	}
	return n
}

// Size is the size of the whole object in bytes.
func (h Header) Size() int64 { return HeaderSize + h.Object.StoredSize }

// Holds tells whether the segment has the entry at index.
func (h Header) Holds(index uint64) bool { return h.FirstIndex <= index && index <= h.LastIndex }

// validate refuses a header that Encode does not write, so that readers can
// rely on its bounds.
func (h Header) validate() error {
	switch {
	case h.Format != headerFormat || h.Kind != KindLog:
		return fmt.Errorf("%w: kind %q, format %d; this one reads kind %q, format %d", snapshot.ErrNewerFormat, h.Kind, h.Format, KindLog, headerFormat)
	case h.Timeline.N < 1:
		return errors.New("it names no timeline")
	case h.Level < 0 || h.Level > repository.MaxLevel:
		return fmt.Errorf("level %d is not within 0 and %d", h.Level, repository.MaxLevel)
	case h.FirstIndex < 1 || h.LastIndex < h.FirstIndex || h.FirstTerm > h.LastTerm:
		return fmt.Errorf("entries from index %d, term %d to index %d, term %d", h.FirstIndex, h.FirstTerm, h.LastIndex, h.LastTerm)
	case h.Entries < 1 || uint64(h.Entries-1) != h.LastIndex-h.FirstIndex:
		return fmt.Errorf("%d entries from index %d to %d", h.Entries, h.FirstIndex, h.LastIndex)
	case h.Anchor != (h.Before == raftlog.Sum{}):
		return errors.New("a chain that begins and has a value before, or neither")
	case h.Marks < 0 || h.FirstMark.IsZero() != (h.Marks == 0) || h.LastMark.Before(h.FirstMark):
		return fmt.Errorf("%d marks from %s to %s", h.Marks, h.FirstMark, h.LastMark)
	case h.Revision < 0:
		return fmt.Errorf("revision %d", h.Revision)
	case h.Object.RawSize > rawLimit:
		return fmt.Errorf("%d raw bytes, more than the %d that a segment can have", h.Object.RawSize, rawLimit)
	case h.Object.FrameSize > maxFrameSize:
		return fmt.Errorf("frames of %d bytes, more than the %d that a segment's can have", h.Object.FrameSize, maxFrameSize)
	}
	return h.Object.Validate()
}
