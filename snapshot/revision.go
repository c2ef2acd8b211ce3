package snapshot

import (
	"encoding/binary"
	"fmt"
)

// revision is a key of etcd's key bucket: `main _ sub`, eight bytes, one and
// eight, and a t behind it where the key was deleted.
type revision struct{ main, sub int64 }

const (
	revisionSize  = 17
	tombstoneMark = 't'
)

// parseRevision reads a key of the key bucket.
func parseRevision(b []byte) (revision, error) {
	if len(b) != revisionSize && !isTombstone(b) || b[8] != '_' {
		return revision{}, fmt.Errorf("%x is no revision", b)
	}
	r := revision{int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[9:]))}
	if r.main < 0 || r.sub < 0 {
		return revision{}, fmt.Errorf("revision %d.%d is negative", r.main, r.sub)
	}
	return r, nil
}

// isTombstone tells whether a key of the key bucket stands for a deletion.
func isTombstone(b []byte) bool {
	return len(b) == revisionSize+1 && b[revisionSize] == tombstoneMark
}

// bytes is the key without the mark of a tombstone.
func (r revision) bytes() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, revisionSize+1), uint64(r.main))
	return binary.BigEndian.AppendUint64(append(b, '_'), uint64(r.sub))
}
