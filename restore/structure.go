package restore

import (
	"context"
	"errors"
	"os"

	"github.com/requorum/requorum/snapshot"
)

// checkStructure goes through all pages of a database that came without a sum.
func checkStructure(ctx context.Context, image snapshot.Image, path string) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return snapshot.CheckStructure(ctx, image.Name(), f, image.Size())
}
