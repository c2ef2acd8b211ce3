package verify

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/verify/report"
)

// File proves a file of `etcdctl snapshot save`, or a copy of a member's db, either also
// compressed with gzip, zip or zstd. It only reads it. A bare db has no checksum, so that level is Unchecked.
func File(ctx context.Context, path string, req Request) (*report.Report, error) {
	req, err := req.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &run{Request: req, report: req.newReport(path)}
	if info, err := safedir.Stat(path); err != nil {
		return nil, err
	} else if info.IsDir() {
		return nil, fmt.Errorf("%s is a folder: want a snapshot file; --data-dir verifies a member's data directory", path)
	}
	image, err := snapshot.OpenAny(ctx, path, r.ScratchDir, func(done, total int64) { r.Progress("unpack "+path, done, total) })
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		r.refuseFile(path, err)
		r.noteNextStep("restore from another snapshot, not from this file")
		return r.finish(), nil
	}
	if err := errors.Join(r.runFileLevels(ctx, path, image), image.Close()); err != nil {
		return nil, err
	}
	r.noteNextStep("restore from another snapshot, not from this file")
	return r.finish(), nil
}

// refuseFile reports a file that cannot be opened, or is none of a snapshot.
func (r *run) refuseFile(path string, err error) {
	c := report.Check{Level: report.Checksum, Object: path, Compared: "the file's size with that of a snapshot"}
	took(&c, report.KindSize, path, err)
	if r.add(c).Status == report.Damaged {
		r.refuseHigher(path, "its bytes are damaged: see the level checksum")
		return
	}
	r.refuseHigher(path, err.Error())
}

// runFileLevels takes a file up the levels. Its pages are looked at while it is read
// for its checksum, so that the disk gives it once; what is wrong with them is
// reported also where the checksum is wrong.
func (r *run) runFileLevels(ctx context.Context, path string, image *snapshot.File) error {
	if !r.Level.Includes(report.Structure) {
		_, err := r.checkSum(ctx, path, image)
		return err
	}
	progress := jointProgress{report: r.Progress, phase: "read " + path + " and check its structure", total: image.Size()}
	if image.HasHash() {
		progress.total += image.Size()
	}
	beside := &run{Request: r.Request, report: r.newReport(path)}
	summing := &run{Request: r.Request, report: r.report}
	beside.Progress, summing.Progress = progress.part(), progress.part()
	ended := make(chan error, 1)
	go func() {
		_, err := beside.checkPages(ctx, path, image, nil, nil)
		ended <- err
	}()
	c, err := summing.checkSum(ctx, path, image)
	if err := errors.Join(err, <-ended); err != nil {
		return err
	}
	damaged := c.Status == report.Damaged
	for _, b := range beside.report.Checks {
		if damaged && b.Status == report.Passed {
			// A level includes those below it.
			b.Reason = "its pages show no fault, but its bytes are damaged: see the level checksum"
		}
		r.add(b)
	}
	for _, n := range beside.report.Notes {
		r.note("%s", n)
	}
	if r.Level.Includes(report.Replay) {
		r.note("the replay level needs an archived log: a single file has none, so that level was left out; looked at: %s. A repository, or a member's data directory (--data-dir), has one", r.otherLevels())
	}
	if !r.Level.Includes(report.Drill) {
		return nil
	}
	if damaged {
		r.add(report.Check{Level: report.Drill, Object: path, Reason: "its bytes are damaged: see the level checksum"})
		return nil
	}
	return r.drill(ctx, drilled{name: path, image: image})
}

// checkSum reads a file whole and compares the SHA-256 at its end.
func (r *run) checkSum(ctx context.Context, path string, image *snapshot.File) (*report.Check, error) {
	return r.check(ctx, report.Checksum, path, func(c *report.Check) error {
		if !image.HasHash() {
			unchecked(c, errors.New("it is a bare database without a checksum: use a file of 'etcdctl snapshot save', or a backup in a repository"))
			return nil
		}
		c.Compared = "the database with the SHA-256 that etcd put after it"
		f, err := image.Open(ctx)
		if err != nil {
			took(c, report.KindObject, path, err)
			return nil
		}
		_, err = io.Copy(r.counter(c, path, image.Size()), f)
		took(c, report.KindObject, path, errors.Join(err, f.Close()))
		return nil
	})
}
