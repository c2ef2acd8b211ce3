package walfile

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/requorum/requorum/snapshot/wire"
)

// bufferSize is how much is read at once.
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
	data    []byte // points into the reader's buffer
	at, end int64  // offsets of its first byte, and behind its last one
	before  uint32 // the chain before it
}

// reader reads the records of one segment, from a record's beginning on. It
// stops for good at the first one that cannot be read. What it takes for one and
// what not is as etcd's decoder has it, which takes four times as long: it copies
// each record twice.
type reader struct {
	file  io.ReaderAt
	at    int64 // behind the last good record
	size  int64 // where the file ends
	chain chain
	// keep leaves what was given as it is; otherwise it is valid until the next
	// record only.
	keep  bool
	ahead []byte // what was read of the file from at on
	block []byte // ahead is a part of it
}

// errBroken says that a segment does not begin with the CRC that the one before
// it ended with: something between the two is missing.
var errBroken = errors.New("it does not go on where the file before it ends")

func newReader(file io.ReaderAt, from, size int64, c chain) *reader {
	return &reader{file: file, at: from, size: size, chain: c}
}

// next gives the next record; io.EOF at the end of the file, and where zeros
// follow. All other errors are of bytes that are no record, or the file system's.
func (r *reader) next() (record, error) {
	out := record{at: r.at, before: r.chain.sum}
	whole, length, err := r.frame()
	if err != nil {
		return out, err
	}
	rec, err := decodeRecord(whole[frameHead : frameHead+length])
	sum := r.chain.sum
	if err == nil && rec.kind != wal.CrcType {
		if sum = crc32.Update(sum, castagnoli, rec.data); sum != rec.crc {
			err = wal.ErrCRCMismatch
		}
	}
	if err != nil {
		if zeroSector(whole, r.at) {
			err = io.ErrUnexpectedEOF
		}
		return out, err
	}
	r.at, r.ahead = r.at+int64(len(whole)), r.ahead[len(whole):]
	out.kind, out.data, out.end = rec.kind, rec.data, r.at
	if out.at == 0 && out.kind != wal.CrcType {
		return out, errors.New("the file does not begin with a CRC record")
	}
	if out.kind == wal.CrcType {
		if r.chain.known && rec.crc != sum {
			return out, fmt.Errorf("%w: its CRC is %08x, that of the records before it %08x", errBroken, rec.crc, sum)
		}
		sum = rec.crc
		r.chain.known = true
	}
	r.chain.sum = sum
	return out, nil
}

// frame reads the next frame, with head and padding, and tells how long the
// record in it is.
func (r *reader) frame() (whole []byte, length int64, err error) {
	have, err := r.fill(frameHead)
	switch {
	case err != nil:
		return nil, 0, err
	case have == 0:
		return nil, 0, io.EOF
	case have < frameHead:
		return nil, 0, io.ErrUnexpectedEOF
	}
	length, padding := frameLength(r.ahead)
	if length == 0 {
		return nil, 0, io.EOF
	}
	if length > r.size-r.at-padding-frameHead { // before so much is asked for
		return nil, 0, io.ErrUnexpectedEOF
	}
	size := int(frameHead + length + padding)
	if have, err = r.fill(size); err == nil && have < size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, 0, err
	}
	return r.ahead[:size], length, nil
}

// fill reads until n bytes are ahead, and tells how many of them there are: fewer
// where the file ends.
func (r *reader) fill(n int) (int, error) {
	if len(r.ahead) >= n {
		return n, nil
	}
	if r.keep || len(r.block) < n {
		r.block = make([]byte, max(n, bufferSize))
	}
	have := copy(r.block, r.ahead)
	from := r.at + int64(have)
	want := min(int64(len(r.block)), int64(have)+max(0, r.size-from))
	more, err := r.file.ReadAt(r.block[have:want], from)
	r.ahead = r.block[:have+more]
	if err == io.EOF {
		err = nil
	}
	return min(n, len(r.ahead)), err
}

// decodeRecord reads etcd's walpb.Record, and like protobuf takes its fields in
// any order, with others between them.
func decodeRecord(b []byte) (frame, error) {
	if f, n := parseBody(b); n == len(b) {
		return f, nil
	}
	var f frame
	err := fields(b, func(field wire.Field) error {
		switch {
		case field.Number == 1 && field.Kind == protowire.VarintType:
			f.kind = int64(field.Varint)
		case field.Number == 2 && field.Kind == protowire.VarintType:
			f.crc = uint32(field.Varint)
		case field.Number == 3 && field.Kind == protowire.BytesType:
			f.data = field.Bytes
		}
		return nil
	})
	if err != nil {
		return f, errUnparsed // not protobuf's error, which may be io.ErrUnexpectedEOF
	}
	return f, nil
}

var errUnparsed = errors.New("a record is no protobuf message")

// explain puts errors of records in words.
func explain(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("a record is cut off")
	}
	return err
}
