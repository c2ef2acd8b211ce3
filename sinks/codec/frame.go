package codec

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"

	"github.com/klauspost/compress/zstd"
)

// readFrame reads one zstd frame from r into buf, which it may grow up to
// limit bytes, and returns it whole and still compressed. It finds the end by
// the frame's block headers (RFC 8878, section 3.1.1), so that frames can be
// handed to several decoders without trusting a seek table.
func readFrame(r *bufio.Reader, buf []byte, limit int) ([]byte, error) {
	var header zstd.Header
	peeked, err := r.Peek(zstd.HeaderMaxSize)
	if len(peeked) == 0 {
		return nil, noEOF(err)
	}
	if decodeErr := header.Decode(peeked); decodeErr != nil {
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		return nil, fmt.Errorf("frame header: %w", noEOF(decodeErr))
	}
	if header.Skippable {
		return nil, errors.New("a skippable frame where a zstd frame should be")
	}

	buf = buf[:0]
	grow := func(n int) error {
		if len(buf)+n > limit {
			return fmt.Errorf("frame is larger than the %d bytes that its content can take", limit)
		}
		start := len(buf)
		buf = slices.Grow(buf, n)[:start+n]
		if _, err := io.ReadFull(r, buf[start:]); err != nil {
			return noEOF(err)
		}
		return nil
	}
	if err := grow(header.HeaderSize); err != nil {
		return nil, err
	}
	for last := false; !last; {
		if err := grow(3); err != nil {
			return nil, err
		}
		b := buf[len(buf)-3:]
		block := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
		last = block&1 != 0
		size := int(block >> 3)
		switch block >> 1 & 3 {
		case 1: // one byte, to be repeated size times
			size = 1
		case 3:
			return nil, errors.New("block of a reserved type")
		}
		if err := grow(size); err != nil {
			return nil, err
		}
	}
	if header.HasCheckSum {
		if err := grow(checksumSize); err != nil {
			return nil, err
		}
	}
	return buf, nil
}

// noEOF makes an end in the middle of something what it is.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// maxReading bounds the raw bytes that one reader fetches or decompresses at once,
// however many processors there are.
const maxReading = 16 << 20

// decoders is how many frames of a size are decompressed at once.
func decoders(frameSize int) int {
	return max(1, min(runtime.GOMAXPROCS(0), maxReading/frameSize))
}

// newDecoder returns a decoder for DecodeAll whose memory no frame can drive
// above frameSize for each of its workers; its window is bounded by the same.
func newDecoder(frameSize int) (*zstd.Decoder, error) {
	d, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(decoders(frameSize)),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(uint64(frameSize)),
		zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, fmt.Errorf("start zstd: %w", err)
	}
	return d, nil
}

// decodeFrame decompresses one frame into dst, which it may replace by a
// slice of size bytes, and compares the checksum that it ends with.
func decodeFrame(d *zstd.Decoder, frame, dst []byte, size int) ([]byte, error) {
	var header zstd.Header
	if header.Decode(frame) == nil && !header.HasCheckSum {
		return nil, errors.New("a frame without a checksum")
	}
	if cap(dst) < size {
		dst = make([]byte, 0, size)
	}
	raw, err := d.DecodeAll(frame, dst[:0:size])
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	if len(raw) != size {
		return nil, fmt.Errorf("frame has %d raw bytes, not %d", len(raw), size)
	}
	return raw, nil
}

// tableSize is the size of the seek table in bytes: a skippable frame's
// header, one entry of two sizes and a checksum for each frame, and a footer.
func (e Encoding) tableSize() int64 { return 8 + 12*int64(e.Frames) + 9 }

// tableBuilder gathers the seek table's entries of frames that are compressed.
type tableBuilder struct{ entries []byte }

// add appends the entry of the next frame, which has so many raw bytes.
func (b *tableBuilder) add(rawSize int, compressed []byte) {
	b.entries = binary.LittleEndian.AppendUint32(b.entries, uint32(len(compressed)))
	b.entries = binary.LittleEndian.AppendUint32(b.entries, uint32(rawSize))
	b.entries = binary.LittleEndian.AppendUint32(b.entries, checksumOf(compressed))
}

// checksumSize is that of the checksum of its raw bytes that a frame ends with. The
// seek table's is the same: the lower 32 bits of XXH64.
const checksumSize = 4

func checksumOf(compressed []byte) uint32 {
	return binary.LittleEndian.Uint32(compressed[len(compressed)-checksumSize:])
}

// finish returns the table as the skippable frame that ends the stream.
func (b *tableBuilder) finish() []byte {
	const skippable, footer, checksums = 0x184D2A5E, 0x8F92EAB1, 1 << 7
	table := binary.LittleEndian.AppendUint32(nil, skippable)
	table = binary.LittleEndian.AppendUint32(table, uint32(len(b.entries)+9))
	table = append(table, b.entries...)
	table = binary.LittleEndian.AppendUint32(table, uint32(len(b.entries)/12))
	return binary.LittleEndian.AppendUint32(append(table, checksums), footer)
}

// frame is what the seek table says of one frame.
type frame struct {
	offset   int64 // in the compressed stream
	size     int   // compressed
	checksum uint32
}

// parseTable reads a seek table and holds it against the object's description:
// frames of the described size that fill the compressed stream exactly.
// Whatever passes gives offsets inside the stream.
func parseTable(b []byte, e Encoding, compressedSize int64) ([]frame, error) {
	if int64(len(b)) != e.tableSize() {
		return nil, fmt.Errorf("seek table has %d bytes, not %d", len(b), e.tableSize())
	}
	entries := tableBuilder{b[8 : len(b)-9]}
	if !bytes.Equal(entries.finish(), b) {
		return nil, fmt.Errorf("seek table: its first 8 or last 9 bytes are not those of a table of %d frames with checksums", e.Frames)
	}
	frames, end := make([]frame, e.Frames), int64(0)
	for i := range frames {
		entry := entries.entries[12*i:]
		size, raw := int(binary.LittleEndian.Uint32(entry)), int64(binary.LittleEndian.Uint32(entry[4:]))
		if raw != int64(e.rawFrameSize(i)) {
			return nil, fmt.Errorf("seek table: frame %d has %d raw bytes, not %d", i, raw, e.rawFrameSize(i))
		}
		if size < 0 || size > maxCompressed(e.rawFrameSize(i)) {
			return nil, fmt.Errorf("seek table: frame %d has %d bytes, more than %d raw bytes can take", i, size, e.rawFrameSize(i))
		}
		frames[i] = frame{end, size, binary.LittleEndian.Uint32(entry[8:])}
		end += int64(size)
	}
	if end+int64(len(b)) != compressedSize {
		return nil, fmt.Errorf("seek table: %d bytes of frames and %d of table are not the %d of the stream", end, len(b), compressedSize)
	}
	return frames, nil
}

// maxCompressed is the most that n bytes take when they cannot be compressed:
// a frame header, a block header for each 64 KiB, a checksum; rounded up.
func maxCompressed(n int) int { return n + n>>8 + 64 }
