package drill

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/requorum/requorum/snapshot/rowkey"
	"github.com/requorum/requorum/snapshot/wire"
)

// row is a row of the key bucket, not copied out of its page.
type row struct {
	rowkey.Key
	key, value              []byte
	create, version, leased int64
}

// The fields of mvccpb.KeyValue.
const (
	fieldKey     = 1
	fieldCreate  = 2
	fieldVersion = 4
	fieldValue   = 5
	fieldLease   = 6
)

// parseRow decodes without copying: every value of the database passes here
// twice.
func parseRow(k, v []byte) (r row, err error) {
	if r.Key, err = rowkey.Parse(k); err != nil {
		return r, err
	}
	for rest := v; len(rest) > 0; {
		f, n := wire.Consume(rest)
		if n < 0 {
			return r, fmt.Errorf("the row at revision %d.%d: %w", r.Main, r.Sub, protowire.ParseError(n))
		}
		rest = rest[n:]
		switch f.Number {
		case fieldKey:
			r.key = f.Bytes
		case fieldValue:
			r.value = f.Bytes
		case fieldCreate:
			r.create = int64(f.Varint)
		case fieldVersion:
			r.version = int64(f.Varint)
		case fieldLease:
			r.leased = int64(f.Varint)
		default: // the mod revision stands in the row's key as well
		}
	}
	return r, nil
}
