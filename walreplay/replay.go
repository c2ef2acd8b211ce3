package walreplay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/engine"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// replayed is a scratch database after a replay.
type replayed struct {
	scratch *scratch
	stopped engine.Stopped
	sum     raftlog.Sum // over the replayed entries
	entries uint64
	times   []PhaseTime
}

// copyBuffer is how much of an image is copied at once.
const copyBuffer = 1 << 20

// scratchSlack is what a database file is larger than what is in it: bbolt grows
// it in steps of 16 MiB.
const scratchSlack = 32 << 20

// grown is about the size of a database after a replay of so many bytes of log.
// Every entry becomes a row, with pages that are half full at worst.
func grown(b *Base, log int64) int64 {
	var image int64
	if b.Image != nil {
		image = b.Image.Size()
	}
	return image + 2*log
}

// replay copies an image to a scratch folder and applies the entries after it,
// up to last, to the copy. The caller removes the scratch.
func (h *History) replay(ctx context.Context, b *Base, phase Phase, o Options, run engine.RunOptions) (_ *replayed, err error) {
	s, err := newScratch(o.ScratchDir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.remove())
		}
	}()
	if err := s.needs(grown(b, h.log.size(b.Index()+1, run.Last)) + scratchSlack); err != nil {
		return nil, err
	}
	r := &replayed{scratch: s}
	began := time.Now()
	if err := copyImage(ctx, b, s.database(), o); err != nil {
		return nil, err
	}
	r.times = append(r.times, PhaseTime{PhaseBase, time.Since(began)})
	began = time.Now()
	if err := h.apply(ctx, b, r, phase, o, run); err != nil {
		return nil, err
	}
	r.times = append(r.times, PhaseTime{phase, time.Since(began)})
	return r, nil
}

// copyImage writes the image to a file, after all its own checks.
func copyImage(ctx context.Context, b *Base, path string, o Options) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if b.Image == nil {
		return nil // an empty file is the database before the first entry
	}
	r, err := b.Image.Open(ctx)
	if err != nil {
		return fmt.Errorf("open %s: %w", b.Image.Name(), err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	var done int64
	_, err = io.CopyBuffer(struct{ io.Writer }{f}, readFunc(func(p []byte) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		n, err := r.Read(p)
		done += int64(n)
		o.progress(PhaseBase, done, b.Image.Size())
		return n, err
	}), make([]byte, copyBuffer))
	if err != nil {
		return fmt.Errorf("copy %s to %s: %w", b.Image.Name(), path, err)
	}
	return checkCopy(ctx, b, path, o)
}

// checkCopy goes through the pages of an image that has no checksum, and does what
// the caller wants to be checked: the engine is owed a sound one.
func checkCopy(ctx context.Context, b *Base, path string, o Options) (err error) {
	if b.Manifest != nil && o.CheckBase == nil {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if b.Manifest == nil {
		err = snapshot.CheckStructure(ctx, b.Name, f, b.Image.Size())
	}
	if err == nil && o.CheckBase != nil {
		err = o.CheckBase(ctx, b.Name, f, b.Image.Size())
	}
	return err
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// apply replays the log onto the copy of b.
func (h *History) apply(ctx context.Context, b *Base, r *replayed, phase Phase, o Options, run engine.RunOptions) (err error) {
	eng, err := engine.Open(ctx, r.scratch.database(), o.engine(b))
	if err != nil {
		return err
	}
	closed := false
	defer func() {
		if !closed {
			err = errors.Join(err, eng.Close())
		}
	}()
	first, _ := eng.Applied()
	if first != b.Index() {
		return &snapshot.DamagedError{Object: b.Name, Offset: -1, Err: fmt.Errorf("its database is at raft index %d, its description has %d", first, b.Index())}
	}
	total := int64(run.Last - first)
	o.progress(phase, 0, total)
	run.Progress = func(index uint64) { o.progress(phase, int64(index-first), total) }
	var sums sumRing
	r.stopped, err = engine.Run(ctx, eng, sums.over(h.following(ctx, b, run.Last)), run)
	r.entries = r.stopped.Index - first
	if err == nil && r.entries > 0 {
		r.sum, err = sums.at(r.stopped.Index)
	}
	if err == nil && run.MaxRevision == 0 && r.stopped.Index != run.Last {
		err = fmt.Errorf("the log ended after entry %d, not %d", r.stopped.Index, run.Last)
	}
	if endsLog(err) {
		err = &LogError{Good: Near{Index: r.stopped.Index, Revision: r.stopped.Revision}, Err: err}
	}
	closed = true
	return errors.Join(err, eng.Close())
}

// endsLog tells an error that is about the log itself, so that what is before it
// can be restored, from one that trying again may mend.
func endsLog(err error) bool {
	var (
		damaged *snapshot.DamagedError
		missing *segment.MissingError
		fork    *segment.ForkError
		entry   *engine.EntryError
		order   *engine.OrderError
	)
	return errors.As(err, &damaged) || errors.As(err, &missing) || errors.As(err, &fork) || errors.As(err, &entry) || errors.As(err, &order)
}
