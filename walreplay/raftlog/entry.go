// Package raftlog is the raft log as an archive keeps it: canonical entries,
// the chain over them, and marks that say when an index had been applied.
//
// It promises:
//
//  1. One entry has one form. What etcd 3.5 to 3.7 encode differently is the
//     same bytes here, so logs of different members and versions compare.
//  2. Two logs with an equal chain value at an index are equal from where their
//     chains began up to that index.
//  3. Nothing that comes from outside makes it panic or allocate more than the
//     bytes that came.
package raftlog

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
)

// Entry is one entry of the raft log.
type Entry struct {
	Index, Term uint64
	Type        raftpb.EntryType
	Data        []byte // nil where the entry is empty
}

// Raft gives the entry as raft has it. Data is shared, not copied.
func (e Entry) Raft() *raftpb.Entry {
	return &raftpb.Entry{Index: &e.Index, Term: &e.Term, Type: e.Type.Enum(), Data: e.Data}
}

// Equal reports whether both are the same entry: index, term, type and data.
func (e Entry) Equal(o Entry) bool {
	return e.Index == o.Index && e.Term == o.Term && e.Type == o.Type && bytes.Equal(e.Data, o.Data)
}

// String names an entry for messages, without its data.
func (e Entry) String() string {
	return fmt.Sprintf("entry %d of term %d (%s, %d bytes)", e.Index, e.Term, e.Type, len(e.Data))
}

// The fields of raftpb.Entry, as etcd-io/raft's raft.proto numbers them.
const (
	fieldType  protowire.Number = 1
	fieldTerm  protowire.Number = 2
	fieldIndex protowire.Number = 3
	fieldData  protowire.Number = 4
)

// ErrNotCanonical says that bytes are not an entry in the one form that Append
// writes.
var ErrNotCanonical = errors.New("not a canonical raft entry")

// Append appends the canonical form: the protobuf message raftpb.Entry with
// type, term and index always there, in this order, and data where it is not
// empty.
func (e Entry) Append(b []byte) []byte {
	b = protowire.AppendTag(b, fieldType, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(uint32(e.Type)))
	b = protowire.AppendTag(b, fieldTerm, protowire.VarintType)
	b = protowire.AppendVarint(b, e.Term)
	b = protowire.AppendTag(b, fieldIndex, protowire.VarintType)
	b = protowire.AppendVarint(b, e.Index)
	if len(e.Data) > 0 {
		b = protowire.AppendTag(b, fieldData, protowire.BytesType)
		b = protowire.AppendBytes(b, e.Data)
	}
	return b
}

// Size is the number of bytes that Append appends.
func (e Entry) Size() int {
	n := 3 + protowire.SizeVarint(uint64(uint32(e.Type))) + protowire.SizeVarint(e.Term) + protowire.SizeVarint(e.Index)
	if len(e.Data) > 0 {
		n += 1 + protowire.SizeBytes(len(e.Data))
	}
	return n
}

// Parse reads what Append wrote, and nothing else: every other spelling of the
// same entry is ErrNotCanonical. Data points into b.
func Parse(b []byte) (Entry, error) {
	var e Entry
	var number [3]uint64
	rest := b
	for i, want := range []protowire.Number{fieldType, fieldTerm, fieldIndex} {
		field, kind, n := protowire.ConsumeTag(rest)
		if n < 0 || field != want || kind != protowire.VarintType {
			return Entry{}, ErrNotCanonical
		}
		rest = rest[n:]
		if number[i], n = protowire.ConsumeVarint(rest); n < 0 {
			return Entry{}, ErrNotCanonical
		}
		rest = rest[n:]
	}
	if number[0] > math.MaxInt32 {
		return Entry{}, ErrNotCanonical
	}
	e.Type, e.Term, e.Index = raftpb.EntryType(number[0]), number[1], number[2]
	if len(rest) > 0 {
		field, kind, n := protowire.ConsumeTag(rest)
		if n < 0 || field != fieldData || kind != protowire.BytesType {
			return Entry{}, ErrNotCanonical
		}
		data, n2 := protowire.ConsumeBytes(rest[n:])
		if n2 < 0 || len(data) == 0 || n+n2 != len(rest) {
			return Entry{}, ErrNotCanonical
		}
		e.Data = data
	}
	// Numbers can be spelled with more bytes than they need.
	if e.Size() != len(b) {
		return Entry{}, ErrNotCanonical
	}
	return e, nil
}
