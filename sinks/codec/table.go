package codec

import (
	"errors"
	"fmt"

	seekable "github.com/SaveTheRbtz/zstd-seekable-format-go/pkg"
)

// tableSize is the size of the seek table in bytes: a skippable frame's
// header, one entry of two sizes and a checksum for each frame, and a footer.
func (e Encoding) tableSize() int64 { return 8 + 12*int64(e.Frames) + 9 }

// tableBuilder gathers the seek table from frames that are compressed
// already. The library's Encoder insists on compressing; this hands it the
// finished frame.
type tableBuilder struct {
	encoder *seekable.Encoder
	frame   finishedFrame
}

type finishedFrame struct{ compressed []byte }

// EncodeAll returns the finished frame, whatever it is asked to compress.
func (f *finishedFrame) EncodeAll(_, _ []byte) []byte { return f.compressed }

func newTableBuilder() (*tableBuilder, error) {
	b := &tableBuilder{}
	encoder, err := seekable.NewEncoder(&b.frame)
	if err != nil {
		return nil, fmt.Errorf("seek table: %w", err)
	}
	b.encoder = encoder
	return b, nil
}

// add appends the entry of the next frame. It keeps neither slice.
func (b *tableBuilder) add(raw, compressed []byte) error {
	b.frame.compressed = compressed
	_, err := b.encoder.Encode(raw)
	b.frame.compressed = nil
	return err
}

// finish returns the table as the skippable frame that ends the stream.
func (b *tableBuilder) finish() ([]byte, error) { return b.encoder.EndStream() }

// parseTable reads a seek table and holds it against the object's description:
// frames of the described size that fill the compressed stream exactly.
// Whatever passes gives offsets inside the stream.
func parseTable(b []byte, e Encoding, compressedSize int64) (*seekable.SeekTable, error) {
	if int64(len(b)) != e.tableSize() {
		return nil, fmt.Errorf("seek table has %d bytes, not %d", len(b), e.tableSize())
	}
	table, err := seekable.NewSeekTable(b)
	if err != nil {
		return nil, fmt.Errorf("seek table: %w", err)
	}
	if table.NumFrames() != int64(e.Frames) {
		return nil, fmt.Errorf("seek table has %d frames, not %d", table.NumFrames(), e.Frames)
	}
	if !table.HasChecksums() {
		return nil, errors.New("seek table has no checksums")
	}
	var end uint64
	for i := range e.Frames {
		entry, _ := table.EntryByID(int64(i))
		if int(entry.DecompressedSize) != e.rawFrameSize(i) {
			return nil, fmt.Errorf("seek table: frame %d has %d raw bytes, not %d", i, entry.DecompressedSize, e.rawFrameSize(i))
		}
		if int(entry.CompressedSize) > maxCompressed(e.rawFrameSize(i)) {
			return nil, fmt.Errorf("seek table: frame %d has %d bytes, more than %d raw bytes can take", i, entry.CompressedSize, e.rawFrameSize(i))
		}
		end = entry.CompressedOffset + uint64(entry.CompressedSize)
	}
	if int64(end)+int64(len(b)) != compressedSize {
		return nil, fmt.Errorf("seek table: %d bytes of frames and %d of table are not the %d of the stream", end, len(b), compressedSize)
	}
	return table, nil
}

// maxCompressed is the most that n bytes take when they cannot be compressed:
// a frame header, a block header for each 64 KiB, a checksum; rounded up.
func maxCompressed(n int) int { return n + n>>8 + 64 }
