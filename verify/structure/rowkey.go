package structure

import (
	"encoding/binary"
	"fmt"
)

// rowKey is a key of the bucket key: a revision, and whether the user's key was
// deleted there.
type rowKey struct {
	main, sub int64
	deleted   bool
}

const rowKeySize = 17 // main, '_' and sub; behind it a 't' for a deletion

// parseRowKey reads one; false where it is none.
func parseRowKey(b []byte) (rowKey, bool) {
	if len(b) != rowKeySize && (len(b) != rowKeySize+1 || b[rowKeySize] != 't') || b[8] != '_' {
		return rowKey{}, false
	}
	r := rowKey{int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[9:])), len(b) > rowKeySize}
	return r, r.main >= 0 && r.sub >= 0
}

func (r rowKey) String() string {
	s := fmt.Sprintf("revision %d", r.main)
	if r.sub > 0 {
		s = fmt.Sprintf("revision %d.%d", r.main, r.sub)
	}
	return s
}

func rowKeyBytes(main, sub int64) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, rowKeySize), uint64(main))
	return binary.BigEndian.AppendUint64(append(b, '_'), uint64(sub))
}
