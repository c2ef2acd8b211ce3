package segment

import (
	"bytes"
	"encoding/binary"
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
	// Merged segments reach it; the archiver's end at archive.MaxSize.
	MaxRaw = 16 << 20
	// rawLimit is what Encode and readers refuse to go beyond. Between the two
	// is room for one entry of any size that an etcd takes in practice: it warns of
	// requests above 10 MiB.
	rawLimit = 64 << 20
	// maxEntries and maxMarks are what MaxRaw has room for. Beyond that a body may
	// have one large entry, not many small ones: these take many times their bytes.
	maxEntries = MaxRaw / minRecord
	maxMarks   = MaxRaw / 64
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
	// last one. With ChainStart the chain begins anew here, and Before is zero.
	Before raftlog.Sum `json:"before"`
	After  raftlog.Sum `json:"after"`
	// ChainStart: before this segment is a gap or nothing, as far as its writer
	// knew.
	ChainStart bool `json:"chain_start,omitempty"`

	// Unjoined, above level 0 only: what ends right before it is of another chain. Its
	// name says so as that of a chain start does.
	Unjoined bool `json:"unjoined,omitempty"`

	// Previous is the first index of the segment that ends right before this one,
	// as far as its writer knew, and part of the name at level 0; 0 where none
	// does, and where the chain begins anew.
	Previous uint64 `json:"previous_index,omitempty"`

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
		n.Last, n.Start = h.LastIndex, h.ChainStart || h.Unjoined
	} else {
		n.Previous = h.Previous
	}
	return n
}

// Size is the size of the whole object in bytes.
func (h Header) Size() int64 { return HeaderSize + h.Object.StoredSize }

// Holds reports whether the segment has the entry at index.
func (h Header) Holds(index uint64) bool { return h.FirstIndex <= index && index <= h.LastIndex }

// validate refuses a header that Encode does not write, so that readers can
// rely on its bounds.
func (h Header) validate() error {
	switch {
	case h.Format < headerFormat || h.Format == headerFormat && h.Kind != KindLog:
		return fmt.Errorf("kind %q, format %d, which no version writes", h.Kind, h.Format)
	case h.Format != headerFormat:
		return fmt.Errorf("%w: kind %q, format %d; this one reads kind %q, format %d", snapshot.ErrNewerFormat, h.Kind, h.Format, KindLog, headerFormat)
	case h.Timeline.N < 1:
		return errors.New("it names no timeline")
	case h.Level < 0 || h.Level > repository.MaxLevel:
		return fmt.Errorf("level %d is not within 0 and %d", h.Level, repository.MaxLevel)
	case h.FirstIndex < 1 || h.LastIndex < h.FirstIndex || h.FirstTerm > h.LastTerm:
		return fmt.Errorf("entries from index %d, term %d to index %d, term %d", h.FirstIndex, h.FirstTerm, h.LastIndex, h.LastTerm)
	case h.Entries < 1 || uint64(h.Entries-1) != h.LastIndex-h.FirstIndex:
		return fmt.Errorf("%d entries from index %d to %d", h.Entries, h.FirstIndex, h.LastIndex)
	case h.ChainStart != (h.Before == raftlog.Sum{}):
		return errors.New("a chain that begins and has a value before, or neither")
	case h.Unjoined && h.Level == 0:
		return errors.New("level 0, and another chain ends right before it")
	case h.Previous >= h.FirstIndex:
		return fmt.Errorf("entries from index %d, after a segment from index %d", h.FirstIndex, h.Previous)
	case h.Marks < 0 || h.FirstMark.IsZero() != (h.Marks == 0) || h.LastMark.Before(h.FirstMark):
		return fmt.Errorf("%d marks from %s to %s", h.Marks, h.FirstMark, h.LastMark)
	case h.Entries > maxEntries || h.Marks > maxMarks:
		return fmt.Errorf("%d entries and %d marks, more than the %d and %d that a segment can have", h.Entries, h.Marks, maxEntries, maxMarks)
	case h.Revision < 0:
		return fmt.Errorf("revision %d", h.Revision)
	case h.Object.RawSize > rawLimit:
		return fmt.Errorf("%d raw bytes, more than the %d that a segment can have", h.Object.RawSize, rawLimit)
	}
	return h.Object.Validate()
}

// HeaderSize is the size in bytes of the header block that every segment
// begins with, whatever it says: one small read gets it, and by hand it can be
// cut off without being understood.
const HeaderSize = 2048

// The block is a skippable frame of zstd (RFC 8878, section 3.1.2): a magic
// number and the size of what follows, both little-endian.
const (
	blockMagic     = 0x184D2A5A
	blockFrameHead = 8
)

// errHeader says that a header block is not as it was written.
var errHeader = errors.New("the header block is not as it was written")

// block writes the header block, unsigned.
func (h Header) block() ([]byte, error) { return h.blockOf(repository.Seal(h)) }

func (h Header) blockOf(doc []byte, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	if len(doc) > HeaderSize-blockFrameHead {
		return nil, fmt.Errorf("the header takes %d bytes, more than the %d that it has: is the name of the tool, %d bytes, too long?", len(doc), HeaderSize-blockFrameHead, len(h.Tool))
	}
	b := make([]byte, 0, HeaderSize)
	b = binary.LittleEndian.AppendUint32(b, blockMagic)
	b = binary.LittleEndian.AppendUint32(b, HeaderSize-blockFrameHead)
	b = append(b, doc...)
	return append(b, bytes.Repeat([]byte{' '}, HeaderSize-len(b))...), nil
}

// parseBlock reads what block wrote. Every byte counts: the frame's head and
// the padding are fixed, the document carries its own sum. With a repository the
// document has to be one of its own, under that name.
func parseBlock(b []byte, repo *repository.Repository, name string) (Header, error) {
	if len(b) < HeaderSize {
		return Header{}, fmt.Errorf("%w: the object ends after %d bytes", errHeader, len(b))
	}
	if binary.LittleEndian.Uint32(b) != blockMagic || binary.LittleEndian.Uint32(b[4:]) != HeaderSize-blockFrameHead {
		return Header{}, fmt.Errorf("%w: it does not begin with the head of its frame", errHeader)
	}
	var h Header
	doc := bytes.TrimRight(b[blockFrameHead:HeaderSize], " ")
	var err error
	if repo == nil {
		err = repository.Unseal(doc, &h)
	} else {
		err = repo.Unseal(name, doc, &h)
	}
	if err != nil {
		return Header{}, fmt.Errorf("%w: %w", errHeader, err)
	}
	return h, h.validate()
}
