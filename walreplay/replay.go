package walreplay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/walreplay/engine"
	"github.com/requorum/requorum/walreplay/segment"
)

// replayed is a scratch database after a replay.
type replayed struct {
	scratch *ScratchFolder
	base    string // the file that is replayed onto: the scratch database, or a member's own
	stopped engine.Stopped
	entries uint64
	times   []PhaseTime
	hash    snapshot.HashKV // of the database, where it was computed while that was written
	// notBulk is why the log was not replayed in bulk, though that was wanted.
	notBulk error
	// noCompactKey: it is Kubernetes', and lacks what API servers compact by.
	noCompactKey bool
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

// replay applies the entries after an image, up to last, and keeps the database that comes of
// it in a scratch folder, which the caller removes.
func (h *History) replay(ctx context.Context, b *Base, phase Phase, o Options, run engine.RunOptions) (_ *replayed, err error) {
	s, err := NewScratchFolder(o.ScratchDir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Remove())
		}
	}()
	log := h.log.size(b.Index()+1, run.Last)
	need := grown(b, log) + scratchSlack
	if phase == PhaseSearch {
		need += log // which is kept
	}
	r := &replayed{scratch: s, base: s.database()}
	lies := o.lies(b, run)
	if lies == "" && o.bulk(run) { // which does not change the copy, but writes another database
		if err := s.Needs(need + grown(b, log)); err != nil {
			if o.replayEngine() == BothEngines {
				return nil, err
			}
			r.notBulk = err
		}
	}
	if err := s.Needs(need); err != nil {
		return nil, err
	}
	began := time.Now()
	if lies != "" {
		r.base, err = lies, checkImage(ctx, b, lies, o)
	} else {
		err = copyImage(ctx, b, r.base, o)
	}
	if err != nil {
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

// lies is the file of a member's database that is replayed in bulk from where it lies; empty
// where a copy is needed.
func (o Options) lies(b *Base, run engine.RunOptions) string {
	f, ok := b.Image.(*snapshot.File)
	if !ok || f.HasHash() || !o.bulk(run) || o.replayEngine() == BothEngines {
		return ""
	}
	return f.Name()
}

// copyImage writes the image to a file, after all its own checks.
func copyImage(ctx context.Context, b *Base, path string, o Options) (err error) {
	f, err := safedir.Create(path)
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
		n, err := r.Read(p)
		done += int64(n)
		o.progress(PhaseBase, done, b.Image.Size())
		return n, err
	}), make([]byte, copyBuffer))
	if err != nil {
		return fmt.Errorf("copy %s to %s: %w", b.Image.Name(), path, err)
	}
	return checkImage(ctx, b, path, o)
}

// checkImage checks what the caller wants to be checked, or goes through the pages of an
// image that has no checksum: the engine is owed a sound one.
func checkImage(ctx context.Context, b *Base, path string, o Options) (err error) {
	if b.Manifest != nil && o.CheckBase == nil {
		return nil
	}
	f, err := safedir.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if o.CheckBase != nil {
		return o.CheckBase(ctx, b.Name, f, b.Image.Size())
	}
	return snapshot.CheckStructure(ctx, b.Name, f, b.Image.Size())
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// ReplayEngine is what applies a log.
type ReplayEngine string

// The engines.
const (
	// EtcdEngine is etcd's own applier.
	EtcdEngine ReplayEngine = "etcd"
	// BulkEngine is engine.Bulk, and etcd's applier where that does not know something.
	BulkEngine ReplayEngine = "bulk"
	// BothEngines has both, and compares what they make: it takes as long as both.
	BothEngines ReplayEngine = "both"
)

// DefaultEngine replays where nobody asks for another.
const DefaultEngine = BulkEngine

func (o Options) replayEngine() ReplayEngine {
	if o.Engine == "" {
		return DefaultEngine
	}
	return o.Engine
}

// bulk says whether a run is to be replayed in bulk: one that is watched cannot be.
func (o Options) bulk(run engine.RunOptions) bool {
	return o.replayEngine() != EtcdEngine && run.Watch == nil
}

// apply replays the log onto b.
func (h *History) apply(ctx context.Context, b *Base, r *replayed, phase Phase, o Options, run engine.RunOptions) error {
	path := r.scratch.database()
	open := func() (engine.Replayer, error) { return engine.Open(ctx, path, o.engine(b)) }
	byEtcd := func() error {
		err := h.applyBy(ctx, b, r, phase, o, run, open)
		var past *engine.PastError
		if !errors.As(err, &past) {
			return err
		}
		// Only now it is known which entry is the last.
		if err := safedir.Remove(path); err != nil {
			return err
		}
		if err := copyImage(ctx, b, path, o); err != nil {
			return err
		}
		end := run
		end.Last, end.MaxRevision = past.Index-1, 0
		return h.applyBy(ctx, b, r, phase, o, end, open)
	}
	if !o.bulk(run) || r.notBulk != nil {
		return byEtcd()
	}
	out := path + "-bulk"
	var bulk *engine.Bulk
	err := h.applyBy(ctx, b, r, phase, o, run, func() (_ engine.Replayer, err error) {
		bulk, err = engine.OpenBulk(ctx, r.base, out, o.engine(b))
		return bulk, err
	})
	switch {
	case errors.Is(err, engine.ErrNotBulk):
		r.notBulk = err
		if r.base != path {
			if err := copyImage(ctx, b, path, o); err != nil {
				return err
			}
		}
		return byEtcd()
	case err != nil:
		return err
	case o.replayEngine() == BulkEngine:
		r.hash = bulk.HashKV()
		if r.base == path { // to rename over it would have the file system write all at once
			if err := safedir.Remove(path); err != nil {
				return err
			}
		}
		return safedir.Rename(out, path)
	}
	stopped := r.stopped
	if err := byEtcd(); err != nil {
		return err
	}
	if err = engine.Same(path, out); err == nil && stopped != r.stopped {
		err = fmt.Errorf("one is at %+v, the other at %+v", r.stopped, stopped)
	}
	if err != nil {
		return fmt.Errorf("etcd's applier and the bulk engine made different databases of the log: %w: this is a mistake in requorum, please report it; --replay-engine %s does without the bulk engine", err, EtcdEngine)
	}
	return safedir.Remove(out)
}

// applyBy replays the log by one engine.
func (h *History) applyBy(ctx context.Context, b *Base, r *replayed, phase Phase, o Options, run engine.RunOptions, open func() (engine.Replayer, error)) (err error) {
	eng, err := open()
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
	r.stopped, err = engine.Run(ctx, eng, h.following(ctx, b, run.Last), run)
	r.entries = r.stopped.Index - first
	if err == nil && run.MaxRevision == 0 && r.stopped.Index != run.Last {
		err = fmt.Errorf("the log ended after entry %d, not %d", r.stopped.Index, run.Last)
	}
	if err == nil {
		r.noCompactKey, err = lacksCompactKey(ctx, eng)
	}
	if endsLog(err) {
		err = &LogError{Good: Near{Index: r.stopped.Index, Revision: r.stopped.Revision}, Err: err}
	}
	closed = true
	return errors.Join(err, eng.Close())
}

// endsLog distinguishes an error that is about the log itself, so that what is before it
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
