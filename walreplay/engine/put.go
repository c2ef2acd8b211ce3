package engine

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/requorum/requorum/snapshot/wire"
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
		f, n := wire.Consume(data)
		if n < 0 {
			return p, false
		}
		data = data[n:]
		switch {
		case f.Number == fieldID && f.Kind == protowire.VarintType:
			id = f.Varint // the last one counts
		case f.Number == fieldHeader && f.Kind == protowire.BytesType && plainHeader(f.Bytes):
			header = true
		case f.Number == fieldPut && f.Kind == protowire.BytesType && !found:
			found = true
			if !p.parse(f.Bytes) {
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
		f, n := wire.Consume(data)
		if n < 0 || f.Kind != protowire.VarintType || f.Number != headerID && f.Number != headerAuthRevision {
			return false
		}
		data = data[n:]
	}
	return true
}

func (p *put) parse(data []byte) bool {
	for len(data) > 0 {
		f, n := wire.Consume(data)
		if n < 0 {
			return false
		}
		data = data[n:]
		switch {
		case f.Number == putKey && f.Kind == protowire.BytesType:
			p.key = f.Bytes
		case f.Number == putValue && f.Kind == protowire.BytesType:
			p.value = f.Bytes
		case f.Number == putLease && f.Kind == protowire.VarintType:
			p.lease = int64(f.Varint)
		default:
			return false
		}
	}
	// etcd's index may keep the key, and would keep the block of the log with it.
	p.key = bytes.Clone(p.key)
	return true
}
