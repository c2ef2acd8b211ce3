package engine

import (
	"bytes"
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// Same goes through all buckets of two databases, and names the first row that is not the
// same in both.
func Same(path, other string) (err error) {
	var both [2]*bolt.Tx
	for i, p := range []string{path, other} {
		db, opened := bolt.Open(p, 0o600, &bolt.Options{Timeout: lockTimeout, ReadOnly: true})
		if opened != nil {
			return fmt.Errorf("comparing %s: %w", p, opened)
		}
		defer func() { err = errors.Join(err, db.Close()) }()
		if both[i], err = db.Begin(false); err != nil {
			return fmt.Errorf("comparing %s: %w", p, err)
		}
		defer both[i].Rollback() //nolint:errcheck // nothing was written
	}
	same := func(of string, a, b *bolt.Cursor) error {
		k, v := a.First()
		l, w := b.First()
		for k != nil || l != nil {
			if !bytes.Equal(k, l) || !bytes.Equal(v, w) || (v == nil) != (w == nil) {
				return fmt.Errorf("%s: %x is %x in one, %x is %x in the other", of, k, short(v), l, short(w))
			}
			k, v = a.Next()
			l, w = b.Next()
		}
		return nil
	}
	if err := same("buckets", both[0].Cursor(), both[1].Cursor()); err != nil {
		return err
	}
	return both[0].ForEach(func(name []byte, b *bolt.Bucket) error {
		return same("bucket "+string(name), b.Cursor(), both[1].Bucket(name).Cursor())
	})
}

func short(v []byte) []byte { return v[:min(len(v), 64)] }
