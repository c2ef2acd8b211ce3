package walfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/requorum/requorum/snapshot/boltfile"
)

const (
	// sectorSize is what etcd takes a disk to write at once.
	sectorSize = 512
	// frameHead is the length before each record: 8 bytes.
	frameHead = 8
	// window is how far behind an unreadable record others are looked for: ten
	// times the default limit of a request.
	window = 16 << 20
)

// finding is what stands in the newest segment where no record can be read.
type finding struct {
	nothing bool // zeros to the end of the file: space that etcd allocates ahead
	// torn: it looks as a write does that a crash cut off. Sectors are zero that
	// belong to the record, or the file ends in it.
	torn bool
	// follows: there are records behind it.
	follows bool
	// synced: etcd had begun to write those only after everything before them was
	// on the disk. A crash can't explain that.
	synced bool
	// misframed: the record is all there, but its length is wrong; or that of the
	// one before is, so that this one begins between etcd's steps of 8 bytes.
	misframed bool
}

// damaged says that no crash of the member or of its machine left it like that.
func (f finding) damaged() bool { return !f.nothing && (!f.torn || f.synced || f.misframed) }

// examine looks at what begins at an offset where no record can be read, and to
// which the chain had come to sum. Bytes beyond window are not looked at.
func examine(file io.ReaderAt, at, size int64, sum uint32) (finding, error) {
	end, err := lastByte(file, at, size)
	if err != nil || end == at {
		return finding{nothing: true}, err
	}
	b := make([]byte, min(size-at, max(window, frameHead), end-at+2*sectorSize))
	if n, err := file.ReadAt(b, at); err != nil && !errors.Is(err, io.EOF) {
		return finding{}, err
	} else if b = b[:n]; n < frameHead {
		return finding{torn: true}, nil
	}
	var f finding
	length, padding := frameLength(b)
	switch until := int64(frameHead) + length + padding; {
	case length == 0, until > size-at:
		f.torn = true
	default:
		// The record's last words are zeros, and so is all behind it: it was not
		// written to its end.
		f.torn = zeroSector(b[:min(until, int64(len(b)))], at) || end-at <= until-padding-8
	}
	if r, n := parseBody(b[frameHead:]); n > 0 && r.data != nil {
		f.misframed = int64(n) != length && crc32.Update(sum, castagnoli, r.data) == r.crc
	}
	f.misframed = f.misframed || at%8 != 0
	f.lookBehind(b[-at&7:])
	return f, nil
}

// zeros are compared with at once: a segment may end with 64 MB of them.
var zeros [4096]byte

// lastByte is the offset behind the last byte that is not zero, from on.
func lastByte(file io.ReaderAt, from, size int64) (int64, error) {
	buf := make([]byte, bufferSize)
	for size > from {
		b := buf[:min(size-from, int64(len(buf)))]
		n, err := file.ReadAt(b, size-int64(len(b)))
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		for i := n; i > 0; {
			if i >= len(zeros) && bytes.Equal(b[i-len(zeros):i], zeros[:]) {
				i -= len(zeros)
				continue
			}
			if b[i-1] != 0 {
				return size - int64(len(b)) + int64(i), nil
			}
			i--
		}
		size -= int64(len(b))
	}
	return from, nil
}

// frameLength takes a frame's first 8 bytes apart: the lower 56 bits are the
// record's length; the highest bit says that there is padding, and the three
// lowest of that byte how much.
func frameLength(b []byte) (length, padding int64) {
	word := binary.LittleEndian.Uint64(b)
	if word>>63 == 1 {
		padding = int64(word >> 56 & 7)
	}
	return int64(word & (1<<56 - 1)), padding
}

// zeroSector reports whether a sector's share of a frame that begins at offset at
// is all zeros.
func zeroSector(frame []byte, at int64) bool {
	at += frameHead
	for rest := frame[frameHead:]; len(rest) > 0; {
		n := min(int64(len(rest)), sectorSize-at%sectorSize)
		zero := true
		for _, v := range rest[:n] {
			zero = zero && v == 0
		}
		if zero {
			return true
		}
		rest, at = rest[n:], at+n
	}
	return false
}

// lookBehind looks for records behind the first head of a frame. One alone proves
// nothing, since the CRC before it is not known; two in a row do.
func (f *finding) lookBehind(b []byte) {
	budget := 4 * window // bytes to compute CRCs of, whatever the bytes say
	for at := frameHead; at < len(b) && budget > 0 && !f.synced; {
		first, ok := parseFrame(b[at:])
		if !ok {
			at += 8
			continue
		}
		var order batches
		order.add(first.kind)
		last, next := first, at+first.size
		for next < len(b) && budget > 0 {
			r, ok := parseFrame(b[next:])
			if !ok {
				break
			}
			budget -= len(r.data) + 1
			if r.kind != wal.CrcType && crc32.Update(last.crc, castagnoli, r.data) != r.crc {
				break
			}
			order.add(r.kind)
			f.follows = true
			last, next = r, next+r.size
		}
		f.synced = f.synced || order.synced
		if next == at+first.size {
			next = at + 8 // it was none
		}
		at = next
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frame is a record that has the form of one.
type frame struct {
	kind int64
	crc  uint32
	data []byte
	size int
}

// parseFrame takes what etcd writes: type, CRC and data in this order, padded to
// 8 bytes.
func parseFrame(b []byte) (frame, bool) {
	if len(b) < frameHead {
		return frame{}, false
	}
	length, padding := frameLength(b)
	if length == 0 || length > int64(len(b)-frameHead) || (length+padding)%8 != 0 || length+padding > int64(len(b)-frameHead) {
		return frame{}, false
	}
	f, n := parseBody(b[frameHead : frameHead+length])
	f.size = frameHead + int(length+padding)
	return f, n == int(length)
}

// parseBody takes the record itself, and reports its length, 0 when it is none.
func parseBody(b []byte) (f frame, length int) {
	rest := b
	var number [2]uint64
	for i := range number {
		field, n := boltfile.ConsumeField(rest)
		if n < 0 || field.Number != protowire.Number(i+1) || field.Kind != protowire.VarintType {
			return f, 0
		}
		number[i], rest = field.Varint, rest[n:]
	}
	f.kind, f.crc = int64(number[0]), uint32(number[1])
	if f.kind < wal.MetadataType || f.kind > wal.SnapshotType || number[1] > math.MaxUint32 {
		return f, 0
	}
	if f.kind == wal.CrcType {
		return f, len(b) - len(rest)
	}
	data, n := boltfile.ConsumeField(rest)
	if n < 0 || data.Number != 3 || data.Kind != protowire.BytesType {
		return f, 0
	}
	f.data = data.Bytes
	return f, len(b) - len(rest) + n
}

// batches finds from the order of records what must have been synced. etcd
// writes entries and then a hard state, syncs, and only then begins with the
// next entries; it syncs after each snapshot record.
type batches struct {
	entry, state, snapshot, synced bool
}

func (o *batches) add(kind int64) {
	if o.snapshot || o.state && kind == wal.EntryType {
		o.synced = true
	}
	switch kind {
	case wal.EntryType:
		o.entry = true
	case wal.StateType:
		o.state = o.entry
	case wal.SnapshotType:
		o.snapshot = true
	}
}
