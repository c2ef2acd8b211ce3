package boltfile

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// RowSize is the length of the key of a row of etcd's bucket key that is no deletion:
// main, '_' and sub, eight bytes, one and eight. A deletion has a 't' behind it.
const RowSize = 17

const (
	separator     = '_'
	tombstoneMark = 't'
)

// Revision is a change in the history: the sub-th, from 0 on, of the main-th
// transaction.
type Revision struct{ Main, Sub int64 }

// Row is the key of a row: a change of a user's key, called by its revision.
type Row struct {
	Revision
	Deleted bool // the user's key was deleted there
}

// ParseRow reads the key of a row. The error says what is wrong with it, where etcd's
// own reader panics.
func ParseRow(b []byte) (Row, error) {
	deleted := len(b) == RowSize+1 && b[RowSize] == tombstoneMark
	if len(b) != RowSize && !deleted || b[8] != separator {
		return Row{}, fmt.Errorf("%x is no revision", b)
	}
	r := Revision{int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[9:]))}
	if r.Main < 0 || r.Sub < 0 {
		return Row{}, fmt.Errorf("revision %d.%d is negative", r.Main, r.Sub)
	}
	return Row{r, deleted}, nil
}

// Bytes is the key of the revision's row, where that is no deletion.
func (r Revision) Bytes() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, RowSize+1), uint64(r.Main))
	return binary.BigEndian.AppendUint64(append(b, separator), uint64(r.Sub))
}

// String is main alone where it is the transaction's first change, else main.sub.
func (r Revision) String() string {
	if r.Sub == 0 {
		return fmt.Sprint(r.Main)
	}
	return fmt.Sprintf("%d.%d", r.Main, r.Sub)
}

// The fields of an mvccpb.KeyValue.
const (
	fieldKey protowire.Number = iota + 1
	fieldCreated
	fieldModified
	fieldVersion
	fieldValue
	fieldLease
)

// KeyOf finds the user's key in the value of a row, an mvccpb.KeyValue, without
// decoding the rest; nil where there is none.
func KeyOf(value []byte) ([]byte, error) {
	// It comes first, and is mostly short: nothing of a replay is done as often as this.
	if len(value) > 1 && value[0] == byte(fieldKey)<<3|byte(protowire.BytesType) && value[1] < 1<<7 && int(value[1]) <= len(value)-2 {
		return value[2 : 2+int(value[1])], nil
	}
	for len(value) > 0 {
		f, n := ConsumeField(value)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		if f.Number == fieldKey {
			return f.Bytes, nil
		}
		value = value[n:]
	}
	return nil, nil
}

// KeyValue is the value of a row, an mvccpb.KeyValue. Key and Value point into the row.
type KeyValue struct {
	Key, Value                        []byte // Value is nil if the row has none
	Created, Modified, Version, Lease int64
	// Unknown is a field that etcd up to 3.7 does not have; 0 if there is none.
	Unknown protowire.Number
}

// ParseKeyValue decodes the value of a row as etcd encodes it: each field at most once, in
// the order of their numbers.
func ParseKeyValue(b []byte) (kv KeyValue, err error) {
	for last := protowire.Number(0); len(b) > 0; {
		f, n := ConsumeField(b)
		switch {
		case n < 0:
			return kv, protowire.ParseError(n)
		case f.Number <= last:
			return kv, fmt.Errorf("field %d comes after field %d", f.Number, last)
		case f.Number > fieldLease:
			kv.Unknown = f.Number
		case (f.Number == fieldKey || f.Number == fieldValue) != (f.Kind == protowire.BytesType), f.Kind != protowire.BytesType && f.Kind != protowire.VarintType:
			return kv, fmt.Errorf("field %d has the type %d", f.Number, f.Kind)
		}
		switch f.Number {
		case fieldKey:
			kv.Key = f.Bytes
		case fieldCreated:
			kv.Created = int64(f.Varint)
		case fieldModified:
			kv.Modified = int64(f.Varint)
		case fieldVersion:
			kv.Version = int64(f.Varint)
		case fieldValue:
			kv.Value = f.Bytes
		case fieldLease:
			kv.Lease = int64(f.Varint)
		default:
		}
		last, b = f.Number, b[n:]
	}
	return kv, nil
}

// Size is the length of the encoded form; a deletion has only the key in it.
func (kv *KeyValue) Size(deleted bool) int {
	n := sizeOfBytes(kv.Key)
	if deleted {
		return n
	}
	return n + sizeOfNumber(kv.Created) + sizeOfNumber(kv.Modified) + sizeOfNumber(kv.Version) + sizeOfBytes(kv.Value) + sizeOfNumber(kv.Lease)
}

// Append encodes it as etcd does.
func (kv *KeyValue) Append(b []byte, deleted bool) []byte {
	b = appendBytes(b, fieldKey, kv.Key)
	if deleted {
		return b
	}
	b = appendNumber(b, fieldCreated, kv.Created)
	b = appendNumber(b, fieldModified, kv.Modified)
	b = appendNumber(b, fieldVersion, kv.Version)
	b = appendBytes(b, fieldValue, kv.Value)
	return appendNumber(b, fieldLease, kv.Lease)
}

func sizeOfNumber(n int64) int {
	if n == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(uint64(n))
}

func sizeOfBytes(b []byte) int {
	if len(b) == 0 {
		return 0
	}
	return 1 + protowire.SizeBytes(len(b))
}

func appendNumber(b []byte, number protowire.Number, n int64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), uint64(n))
}

func appendBytes(b []byte, number protowire.Number, value []byte) []byte {
	if len(value) == 0 {
		return b
	}
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), value)
}
