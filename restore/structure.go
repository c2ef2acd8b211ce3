package restore

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/snapshot/pages"
)

// checkStructure goes through all pages of a database that came without a sum:
// a db file that was copied from a running member may be torn.
func checkStructure(ctx context.Context, image snapshot.Image, path string) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	damaged := func(err error) error {
		return &snapshot.DamagedError{Object: image.Name(), Offset: -1, Err: err}
	}
	db, err := pages.Open(f, image.Size())
	if err != nil {
		return damaged(err)
	}
	root := db.Root().Cursor()
	for name, value, err := root.First(); name != nil || err != nil; name, value, err = root.Next() {
		if err != nil {
			return damaged(err)
		}
		if value != nil {
			continue
		}
		b, err := db.Bucket(name)
		if err != nil || b == nil {
			return damaged(fmt.Errorf("bucket %q: %w", name, errors.Join(err, errNoBucket(b))))
		}
		if err := b.ForEach(func(_, _ []byte) error { return ctx.Err() }); err != nil {
			if ctx.Err() != nil {
				return err
			}
			return damaged(fmt.Errorf("bucket %q: %w", name, err))
		}
	}
	return nil
}

func errNoBucket(b *pages.Bucket) error {
	if b == nil {
		return errors.New("is none")
	}
	return nil
}
