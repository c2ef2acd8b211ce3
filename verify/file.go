package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// File proves a file of `etcdctl snapshot save`, or a copy of a member's db. It
// only reads it. A bare db has no checksum, so that rung is Unchecked.
func File(ctx context.Context, path string, req Request) (*report.Report, error) {
	req, err := req.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &run{Request: req, report: req.newReport(path)}
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if info.IsDir() {
		return nil, fmt.Errorf("%s is a folder: want a snapshot file; --data-dir verifies a member's data directory", path)
	}
	c, err := r.check(ctx, report.Checksum, path, func(c *report.Check) error {
		r.readFile(ctx, c, path)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if c.Status == report.Damaged {
		r.refuseHigher(path, "its bytes are damaged: see the rung checksum")
		return r.finish(), nil
	}
	if err := r.climbFile(ctx, path); err != nil {
		return nil, err
	}
	return r.finish(), nil
}

// readFile reads it whole and compares the SHA-256 at its end.
func (r *run) readFile(ctx context.Context, c *report.Check, path string) {
	c.Compared = "the file's size with that of a snapshot"
	image, err := snapshot.OpenFile(path)
	if err != nil {
		took(c, report.KindSize, path, err)
		return
	}
	c.Compared = "the database with the SHA-256 that etcd put behind it"
	if !image.HasHash() {
		c.Compared = ""
		unchecked(c, errors.New("it is a bare database without a checksum: use a file of 'etcdctl snapshot save', or a backup in a repository"))
		return
	}
	f, err := image.Open(ctx)
	if err != nil {
		took(c, report.KindObject, path, err)
		return
	}
	_, err = io.Copy(&counter{run: r, check: c, phase: "read " + path, total: image.Size()}, readerWith(ctx, f))
	took(c, report.KindObject, path, errors.Join(err, f.Close()))
}

// climbFile takes a file up the rungs above checksum.
func (r *run) climbFile(ctx context.Context, path string) error {
	if !r.Rung.Includes(report.Structure) {
		return nil
	}
	if _, err := r.checkStructure(ctx, path, path, nil); err != nil {
		return err
	}
	if r.Rung.Includes(report.Replay) {
		r.add(report.Check{Rung: report.Replay, Object: path, Reason: "a single file has no log and no snapshot before it to be replayed: verify the repository, or the member's data directory with --data-dir"})
	}
	return r.checkDrill(ctx, path, path)
}

// readerWith stops reading when ctx has ended.
func readerWith(ctx context.Context, r io.Reader) io.Reader { return &contextReader{ctx, r} }

type contextReader struct {
	ctx context.Context // io.Reader has no room for one
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}
