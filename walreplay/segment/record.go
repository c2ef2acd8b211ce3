package segment

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// A segment's raw bytes are records: a byte that tells the kind, the length of
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
		return nil, fmt.Errorf("%d bytes of entries are more than the %d that a segment can have", size, rawLimit)
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
// names the offset of the record. entries is how many are expected.
func parseRecords(b []byte, entries int) (Batch, error) {
	batch := Batch{Entries: make([]raftlog.Entry, 0, min(entries, len(b)/minRecord))}
	for at := 0; at < len(b); {
		kind, rest := b[at], b[at+1:]
		size, n := binary.Uvarint(rest)
		if n <= 0 || n != protowire.SizeVarint(size) || size > uint64(len(rest)-n) {
			return Batch{}, fmt.Errorf("raw byte %d: %w: its length is not one", at, errRecord)
		}
		payload := rest[n : n+int(size) : n+int(size)]
		switch kind {
		case kindEntry:
			e, err := raftlog.Parse(payload)
			if err != nil {
				return Batch{}, fmt.Errorf("raw byte %d: %w", at, err)
			}
			if len(batch.Marks) > 0 {
				return Batch{}, fmt.Errorf("raw byte %d: %w: an entry behind a mark", at, errRecord)
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
