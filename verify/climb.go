package verify

import (
	"context"
	"os"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/drill"
	"github.com/requorum/requorum/verify/replaying"
	"github.com/requorum/requorum/verify/report"
)

// climb takes a backup whose bytes are proved up the higher rungs. A rung that
// fails does not keep the next one from being tried: all faults are listed.
func (e *examination) climb(ctx context.Context, name string, m *snapshot.Manifest, unpacked *scratchCopy) error {
	hash, err := e.checkStructure(ctx, name, unpacked.path, m)
	if err != nil {
		return err
	}
	if e.Live != nil {
		if err := e.checkLive(ctx, name, m, unpacked.path, hash); err != nil {
			return err
		}
	}
	if !e.Rung.Includes(report.Replay) {
		return nil
	}
	c, err := replaying.Check(ctx, e.repo, e.catalog, m, e.replayOptions())
	if err := e.took(ctx, report.Replay, name, c, err); err != nil {
		return err
	}
	return e.checkDrill(ctx, name, unpacked.path)
}

// checkDrill drills a database image in a file.
func (r *run) checkDrill(ctx context.Context, name, path string) error {
	if !r.Rung.Includes(report.Drill) {
		return nil
	}
	image, err := snapshot.OpenFile(path)
	if err != nil {
		return r.took(ctx, report.Drill, name, report.Check{}, err)
	}
	return r.drill(ctx, name, image)
}

func (r *run) drill(ctx context.Context, name string, image snapshot.Image) error {
	c, err := drill.Run(ctx, image, drill.Options{ScratchDir: r.ScratchDir, Object: name, Progress: r.Progress, Logger: r.Logger})
	return r.took(ctx, report.Drill, name, c, err)
}

// took adds the check of a part of verify. Its error is why it could not be done,
// unless ctx has ended.
func (r *run) took(ctx context.Context, rung report.Rung, object string, c report.Check, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if c.Object == "" {
		c = report.Check{Rung: rung, Object: object}
	}
	if err != nil {
		c.Reason = err.Error()
		if c.Status != report.Damaged {
			c.Status = report.Unchecked
		}
	}
	r.report.Checks = append(r.report.Checks, c)
	return nil
}

// openFor opens a file to be read in any order.
func openFor(path string) (*os.File, int64, error) {
	image, err := snapshot.OpenFile(path)
	if err != nil {
		return nil, 0, err
	}
	f, err := os.Open(path)
	return f, image.Size(), err
}
