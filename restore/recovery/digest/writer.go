package digest

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
	"io"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/requorum/requorum/restore/recovery/join"
)

// Writer writes a digest: NewWriter, Add for each entry, End. One that was not
// ended is refused by every reader.
type Writer struct {
	to          *bufio.Writer
	sum         hash.Hash
	buf         []byte
	index, term uint64 // of the entry before
}

// NewWriter writes the head.
func NewWriter(w io.Writer, head any) (*Writer, error) {
	d := &Writer{sum: sha256.New(), to: bufio.NewWriterSize(w, 64<<10)}
	d.write([]byte(line))
	if err := d.document(head); err != nil {
		return nil, err
	}
	return d, nil
}

// write feeds both. A bufio.Writer keeps its first error for Flush.
func (d *Writer) write(b []byte) {
	d.sum.Write(b)
	_, _ = d.to.Write(b)
}

func (d *Writer) document(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(b) > MaxPart {
		return fmt.Errorf("a document of a digest has %d bytes, at most %d are possible", len(b), MaxPart)
	}
	d.write(binary.AppendUvarint(nil, uint64(len(b))))
	d.write(b)
	return nil
}

// Add writes the next entry: whole, or where it is an outline, its sum.
func (d *Writer) Add(e join.Entry) error {
	kind := byte(e.Type)
	switch {
	case e.Type < 0 || e.Type >= typeEnd:
		return fmt.Errorf("%s has type %d, which a digest cannot hold", e, e.Type)
	case e.Outline && e.Type != raftpb.EntryNormal:
		return fmt.Errorf("%s is about members, and has to be in a digest as a whole", e)
	case e.Index <= d.index:
		return fmt.Errorf("%s comes after the one with index %d", e, d.index)
	case len(e.Data) > MaxPart:
		return fmt.Errorf("%s has %d bytes, and a digest holds %d of one entry at most", e, len(e.Data), MaxPart)
	}
	if !e.Outline {
		kind |= wholeBit
	} else if e.Moves {
		kind |= movesBit
	}
	if e.Index != d.index+1 {
		kind |= skipBit
	}
	if e.Term != d.term {
		kind |= termBit
	}
	d.buf = append(d.buf[:0], kind)
	if kind&skipBit != 0 {
		d.buf = binary.AppendUvarint(d.buf, e.Index-d.index)
	}
	if kind&termBit != 0 {
		d.buf = binary.AppendUvarint(d.buf, e.Term)
	}
	if e.Outline {
		d.buf = append(d.buf, e.Sum[:]...)
	} else {
		d.buf = binary.AppendUvarint(d.buf, uint64(len(e.Data)))
		d.buf = append(d.buf, e.Data...)
	}
	d.write(d.buf)
	d.index, d.term = e.Index, e.Term
	return nil
}

// Flush hands on what was written so far: to learn early that nobody takes it.
func (d *Writer) Flush() error { return d.to.Flush() }

// End writes the end, and the sum.
func (d *Writer) End(end any) error {
	d.write([]byte{typeEnd})
	if err := d.document(end); err != nil {
		return err
	}
	d.write(d.sum.Sum(nil))
	return d.to.Flush()
}
