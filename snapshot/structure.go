package snapshot

import (
	"context"
	"fmt"
	"io"

	"github.com/requorum/requorum/snapshot/pages"
)

// CheckStructure goes through all pages of the database in r, of size bytes
// without a trailing SHA-256, that hold content: for one that came without a
// sum, such as a db file that was copied from a running member and may be torn.
// Damage inside keys and values is not seen. What is found is a *DamagedError
// of the object name; a failure of r is returned as such.
func CheckStructure(ctx context.Context, name string, r io.ReaderAt, size int64) error {
	wrap := func(what string, err error) error {
		if what != "" {
			err = fmt.Errorf("bucket %q: %w", what, err)
		}
		return &DamagedError{Object: name, Offset: -1, Err: err}
	}
	db, err := pages.OpenContext(ctx, r, size)
	if err != nil {
		return endOr(ctx, err, wrap("", err))
	}
	root := db.Root().Cursor()
	for key, value, err := root.First(); key != nil || err != nil; key, value, err = root.Next() {
		if err != nil {
			return endOr(ctx, err, wrap("", err))
		}
		if value != nil {
			continue
		}
		b, err := db.Bucket(key)
		if err == nil && b == nil {
			err = malformed("is none")
		}
		if err == nil {
			err = b.ForEach(func(_, _ []byte) error { return ctx.Err() })
		}
		if err != nil {
			return endOr(ctx, err, wrap(string(key), err))
		}
	}
	return nil
}

// endOr is err itself where the context has ended, and damage otherwise.
func endOr(ctx context.Context, err, damage error) error {
	if ctx.Err() != nil {
		return err
	}
	return damage
}
