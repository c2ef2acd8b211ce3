// Package rowkey reads and writes the keys of etcd's bucket key, where each row
// is a change of a user's key and called by its revision. etcd's own reader panics
// where a key is damaged; this one does not.
package rowkey

import (
	"encoding/binary"
	"fmt"
)

// Size is the length of the key of a row that is no deletion: main, '_' and sub,
// eight bytes, one and eight. A deletion has a 't' behind it.
const Size = 17

const (
	separator     = '_'
	tombstoneMark = 't'
)

// Revision is a change in the history: the sub-th, from 0 on, of the main-th
// transaction.
type Revision struct{ Main, Sub int64 }

// Key is the key of a row.
type Key struct {
	Revision
	Deleted bool // the user's key was deleted there
}

// Parse reads the key of a row. The error says what is wrong with it.
func Parse(b []byte) (Key, error) {
	deleted := len(b) == Size+1 && b[Size] == tombstoneMark
	if len(b) != Size && !deleted || b[8] != separator {
		return Key{}, fmt.Errorf("%x is no revision", b)
	}
	r := Revision{int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[9:]))}
	if r.Main < 0 || r.Sub < 0 {
		return Key{}, fmt.Errorf("revision %d.%d is negative", r.Main, r.Sub)
	}
	return Key{r, deleted}, nil
}

// Bytes is the key of the revision's row, where that is no deletion.
func (r Revision) Bytes() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, Size+1), uint64(r.Main))
	return binary.BigEndian.AppendUint64(append(b, separator), uint64(r.Sub))
}

// String is main alone where it is the transaction's first change, else main.sub.
func (r Revision) String() string {
	if r.Sub == 0 {
		return fmt.Sprint(r.Main)
	}
	return fmt.Sprintf("%d.%d", r.Main, r.Sub)
}
