package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/schema"
)

// appendFill is how full bolt's pages are made where rows are only appended, as
// etcd has it.
const appendFill = 0.9

var errNoBucket = errors.New("it is not there")

// directTx is all of etcd's kinds of transactions on a direct backend.
type directTx struct{ d *direct }

// Lock does nothing, as all of the locks.
func (t directTx) Lock() {}

// Unlock does nothing.
func (t directTx) Unlock() {}

// RLock does nothing.
func (t directTx) RLock() {}

// RUnlock does nothing.
func (t directTx) RUnlock() {}

// LockInsideApply does nothing.
func (t directTx) LockInsideApply() {}

// LockOutsideApply does nothing.
func (t directTx) LockOutsideApply() {}

// Commit does nothing: it is called in the middle of entries.
func (t directTx) Commit() {}

// CommitAndStop does nothing.
func (t directTx) CommitAndStop() {}

// bucket is nil where there is none, or the database is closed.
func (t directTx) bucket(b backend.Bucket) *bolt.Bucket {
	tx := t.d.tx()
	if tx == nil {
		return nil
	}
	return tx.Bucket(b.Name())
}

// UnsafeCreateBucket creates it unless it is there.
func (t directTx) UnsafeCreateBucket(b backend.Bucket) {
	tx := t.d.tx()
	if tx == nil {
		return
	}
	_, err := tx.CreateBucketIfNotExists(b.Name())
	t.d.note("creating", b, err)
}

// UnsafeDeleteBucket deletes it with its rows.
func (t directTx) UnsafeDeleteBucket(b backend.Bucket) {
	tx := t.d.tx()
	if tx == nil {
		return
	}
	if err := tx.DeleteBucket(b.Name()); !errors.Is(err, bolterrors.ErrBucketNotFound) {
		t.d.note("deleting", b, err)
	}
}

// behind tells which buckets the writer changes: those whose rows come by the
// thousand.
func behind(b backend.Bucket) bool {
	return b.ID() == schema.Key.ID() || b.ID() == schema.Lease.ID() || b.ID() == schema.Meta.ID()
}

// UnsafePut writes a row. Key and value are not copied.
func (t directTx) UnsafePut(b backend.Bucket, key, value []byte) {
	t.change(row{bucket: b, key: key, value: value})
}

// UnsafeSeqPut writes a row behind all others: of the key bucket, whose keys
// begin with the main revision.
func (t directTx) UnsafeSeqPut(b backend.Bucket, key, value []byte) {
	t.change(row{bucket: b, key: key, value: value, what: appendRow})
	if len(key) >= 8 {
		if main := int64(binary.BigEndian.Uint64(key)); main != t.d.newest {
			t.d.newest = main
			t.d.moves++
		}
	}
}

// UnsafeDelete deletes a row; it need not be there. The key is not copied.
func (t directTx) UnsafeDelete(b backend.Bucket, key []byte) {
	t.change(row{bucket: b, key: key, what: deleteRow})
}

func (t directTx) change(r row) {
	if t.d.closed {
		return
	}
	t.d.pending += len(r.key) + len(r.value) + rowOverhead
	if behind(r.bucket) {
		t.d.writer.change(r)
		return
	}
	bucket := t.bucket(r.bucket)
	if bucket == nil {
		t.d.note("writing to", r.bucket, errNoBucket)
		return
	}
	t.d.note("writing to", r.bucket, r.write(bucket))
}

// UnsafeRange reads the row of key, or with an end the rows from key up to end.
// What it gives is valid until the next commit.
func (t directTx) UnsafeRange(b backend.Bucket, key, end []byte, limit int64) (keys, values [][]byte) {
	bucket := t.bucket(b)
	if bucket == nil {
		return nil, nil
	}
	c := bucket.Cursor()
	if len(end) == 0 {
		if k, v := c.Seek(key); bytes.Equal(k, key) {
			return [][]byte{k}, [][]byte{v}
		}
		return nil, nil
	}
	if limit <= 0 {
		limit = math.MaxInt64
	}
	for k, v := c.Seek(key); k != nil && bytes.Compare(k, end) < 0; k, v = c.Next() {
		keys, values = append(keys, k), append(values, v)
		if int64(len(keys)) == limit {
			break
		}
	}
	return keys, values
}

// UnsafeForEach visits all rows.
func (t directTx) UnsafeForEach(b backend.Bucket, visit func(k, v []byte) error) error {
	bucket := t.bucket(b)
	if bucket == nil {
		return nil
	}
	return bucket.ForEach(visit)
}
