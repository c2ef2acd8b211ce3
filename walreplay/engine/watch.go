package engine

import (
	"bytes"
	"errors"
	"fmt"

	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/encoding/protowire"
)

// Watch says which keys to look out for, as etcd's requests do: Key alone
// without an End, from Key up to End with one, and from Key on when End is a
// zero byte.
type Watch struct{ Key, End []byte }

// Change is a change or deletion of a watched key.
type Change struct {
	Index    uint64 // the entry that made it
	Revision int64  // and the revision that it led to
}

func (w Watch) covers(key []byte) bool {
	switch {
	case len(w.End) == 0:
		return bytes.Equal(key, w.Key)
	case len(w.End) == 1 && w.End[0] == 0:
		return bytes.Compare(key, w.Key) >= 0
	}
	return bytes.Compare(key, w.Key) >= 0 && bytes.Compare(key, w.End) < 0
}

// changed tells whether the newest revision put or deleted a watched key. It
// looks at what was written, so keys count that went with their lease or in a
// range, and requests that were refused do not.
func (r *replay) changed(w Watch) (bool, error) {
	from := mvcc.RevToBytes(mvcc.Revision{Main: r.revision}, mvcc.NewRevBytes())
	to := mvcc.RevToBytes(mvcc.Revision{Main: r.revision + 1}, mvcc.NewRevBytes())
	tx := r.backend.ReadTx()
	tx.RLock()
	defer tx.RUnlock()
	_, rows := tx.UnsafeRange(schema.Key, from, to, 0)
	for _, row := range rows {
		key, err := keyOf(row)
		if err != nil {
			return false, fmt.Errorf("reading what revision %d changed: %w", r.revision, err)
		}
		if w.covers(key) {
			return true, nil
		}
	}
	return false, nil
}

var errNoKey = errors.New("a row without a key")

// keyOf is the key of a row of the key bucket: field 1, which comes first.
func keyOf(row []byte) ([]byte, error) {
	field, kind, n := protowire.ConsumeTag(row)
	if n < 0 || field != 1 || kind != protowire.BytesType {
		return nil, errNoKey
	}
	key, n := protowire.ConsumeBytes(row[n:])
	if n < 0 {
		return nil, errNoKey
	}
	return key, nil
}
