package segment

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// A segment's raw bytes are records: a byte that names the kind, the length of
// what follows as a varint of protobuf, and that: an entry's canonical form, or
// a mark's JSON. Entries come first.
const (
	kindEntry = 'e'
	kindMark  = 'm'
)

// minRecord is the size of the smallest entry's record.
const minRecord = 8

// errRecord says that raw bytes are not records.
var errRecord = errors.New("not a record of a log segment")

func records(batch Batch) ([]byte, error) {
	size := 0
	for _, e := range batch.Entries {
		n := e.Size()
		size += 1 + protowire.SizeBytes(n)
	}
	if size > rawLimit {
		return nil, fmt.Errorf("the entries from index %d have %d bytes, more than the %d that a segment can have: requests of that size cannot be archived; etcd's --max-request-bytes bounds them", batch.Entries[0].Index, size, rawLimit)
	}
	b := make([]byte, 0, size+256*len(batch.Marks))
	for _, e := range batch.Entries {
		b = append(b, kindEntry)
		b = binary.AppendUvarint(b, uint64(e.Size()))
		b = e.Append(b)
	}
	for _, m := range batch.Marks {
		m.Time = m.Time.UTC()
		text, err := json.Marshal(m)
		if err != nil {
			return nil, fmt.Errorf("encode a mark: %w", err)
		}
		b = append(b, kindMark)
		b = binary.AppendUvarint(b, uint64(len(text)))
		b = append(b, text...)
	}
	return b, nil
}

// parseRecords reads what records wrote; entries point into b. The error
// names the offset of the record. It refuses more entries and marks than are
// expected.
func parseRecords(b []byte, entries, marks int) (Batch, error) {
	batch := Batch{Entries: make([]raftlog.Entry, 0, min(entries, len(b)/minRecord))}
	for at := 0; at < len(b); {
		kind, rest := b[at], b[at+1:]
		size, n := binary.Uvarint(rest)
		if n <= 0 || n != protowire.SizeVarint(size) || size > uint64(len(rest)-n) {
			return Batch{}, fmt.Errorf("raw byte %d: %w: its length is not one", at, errRecord)
		}
		if kind == kindEntry && len(batch.Entries) == entries || kind == kindMark && len(batch.Marks) == marks {
			return Batch{}, fmt.Errorf("raw byte %d: %w: there are more than %d entries or %d marks", at, errRecord, entries, marks)
		}
		payload := rest[n : n+int(size) : n+int(size)]
		switch kind {
		case kindEntry:
			e, err := raftlog.Parse(payload)
			if err != nil {
				return Batch{}, fmt.Errorf("raw byte %d: %w", at, err)
			}
			if len(batch.Marks) > 0 {
				return Batch{}, fmt.Errorf("raw byte %d: %w: an entry after a mark", at, errRecord)
			}
			batch.Entries = append(batch.Entries, e)
		case kindMark:
			var m raftlog.Mark
			if err := json.Unmarshal(payload, &m); err != nil {
				return Batch{}, fmt.Errorf("raw byte %d: %w: a mark: %w", at, errRecord, err)
			}
			batch.Marks = append(batch.Marks, m)
		default:
			return Batch{}, fmt.Errorf("raw byte %d: %w: kind %q is unknown", at, errRecord, kind)
		}
		at += 1 + n + int(size)
	}
	return batch, nil
}

// chain checks that a batch is what a header describes, all but After, and
// returns the chain's value of its last entry.
func chain(h Header, b Batch) (raftlog.Sum, error) {
	if len(b.Entries) != h.Entries || len(b.Marks) != h.Marks {
		return raftlog.Sum{}, fmt.Errorf("%d entries and %d marks, not %d and %d", len(b.Entries), len(b.Marks), h.Entries, h.Marks)
	}
	sum, want := h.Before, raftlog.Entry{Index: h.FirstIndex, Term: h.FirstTerm}
	for i, e := range b.Entries {
		switch {
		case e.Index != want.Index:
			return raftlog.Sum{}, fmt.Errorf("%s where index %d should be", e, want.Index)
		case e.Term < want.Term || e.Term > h.LastTerm || i == 0 && e.Term != h.FirstTerm:
			return raftlog.Sum{}, fmt.Errorf("%s: the terms before and after it are %d and %d", e, want.Term, h.LastTerm)
		}
		sum = sum.Next(e)
		want.Index, want.Term = want.Index+1, e.Term
	}
	if last := b.Entries[len(b.Entries)-1]; last.Index != h.LastIndex || last.Term != h.LastTerm {
		return raftlog.Sum{}, fmt.Errorf("the last one is %s, not index %d of term %d", last, h.LastIndex, h.LastTerm)
	}
	return sum, checkMarks(h, b)
}

func checkMarks(h Header, b Batch) error {
	if !slices.IsSortedFunc(b.Marks, markOrder) {
		return errors.New("its marks are not in order")
	}
	for _, m := range b.Marks {
		if m.Index == h.FirstIndex-1 && m.Index > 0 && m.Term <= h.FirstTerm {
			continue
		}
		if !h.Holds(m.Index) {
			return fmt.Errorf("a mark of index %d, which is not within %d and %d", m.Index, h.FirstIndex, h.LastIndex)
		}
		if e := b.Entries[m.Index-h.FirstIndex]; e.Term != m.Term {
			return fmt.Errorf("a mark of index %d with term %d: it is %s", m.Index, m.Term, e)
		}
	}
	if first, last := timesOf(b.Marks); !first.Equal(h.FirstMark) || !last.Equal(h.LastMark) {
		return fmt.Errorf("its marks are from %s to %s, not from %s to %s", first, last, h.FirstMark, h.LastMark)
	}
	return nil
}

// timesOf are the earliest and the latest time, in UTC; zero where there are
// no marks.
func timesOf(marks []raftlog.Mark) (first, last time.Time) {
	for i, m := range marks {
		if i == 0 || m.Time.Before(first) {
			first = m.Time.UTC()
		}
		if i == 0 || m.Time.After(last) {
			last = m.Time.UTC()
		}
	}
	return first, last
}

// sorted is a copy in the order in which segments hold marks, without the
// monotonic clock's part of their times.
func sorted(marks []raftlog.Mark) []raftlog.Mark {
	marks = slices.Clone(marks)
	for i := range marks {
		marks[i].Time = marks[i].Time.UTC().Round(0)
	}
	slices.SortFunc(marks, markOrder)
	return marks
}

func markOrder(a, b raftlog.Mark) int {
	return cmp.Or(cmp.Compare(a.Index, b.Index), a.Time.Compare(b.Time), cmp.Compare(a.Member, b.Member), cmp.Compare(a.Revision, b.Revision))
}
