package digest

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"math"
	"strings"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/requorum/requorum/restore/recovery/join"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// ErrInvalid says that bytes are no digest, or no whole one, or not what was
// written. The text says what and where.
var ErrInvalid = errors.New("not a whole digest")

// FormatError says that a digest is of another format.
type FormatError struct{ Found string }

func (e *FormatError) Error() string {
	return fmt.Sprintf("the digest is of format %s, and this requorum reads format %d: use the same version of requorum on all hosts", e.Found, Format)
}

// Reader reads a digest: NewReader, then Entries to its end, then End.
type Reader struct {
	from   *bufio.Reader
	sum    hash.Hash
	offset int64
	one    [1]byte // for one record's parts, which are not allocated anew each time
	short  join.Sum
	data   bytes.Buffer
	failed error
	ended  bool
	last   []byte // the end's document
}

// NewReader reads the head. Nothing of it is proven before the end was read.
func NewReader(r io.Reader, head any) (*Reader, error) {
	d := &Reader{from: bufio.NewReaderSize(r, 64<<10), sum: sha256.New()}
	if err := d.firstLine(); err != nil {
		return nil, err
	}
	b, err := d.part("the head")
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, head); err != nil {
		return nil, d.invalid("the head: %v", err)
	}
	return d, nil
}

func (d *Reader) firstLine() error {
	got := make([]byte, len(line))
	n, err := d.read(got)
	if string(got[:n]) == line {
		return nil
	}
	if rest, ok := strings.CutPrefix(string(got[:n]), lineStart); ok && err == nil {
		number, _, _ := strings.Cut(rest, "\n")
		return &FormatError{number}
	}
	if err != nil && n < len(got) && strings.HasPrefix(line, string(got[:n])) {
		return d.failure(err, "the first line")
	}
	return d.invalid("it does not begin with %q", line)
}

// Entries yields the entries, in order. An entry's data is valid until the next
// one. The first error is the end. The one that comes last may be about the
// digest as a whole.
func (d *Reader) Entries() iter.Seq2[join.Entry, error] {
	return func(yield func(join.Entry, error) bool) {
		var e raftlog.Entry
		for !d.ended && d.failed == nil {
			next, more, err := d.next(e)
			if err != nil {
				d.failed = err
				yield(join.Entry{}, err)
				return
			}
			if !more || !yield(next, nil) {
				return
			}
			e = next.Entry
		}
	}
}

// next reads one record; none is left where it was the end's.
func (d *Reader) next(before raftlog.Entry) (join.Entry, bool, error) {
	var none join.Entry
	kind, err := d.byte()
	switch {
	case err != nil:
		return none, false, d.failure(err, "an entry")
	case kind == typeEnd:
		return none, false, d.finish()
	case kind&unknownBits != 0 || kind&typeBits == typeEnd || kind&wholeBit != 0 && kind&movesBit != 0 || kind&wholeBit == 0 && typeOf(kind) != raftpb.EntryNormal:
		return none, false, d.invalid("a record that begins with %#02x is not known", kind)
	}
	e := join.Entry{Outline: kind&wholeBit == 0, Moves: kind&movesBit != 0}
	e.Index, e.Term, e.Type = before.Index+1, before.Term, typeOf(kind)
	if kind&skipBit != 0 {
		step, err := d.number("an index")
		if err != nil {
			return none, false, err
		}
		if step < 2 || step > math.MaxUint64-before.Index {
			return none, false, d.invalid("raft index %d is not followed by one that is %d further", before.Index, step)
		}
		e.Index = before.Index + step
	}
	if kind&termBit != 0 {
		if e.Term, err = d.number("a term"); err != nil {
			return none, false, err
		}
	}
	if e.Index == 0 { // the number before it was the highest
		return none, false, d.invalid("raft indexes end with %d", before.Index)
	}
	if e.Outline {
		if _, err := d.read(d.short[:]); err != nil {
			return none, false, d.failure(err, e.String())
		}
		e.Sum = d.short
		return e, true, nil
	}
	e.Data, err = d.part(e.String())
	if len(e.Data) == 0 {
		e.Data = nil
	}
	return e, err == nil, err
}

// finish reads what is behind the entries.
func (d *Reader) finish() error {
	b, err := d.part("the end")
	if err != nil {
		return err
	}
	d.last = bytes.Clone(b)
	want := d.sum.Sum(nil)
	got := make([]byte, len(want))
	if _, err := d.read(got); err != nil {
		return d.failure(err, "the sum")
	}
	if !bytes.Equal(got, want) {
		return d.invalid("its sum is %x, and it says %x: it was altered on its way", want, got)
	}
	switch _, err := d.byte(); {
	case err == nil:
		return d.invalid("something follows its end")
	case !errors.Is(err, io.EOF):
		return d.failure(err, "what follows its end")
	}
	d.ended = true
	return nil
}

// End gives the end's document, once all entries were read: what came with them is
// what was written then.
func (d *Reader) End(end any) error {
	switch {
	case d.failed != nil:
		return d.failed
	case !d.ended:
		return errors.New("the digest was not read to its end")
	}
	if err := json.Unmarshal(d.last, end); err != nil {
		return d.invalid("the end: %v", err)
	}
	return nil
}

func (d *Reader) read(b []byte) (int, error) {
	n, err := io.ReadFull(d.from, b)
	d.sum.Write(b[:n])
	d.offset += int64(n)
	return n, err
}

func (d *Reader) byte() (byte, error) {
	b, err := d.from.ReadByte()
	if err != nil {
		return 0, err
	}
	d.one[0] = b
	d.sum.Write(d.one[:])
	d.offset++
	return b, nil
}

// number reads an unsigned varint, in the one form that is written.
func (d *Reader) number(what string) (uint64, error) {
	var raw [binary.MaxVarintLen64]byte
	for i := range raw {
		b, err := d.byte()
		if err != nil {
			return 0, d.failure(err, what)
		}
		raw[i] = b
		if b < 0x80 {
			x, n := binary.Uvarint(raw[:i+1])
			if n != i+1 || i > 0 && b == 0 {
				break
			}
			return x, nil
		}
	}
	return 0, d.invalid("%s is not a number", what)
}

// part reads bytes behind their length. They are valid until the next part.
func (d *Reader) part(what string) ([]byte, error) {
	n, err := d.number("the length of " + what)
	if err != nil {
		return nil, err
	}
	if n > MaxPart {
		return nil, d.invalid("%s has %d bytes, at most %d are possible", what, n, MaxPart)
	}
	d.data.Reset()
	got, err := io.CopyN(&d.data, d.from, int64(n)) // grows with what comes
	d.sum.Write(d.data.Bytes())
	d.offset += got
	if err != nil {
		return nil, d.failure(err, what)
	}
	return d.data.Bytes(), nil
}

func (d *Reader) invalid(format string, args ...any) error {
	return fmt.Errorf("%w: at byte %d: %s", ErrInvalid, d.offset, fmt.Sprintf(format, args...))
}

// failure tells the end of the bytes from what kept them from being read.
func (d *Reader) failure(err error, what string) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return d.invalid("it ends in %s: it was cut off", what)
	}
	return err
}
