package engine

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"
)

// put is a plain put, of which a log has more than of all else: a request with
// nothing but what is here.
type put struct {
	key   []byte
	value []byte // points into the entry
	lease int64
}

// The fields of InternalRaftRequest and of what is in it that a plain put has.
const (
	fieldPut protowire.Number = 4

	headerID           protowire.Number = 1
	headerAuthRevision protowire.Number = 3

	putKey   protowire.Number = 1
	putValue protowire.Number = 2
	putLease protowire.Number = 3
)

// parsePut takes a plain put: an ID, or a header without a user, and one put
// without flags. All else is not ok, and for protobuf to read, which takes four
// times as long and copies the value.
func parsePut(data []byte) (p put, ok bool) {
	var id uint64
	var header, found bool
	for len(data) > 0 {
		f, n := nextField(data)
		if n < 0 {
			return p, false
		}
		data = data[n:]
		switch {
		case f.number == fieldID && f.kind == protowire.VarintType:
			id = f.varint // the last one counts
		case f.number == fieldHeader && f.kind == protowire.BytesType && plainHeader(f.bytes):
			header = true
		case f.number == fieldPut && f.kind == protowire.BytesType && !found:
			found = true
			if !p.parse(f.bytes) {
				return p, false
			}
		default:
			return p, false
		}
	}
	return p, (id != 0 || header) && found
}

func plainHeader(data []byte) bool {
	for len(data) > 0 {
		f, n := nextField(data)
		if n < 0 || f.kind != protowire.VarintType || f.number != headerID && f.number != headerAuthRevision {
			return false
		}
		data = data[n:]
	}
	return true
}

func (p *put) parse(data []byte) bool {
	for len(data) > 0 {
		f, n := nextField(data)
		if n < 0 {
			return false
		}
		data = data[n:]
		switch {
		case f.number == putKey && f.kind == protowire.BytesType:
			p.key = f.bytes
		case f.number == putValue && f.kind == protowire.BytesType:
			p.value = f.bytes
		case f.number == putLease && f.kind == protowire.VarintType:
			p.lease = int64(f.varint)
		default:
			return false
		}
	}
	// etcd's index may keep the key, and would keep the block of the log with it.
	p.key = bytes.Clone(p.key)
	return true
}

// field is a field of a protobuf message: a number or bytes.
type field struct {
	number protowire.Number
	kind   protowire.Type
	varint uint64
	bytes  []byte
}

// nextField tells how long the field is, below 0 when it is none, or of another
// kind than the two.
func nextField(data []byte) (f field, length int) {
	number, kind, n := protowire.ConsumeTag(data)
	if n < 0 {
		return f, n
	}
	f.number, f.kind = number, kind
	m := -1
	switch kind {
	case protowire.VarintType:
		f.varint, m = protowire.ConsumeVarint(data[n:])
	case protowire.BytesType:
		f.bytes, m = protowire.ConsumeBytes(data[n:])
	default:
	}
	if m < 0 {
		return f, m
	}
	return f, n + m
}
