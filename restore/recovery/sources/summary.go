// A summary is the file in which a host says what is left of its member,
// without the data: who writes it reads the member's own log, and who reads it
// compares that log with others.
//
// # Format
//
// A summary is a line that names the format, a head, one record for each entry, in
// the order of their indexes, a byte of 3, an end, and the SHA-256 over all that
// comes before it. Head and end are JSON documents of the caller's, each behind its
// length. Numbers are unsigned varints.
//
// A record is a byte of bits, the parts that they announce, and the entry's data,
// behind its length, or in place of it the first 16 bytes of its SHA-256: data is
// there only where whoever reads it has to know what the entry says.
//
//	0x03  the type: 0 an entry like most, 1 and 2 changes of who the members are
//	0x04  the data is there; always for types 1 and 2
//	0x08  where it is not: the entry may have moved the revision
//	0x10  the index is not the next one: how much further it is than the last one
//	      (of the first record: than 0) comes behind this byte
//	0x20  the term is not the last one's (of the first record: not 0): it comes then
//
// Most records take 17 bytes. Nothing is compressed: sums cannot be.
//
// It promises:
//
//  1. Reading and writing hold one record in memory, whatever the log's length.
//  2. What was cut off, altered, or lengthened is an error, and so is another
//     version of the format. Nothing of a summary is to be used before its end was
//     read without one.
//  3. Nothing that comes from outside makes it panic, or allocate much more than
//     the bytes that came.
//
// A sum of an entry's data is no secret's keeper: who can guess the data can
// check the guess by it. A summary is as confidential as the log.

package sources

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

	"github.com/requorum/requorum/walreplay/raftlog"
)

// SummaryFormat is the number of the format that is written and read.
const SummaryFormat = 1

// line is how every summary of this format begins.
const summaryLine = "requorum summary 1\n"

// summaryLineStart is how every summary begins, of whichever format.
const summaryLineStart = "requorum summary "

// A record begins with a byte of these bits. After it come, as unsigned varints
// where their bits say so, how much further the index is than the one before, and
// the term; then the data, with its length, or the sum that stands for it.
const (
	typeBits    = 0b0000_0011 // the entry's type; typeEnd ends the entries
	wholeBit    = 0b0000_0100 // the data is here
	movesBit    = 0b0000_1000 // it may have moved the revision: of outlines only
	skipBit     = 0b0001_0000 // the index is not the next one
	termBit     = 0b0010_0000 // the term is not that of the one before
	unknownBits = 0b1100_0000

	typeEnd = 3
)

// maxSummaryPart bounds a document, and the data of one whole entry. Documents tell of
// members and databases, and whole entries of one member each.
const maxSummaryPart = 16 << 20

func typeOf(bits byte) raftpb.EntryType { return raftpb.EntryType(bits & typeBits) }

// summaryWriter writes a summary: NewWriter, Add for each entry, End. One that was not
// ended is refused by every reader.
type summaryWriter struct {
	to          *bufio.Writer
	sum         hash.Hash
	buf         []byte
	index, term uint64 // of the entry before
}

// newSummaryWriter writes the head.
func newSummaryWriter(w io.Writer, head any) (*summaryWriter, error) {
	d := &summaryWriter{sum: sha256.New(), to: bufio.NewWriterSize(w, 64<<10)}
	d.write([]byte(summaryLine))
	if err := d.document(head); err != nil {
		return nil, err
	}
	return d, nil
}

// write feeds both. A bufio.Writer keeps its first error for Flush.
func (d *summaryWriter) write(b []byte) {
	d.sum.Write(b)
	_, _ = d.to.Write(b)
}

func (d *summaryWriter) document(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(b) > maxSummaryPart {
		return fmt.Errorf("a document of a summary has %d bytes, at most %d are possible", len(b), maxSummaryPart)
	}
	d.write(binary.AppendUvarint(nil, uint64(len(b))))
	d.write(b)
	return nil
}

// Add writes the next entry: whole, or where it is an outline, its sum.
func (d *summaryWriter) Add(e logEntry) error {
	kind := byte(e.Type)
	switch {
	case e.Type < 0 || e.Type >= typeEnd:
		return fmt.Errorf("%s has type %d, which a summary cannot hold", e, e.Type)
	case e.Outline && e.Type != raftpb.EntryNormal:
		return fmt.Errorf("%s is about members, and has to be in a summary as a whole", e)
	case e.Index <= d.index:
		return fmt.Errorf("%s comes after the one with index %d", e, d.index)
	case len(e.Data) > maxSummaryPart:
		return fmt.Errorf("%s has %d bytes, and a summary holds %d of one entry at most", e, len(e.Data), maxSummaryPart)
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
func (d *summaryWriter) Flush() error { return d.to.Flush() }

// End writes the end, and the sum.
func (d *summaryWriter) End(end any) error {
	d.write([]byte{typeEnd})
	if err := d.document(end); err != nil {
		return err
	}
	d.write(d.sum.Sum(nil))
	return d.to.Flush()
}

// ErrInvalidSummary says that bytes are no summary, or no whole one, or not what was
// written. The text says what and where.
var ErrInvalidSummary = errors.New("not a whole summary")

// SummaryFormatError says that a summary is of another format.
type SummaryFormatError struct{ Found string }

func (e *SummaryFormatError) Error() string {
	return fmt.Sprintf("the summary is of format %s, and this requorum reads format %d: use the same version of requorum on all hosts", e.Found, SummaryFormat)
}

// summaryReader reads a summary: NewReader, then Entries to its end, then End.
type summaryReader struct {
	from   *bufio.Reader
	sum    hash.Hash
	offset int64
	one    [1]byte // for one record's parts, which are not allocated anew each time
	short  entrySum
	data   bytes.Buffer
	failed error
	ended  bool
	last   []byte // the end's document
}

// newSummaryReader reads the head. Nothing of it is proven before the end was read.
func newSummaryReader(r io.Reader, head any) (*summaryReader, error) {
	d := &summaryReader{from: bufio.NewReaderSize(r, 64<<10), sum: sha256.New()}
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

func (d *summaryReader) firstLine() error {
	got := make([]byte, len(summaryLine))
	n, err := d.read(got)
	if string(got[:n]) == summaryLine {
		return nil
	}
	if rest, ok := strings.CutPrefix(string(got[:n]), summaryLineStart); ok && err == nil {
		number, _, _ := strings.Cut(rest, "\n")
		return &SummaryFormatError{number}
	}
	if err != nil && n < len(got) && strings.HasPrefix(summaryLine, string(got[:n])) {
		return d.failure(err, "the first line")
	}
	return d.invalid("it does not begin with %q", summaryLine)
}

// Entries yields the entries, in order. An entry's data is valid until the next
// one. The first error is the end. The one that comes last may be about the
// summary as a whole.
func (d *summaryReader) Entries() iter.Seq2[logEntry, error] {
	return func(yield func(logEntry, error) bool) {
		var e raftlog.Entry
		for !d.ended && d.failed == nil {
			next, more, err := d.next(e)
			if err != nil {
				d.failed = err
				yield(logEntry{}, err)
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
func (d *summaryReader) next(before raftlog.Entry) (logEntry, bool, error) {
	var none logEntry
	kind, err := d.byte()
	switch {
	case err != nil:
		return none, false, d.failure(err, "an entry")
	case kind == typeEnd:
		return none, false, d.finish()
	case kind&unknownBits != 0 || kind&typeBits == typeEnd || kind&wholeBit != 0 && kind&movesBit != 0 || kind&wholeBit == 0 && typeOf(kind) != raftpb.EntryNormal:
		return none, false, d.invalid("a record that begins with %#02x is not known", kind)
	}
	e := logEntry{Outline: kind&wholeBit == 0, Moves: kind&movesBit != 0}
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
func (d *summaryReader) finish() error {
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
func (d *summaryReader) End(end any) error {
	switch {
	case d.failed != nil:
		return d.failed
	case !d.ended:
		return errors.New("the summary was not read to its end")
	}
	if err := json.Unmarshal(d.last, end); err != nil {
		return d.invalid("the end: %v", err)
	}
	return nil
}

func (d *summaryReader) read(b []byte) (int, error) {
	n, err := io.ReadFull(d.from, b)
	d.sum.Write(b[:n])
	d.offset += int64(n)
	return n, err
}

func (d *summaryReader) byte() (byte, error) {
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
func (d *summaryReader) number(what string) (uint64, error) {
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
func (d *summaryReader) part(what string) ([]byte, error) {
	n, err := d.number("the length of " + what)
	if err != nil {
		return nil, err
	}
	if n > maxSummaryPart {
		return nil, d.invalid("%s has %d bytes, at most %d are possible", what, n, maxSummaryPart)
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

func (d *summaryReader) invalid(format string, args ...any) error {
	return fmt.Errorf("%w: at byte %d: %s", ErrInvalidSummary, d.offset, fmt.Sprintf(format, args...))
}

// failure tells the end of the bytes from what kept them from being read.
func (d *summaryReader) failure(err error, what string) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return d.invalid("it ends in %s: it was cut off", what)
	}
	return err
}
