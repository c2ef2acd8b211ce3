package codec

import (
	"bufio"
	"errors"
	"fmt"
	"io"
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
		if err := grow(4); err != nil {
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

// newDecoder returns a decoder for DecodeAll whose memory no frame can drive
// above frameSize for each worker.
func newDecoder(frameSize, workers int) (*zstd.Decoder, error) {
	d, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(workers),
		zstd.WithDecoderMaxMemory(uint64(frameSize)),
		zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, fmt.Errorf("start zstd: %w", err)
	}
	return d, nil
}

// decodeFrame decompresses one frame into dst, which it may replace by a
// slice of size bytes.
func decodeFrame(d *zstd.Decoder, frame, dst []byte, size int) ([]byte, error) {
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
