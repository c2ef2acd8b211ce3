package verify

import (
	"context"
	"errors"
	"strings"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/structure"
)

// checkStructure takes the database in a file up the structure rung, with a
// manifest to compare it with where there is one. The hash is what was computed,
// without a revision where it could not be.
func (r *run) checkStructure(ctx context.Context, name, path string, m *snapshot.Manifest) (hash snapshot.HashKV, err error) {
	result, err := r.readStructure(ctx, name, path, m)
	return result.HashKV, err
}

// readStructure is checkStructure with all that came out of it.
func (r *run) readStructure(ctx context.Context, name, path string, m *snapshot.Manifest) (result structure.Result, err error) {
	_, err = r.check(ctx, report.Structure, name, func(c *report.Check) error {
		f, size, err := openFor(path)
		if err != nil {
			took(c, report.KindPage, name, err)
			return nil
		}
		read, err := structure.Check(ctx, f, size, structure.Options{
			Manifest: m, Progress: func(done, total int64) { r.Progress("check the structure of "+name, done, total) },
		})
		if err := errors.Join(err, f.Close()); err != nil {
			unchecked(c, err)
			return nil
		}
		result = read
		c.Bytes, c.Findings, c.Compared = result.Bytes, result.Findings, strings.Join(result.Compared, "; ")
		for _, n := range result.Notes {
			r.note("%s: %s", name, n)
		}
		return nil
	})
	return result, err
}
