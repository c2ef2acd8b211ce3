package verifytest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot/rowkey"
)

var errNothing = errors.New("nothing fits: nothing was altered")

// revisionOf is the revision of a row's key.
func revisionOf(row []byte) int64 { return int64(binary.BigEndian.Uint64(row)) }

// found is a row of the bucket key.
type found struct {
	row []byte
	kv  *mvccpb.KeyValue
}

func (f found) deletion() bool { return len(f.row) > rowkey.Size }

// rowsOf are all rows, by revision.
func rowsOf(tx *bbolt.Tx) ([]found, error) {
	var all []found
	err := tx.Bucket([]byte("key")).ForEach(func(k, v []byte) error {
		f := found{bytes.Clone(k), &mvccpb.KeyValue{}}
		all = append(all, f)
		return proto.Unmarshal(v, f.kv)
	})
	return all, err
}

// newest is the newest row that fits.
func newest(tx *bbolt.Tx, fits func(found) bool) (found, error) {
	all, err := rowsOf(tx)
	if err != nil {
		return found{}, err
	}
	for i := len(all) - 1; i >= 0; i-- {
		if fits(all[i]) {
			return all[i], nil
		}
	}
	return found{}, errNothing
}

func ofKey(key string) func(found) bool {
	return func(f found) bool { return string(f.kv.Key) == key && !f.deletion() }
}

// overwritten are rows of keys that were there before.
func overwritten(f found) bool { return f.kv.Version > 1 }

func deletions(f found) bool { return f.deletion() }

// store writes a row back.
func (f found) store(tx *bbolt.Tx) error { return putMessage(tx, "key", f.row, f.kv) }

func putMessage(tx *bbolt.Tx, bucket string, key []byte, m proto.Message) error {
	data, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	return tx.Bucket([]byte(bucket)).Put(key, data)
}

// row alters the newest row that fits.
func row(fits func(found) bool, change func(f found)) func(*bbolt.Tx) error {
	return func(tx *bbolt.Tx) error {
		f, err := newest(tx, fits)
		if err != nil {
			return err
		}
		change(f)
		return f.store(tx)
	}
}

// message alters a row of another bucket, the last one where key is empty.
func message[M proto.Message](bucket, key string, m M, change func(M)) func(*bbolt.Tx) error {
	return func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucket))
		k := []byte(key)
		if key == "" {
			k, _ = b.Cursor().Last()
		}
		v := b.Get(k)
		if v == nil {
			return errNothing
		}
		proto.Reset(m)
		if err := proto.Unmarshal(v, m); err != nil {
			return err
		}
		change(m)
		return putMessage(tx, bucket, bytes.Clone(k), m)
	}
}

// set puts bytes into a bucket.
func set(bucket, key string, value []byte) func(*bbolt.Tx) error {
	return func(tx *bbolt.Tx) error { return tx.Bucket([]byte(bucket)).Put([]byte(key), value) }
}

// drop takes a row out of a bucket.
func drop(bucket, key string) func(*bbolt.Tx) error {
	return func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucket))
		if b.Get([]byte(key)) == nil {
			return errNothing
		}
		return b.Delete([]byte(key))
	}
}

// both does one change after the other.
func both(changes ...func(*bbolt.Tx) error) func(*bbolt.Tx) error {
	return func(tx *bbolt.Tx) error {
		for _, change := range changes {
			if err := change(tx); err != nil {
				return err
			}
		}
		return nil
	}
}

// edit is a fault of the last backup's database, with all sums fixed up.
func edit(change func(*bbolt.Tx) error) func(testing.TB, *Repo) string {
	return func(t testing.TB, r *Repo) string {
		r.Edit(t, last, change)
		return "the database of " + r.Backups[last]
	}
}
