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

// KeyOf finds the user's key in the value of a row, an mvccpb.KeyValue, without
// decoding the rest; nil where there is none.
func KeyOf(value []byte) ([]byte, error) {
	const fieldKey = 1
	// It comes first, and is mostly short: nothing of a replay is done as often as this.
	if len(value) > 1 && value[0] == fieldKey<<3|byte(protowire.BytesType) && value[1] < 1<<7 && int(value[1]) <= len(value)-2 {
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
