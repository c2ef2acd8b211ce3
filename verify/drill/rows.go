package drill

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// position is a row's place in the key bucket: `main _ sub`, eight bytes, one
// and eight.
type position struct{ main, sub int64 }

const (
	positionSize  = 17
	tombstoneMark = 't' // behind the position where the key was deleted
)

// row is a row of the key bucket, not copied out of its page.
type row struct {
	position
	deleted                      bool
	key, value                   []byte
	create, mod, version, leased int64
}

// The fields of mvccpb.KeyValue.
const (
	fieldKey     = 1
	fieldCreate  = 2
	fieldMod     = 3
	fieldVersion = 4
	fieldValue   = 5
	fieldLease   = 6
)

// parseRow decodes without copying: every value of the database passes here
// twice.
func parseRow(k, v []byte) (r row, err error) {
	r.deleted = len(k) == positionSize+1 && k[positionSize] == tombstoneMark
	if len(k) != positionSize && !r.deleted || k[8] != '_' {
		return r, fmt.Errorf("%x is no revision", k)
	}
	r.position = position{int64(binary.BigEndian.Uint64(k)), int64(binary.BigEndian.Uint64(k[9:]))}
	for rest := v; len(rest) > 0; {
		number, kind, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return r, fmt.Errorf("the row at revision %d.%d: %w", r.main, r.sub, protowire.ParseError(n))
		}
		rest = rest[n:]
		var bytes []byte
		var number64 uint64
		switch kind {
		case protowire.BytesType:
			bytes, n = protowire.ConsumeBytes(rest)
		case protowire.VarintType:
			number64, n = protowire.ConsumeVarint(rest)
		default:
			n = protowire.ConsumeFieldValue(number, kind, rest)
		}
		if n < 0 {
			return r, fmt.Errorf("the row at revision %d.%d: %w", r.main, r.sub, protowire.ParseError(n))
		}
		rest = rest[n:]
		switch int(number) {
		case fieldKey:
			r.key = bytes
		case fieldValue:
			r.value = bytes
		case fieldCreate:
			r.create = int64(number64)
		case fieldMod:
			r.mod = int64(number64)
		case fieldVersion:
			r.version = int64(number64)
		case fieldLease:
			r.leased = int64(number64)
		}
	}
	return r, nil
}
