package walfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
)

// bufferSize is how much is read at once: etcd's decoder alone asks for 4 KiB.
const bufferSize = 256 << 10

// chain is the CRC that runs through all segments. It is not known where a log
// is read from its middle, until the first record of a segment tells it.
type chain struct {
	sum   uint32
	known bool
}

// record is one record of a segment.
type record struct {
	kind    int64  // as etcd's wal package numbers them
	data    []byte // not reused: entries may point into it
	at, end int64  // offsets of its first byte, and behind its last one
	before  uint32 // the chain before it
}

// reader reads the records of one segment, from a record's beginning on. It
// stops for good at the first one that cannot be read.
type reader struct {
	decoder wal.Decoder
	base    int64 // where the decoder began
	chain   chain
	rec     walpb.Record
}

// errBroken says that a segment does not begin with the CRC that the one before
// it ended with: something between the two is missing.
var errBroken = errors.New("it does not go on where the file before it ends")

func newReader(file io.ReaderAt, from, size int64, c chain) *reader {
	section := bufio.NewReaderSize(io.NewSectionReader(file, from, max(0, size-from)), bufferSize)
	r := &reader{decoder: wal.NewDecoder(source{section, max(0, size-from)}), base: from, chain: c}
	r.decoder.UpdateCRC(c.sum)
	return r
}

// offset is the one behind the last good record.
func (r *reader) offset() int64 { return r.base + r.decoder.LastOffset() }

// next gives the next record; io.EOF at the end of the file, and where zeros
// follow. All other errors are of bytes that are no record.
func (r *reader) next() (record, error) {
	out := record{at: r.offset(), before: r.chain.sum}
	if err := r.decoder.Decode(&r.rec); err != nil {
		return out, err
	}
	out.kind, out.data, out.end = r.rec.GetType(), r.rec.GetData(), r.offset()
	if out.at == 0 && out.kind != wal.CrcType {
		return out, errors.New("the file does not begin with a CRC record")
	}
	if out.kind == wal.CrcType {
		if r.chain.known && r.rec.GetCrc() != r.chain.sum {
			return out, fmt.Errorf("%w: its CRC is %08x, that of the records before it %08x", errBroken, r.rec.GetCrc(), r.chain.sum)
		}
		r.decoder.UpdateCRC(r.rec.GetCrc())
		r.chain.known = true
	}
	r.chain.sum = r.decoder.LastCRC()
	return out, nil
}

// source is what etcd's decoder reads from: a part of a file.
type source struct {
	io.Reader
	size int64
}

// FileInfo tells the part's length.
func (s source) FileInfo() (fs.FileInfo, error) { return length{size: s.size}, nil }

// length has what the decoder asks of a FileInfo: it allocates no more for a
// record than is left of the file.
type length struct {
	fs.FileInfo
	size int64
}

// Size is the length.
func (l length) Size() int64 { return l.size }

// Name is for the decoder's messages, which explain replaces.
func (l length) Name() string { return "segment" }

// explain puts the decoder's errors in words, without its offsets, which count
// from where it began.
func explain(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("a record is cut off")
	case errors.Is(err, wal.ErrCRCMismatch):
		return wal.ErrCRCMismatch
	}
	return err
}
