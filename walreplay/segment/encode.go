package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// Batch is what a segment holds.
type Batch struct {
	// Entries follow each other without a hole; their terms never fall.
	Entries []raftlog.Entry
	// Marks are of entries in the batch, with these entries' terms, or of the
	// one before it: that the cluster was still there just before the first.
	Marks []raftlog.Mark
}

// Meta is what a header says that the batch does not.
type Meta struct {
	Revision int64       // see Header.Revision
	Member   snapshot.ID // see Header.Member
	Cut      time.Time   // see Header.Cut
	Previous uint64      // see Header.Previous
	Unjoined bool        // see Header.Unjoined
}

// Options say how to store a segment. The zero value is good, but for Tool.
type Options struct {
	Codec codec.Options // FrameSize 0: as the segment's size asks for, 4 MiB at most
	Tool  string        // such as "requorum 1.2.3"
	Level int           // 0 for what an archiver writes
}

// Encode makes a segment's object in memory: its header and all its bytes, to
// be stored by Put. before is the chain's value before the first entry; with
// chainStart the chain begins anew and before is zero.
//
// It fails where the batch is not one: no entries, holes, falling terms, marks
// of entries that are not in it, or more than 64 MiB. The batch is not kept,
// and its marks are not reordered in place.
func Encode(ctx context.Context, t repository.TimelineID, before raftlog.Sum, chainStart bool, b Batch, meta Meta, o Options) (Header, []byte, error) {
	if len(b.Entries) == 0 {
		return Header{}, nil, errors.New("a log segment needs an entry")
	}
	b.Marks = sorted(b.Marks)
	first, last := b.Entries[0], b.Entries[len(b.Entries)-1]
	h := Header{
		Format: headerFormat, Kind: KindLog, Timeline: t, Level: o.Level,
		FirstIndex: first.Index, FirstTerm: first.Term, LastIndex: last.Index, LastTerm: last.Term,
		Before: before, ChainStart: chainStart, Unjoined: meta.Unjoined, Previous: meta.Previous,
		Revision: meta.Revision, Entries: len(b.Entries), Marks: len(b.Marks),
		Member: meta.Member, Cut: meta.Cut.UTC(), Tool: o.Tool,
	}
	h.FirstMark, h.LastMark = timesOf(b.Marks)
	after, err := chain(h, b)
	if err != nil {
		return Header{}, nil, fmt.Errorf("encode segment %s: %w", h.Name(), err)
	}
	h.After = after

	raw, err := records(b)
	if err != nil {
		return Header{}, nil, fmt.Errorf("encode segment %s: %w", h.Name(), err)
	}
	body, err := encodeBody(ctx, raw, o.Codec, &h.Object)
	if err == nil {
		err = h.validate()
	}
	if err != nil {
		return Header{}, nil, fmt.Errorf("encode segment %s: %w", h.Name(), err)
	}
	block, err := h.block()
	if err != nil {
		return Header{}, nil, fmt.Errorf("encode segment %s: %w", h.Name(), err)
	}
	return h, append(block, body...), nil
}

func encodeBody(ctx context.Context, raw []byte, o codec.Options, e *codec.Encoding) ([]byte, error) {
	if o.FrameSize == 0 {
		// Small segments are the rule: a frame of the default size for each would
		// mostly take memory.
		o.FrameSize = min(codec.DefaultFrameSize, max(64<<10, 1<<bits.Len(uint(max(1, len(raw))-1))))
	}
	if o.Workers == 0 && len(raw) <= o.FrameSize {
		o.Workers = 1
	}
	var body bytes.Buffer
	w, err := codec.NewWriter(ctx, &body, o)
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	if _, err := w.Write(raw); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	*e = w.Description()
	// Who can read it is no business of those who can only list it, and many
	// recipients would not fit the block.
	e.Recipients = nil
	return body.Bytes(), nil
}

// Put stores what Encode made, if its name is still free; sinks.ErrExists
// says that another writer was first. Where the repository has a key the header is signed,
// and by its chain all that comes before. Merged segments are locked where the
// sink is configured to lock; the others are too many, and short-lived.
func Put(ctx context.Context, repo *repository.Repository, h Header, object []byte) error {
	block, err := h.blockOf(repo.Seal(h.Name(), h))
	if err != nil {
		return fmt.Errorf("sign segment %s: %w", h.Name(), err)
	}
	object = append(block, object[HeaderSize:]...)
	_, err = sinks.Put(ctx, repo.Sink(), h.Name(), object, sinks.CreateOptions{Lock: repository.Locked(h.Name()), ContentType: "application/octet-stream"})
	return err
}
