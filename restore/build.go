package restore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/snapshot"
)

// build makes the member folder of every target in its staging folder, blocked,
// with owners and labels, and syncs all of it.
func (r *run) build(ctx context.Context) error {
	for _, t := range r.targets {
		if err := t.prepare(); err != nil {
			return fmt.Errorf("prepare member %s in %s: %w", t.Name, t.DataDir, err)
		}
	}
	var err error
	if r.plan.Engine == EngineEtcdutl {
		err = r.buildWithEtcdutl(ctx)
	} else {
		err = r.buildInOnePass(ctx)
	}
	if err != nil {
		return err
	}
	defer r.phase(PhaseSync)()
	return r.each(ctx, func(t *target) error {
		if err := r.complete(t); err != nil {
			return fmt.Errorf("build member %s in %s: %w", t.Name, t.data.staging(), err)
		}
		return nil
	})
}

// prepare removes the leftovers of dead runs and makes room.
func (t *target) prepare() error {
	for _, s := range t.sites() {
		if err := s.sweep(); err != nil {
			return err
		}
	}
	// A run that was killed just before it swapped has left what it built under
	// the name that the user's folder was to get.
	names, err := entries(t.data.root)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, memberAsidePrefix) {
			continue
		}
		path := filepath.Join(t.data.root, name)
		if state, _, err := memberStateOf(path); err != nil {
			return err
		} else if state == stateUnfinished {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return os.MkdirAll(filepath.Join(t.built(), "snap"), 0o700)
}

func (r *run) buildInOnePass(ctx context.Context) error {
	if err := r.writeDatabases(ctx); err != nil {
		return err
	}
	done := r.phase(PhaseEdit)
	outs := make([]edited, len(r.targets))
	err := r.eachIndexed(ctx, func(i int, t *target) (err error) {
		outs[i], err = edit{cluster: clusterOf(r.plan), bump: r.plan.Bump}.apply(t.database())
		return editError(r.image, err)
	})
	if err != nil {
		return err
	}
	if err := outs[0].compare(r.image, r.plan.Source.Facts); err != nil {
		return err
	}
	r.downgrade = outs[0].downgrade
	done()
	defer r.phase(PhaseLog)()
	return r.each(ctx, func(t *target) error {
		cluster := clusterOf(r.plan)
		withVersion(cluster, outs[0].clusterVersion)
		if err := writeLog(t.builtWAL(), filepath.Dir(t.database()), cluster, t.Member); err != nil {
			return fmt.Errorf("member %s: %w", t.Name, err)
		}
		return nil
	})
}

func (t *target) database() string { return filepath.Join(t.built(), "snap", "db") }

// writeDatabases writes the image to all members: to each in the same pass, or
// to one and then as copies that share its blocks, where a file system can.
func (r *run) writeDatabases(ctx context.Context) error {
	defer r.phase(PhaseWrite)()
	files := make([]*os.File, len(r.targets))
	var err error
	for i, t := range r.targets {
		if files[i], err = os.OpenFile(t.database(), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return errors.Join(err, closeAll(files))
		}
	}
	fetched, cloned := files, []*os.File(nil)
	if len(files) > 1 && canClone(r.targets) {
		fetched, cloned = files[:1], files[1:]
	}
	err = fetch(ctx, r.image, r.plan.Source, writers(fetched), r.writeProgress)
	if err == nil && !r.plan.Source.Summed {
		err = checkStructure(ctx, r.image, files[0].Name())
	}
	for _, f := range cloned {
		if err == nil && !clone(f, files[0]) {
			err = fmt.Errorf("clone %s to %s: the file system did it before and refuses now", files[0].Name(), f.Name())
		}
	}
	return errors.Join(err, closeAll(files))
}

func (r *run) writeProgress(done int64) {
	r.opts.Progress(Progress{PhaseWrite, done, r.plan.Source.Size})
}

func writers(files []*os.File) []io.Writer {
	out := make([]io.Writer, len(files))
	for i, f := range files {
		out[i] = &writebackFile{File: f}
	}
	return out
}

// canClone tries to clone a scratch file to every member's staging folder.
func canClone(targets []*target) bool {
	scratch := func(t *target) (*os.File, error) { return os.CreateTemp(t.data.staging(), "clone-") }
	src, err := scratch(targets[0])
	if err != nil {
		return false
	}
	defer closeAndRemove(src)
	if _, err := src.Write(make([]byte, 1<<16)); err != nil {
		return false
	}
	for _, t := range targets[1:] {
		dst, err := scratch(t)
		if err != nil {
			return false
		}
		ok := clone(dst, src)
		closeAndRemove(dst)
		if !ok {
			return false
		}
	}
	return true
}

// closeAndRemove is for scratch files in staging, which goes as a whole later.
func closeAndRemove(f *os.File) {
	_ = f.Close()
	_ = os.Remove(f.Name())
}

func closeAll(files []*os.File) error {
	var errs []error
	for _, f := range files {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// editError tells a database that makes no sense, although its bytes are those
// that were stored, from a disk that failed.
func editError(image snapshot.Image, err error) error {
	var path *fs.PathError
	var errno syscall.Errno
	if err == nil || errors.As(err, &path) || errors.As(err, &errno) {
		return err
	}
	return &snapshot.DamagedError{Object: image.Name(), Offset: -1, Err: err}
}

// compare holds what the database said against its description.
func (out edited) compare(image snapshot.Image, want snapshot.Facts) error {
	if out.revision != want.Revision {
		return editError(image, fmt.Errorf("its last revision is %d, its description has %d", out.revision, want.Revision))
	}
	if fmt.Sprint(out.alarms) != fmt.Sprint(want.Alarms) {
		return editError(image, fmt.Errorf("its alarms are %v, its description has %v", out.alarms, want.Alarms))
	}
	return nil
}

// complete adds blocker and record, owners and labels, and syncs.
func (r *run) complete(t *target) error {
	own := filepath.Join(t.built(), "wal")
	if err := os.MkdirAll(own, 0o700); err != nil {
		return err
	}
	if err := writeBlocker(own, newBlocker(r.plan, t.Member)); err != nil {
		return err
	}
	rec := record{Member: t.Name, Only: r.opts.Only, Plan: r.plan}
	if err := writeRecord(filepath.Join(t.built(), unfinishedName), rec); err != nil {
		return err
	}
	like, err := traitsFrom(r.plan.Owner, t.live(), t.DataDir)
	if err != nil {
		return err
	}
	root := t.built()
	if t.data.fresh() {
		root = t.data.root
	}
	if err := like.apply(root); err != nil {
		return err
	}
	for _, dir := range t.data.made {
		if err := like.applyOwner(dir); err != nil {
			return err
		}
	}
	if err := syncTree(root); err != nil {
		return err
	}
	if t.wal == nil {
		return nil
	}
	if like, err = traitsFrom(r.plan.Owner, t.WALDir, t.live(), t.DataDir); err != nil {
		return err
	}
	like.fileMode = 0o600
	root = t.wal.staging()
	if t.wal.fresh() {
		root = t.wal.root
	}
	if err := like.apply(root); err != nil {
		return err
	}
	for _, dir := range t.wal.made {
		if err := like.applyOwner(dir); err != nil {
			return err
		}
	}
	return syncTree(root)
}

// each does something for all members at once.
func (r *run) each(ctx context.Context, do func(*target) error) error {
	return r.eachIndexed(ctx, func(_ int, t *target) error { return do(t) })
}

func (r *run) eachIndexed(ctx context.Context, do func(int, *target) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for i, t := range r.targets {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return do(i, t)
		})
	}
	return g.Wait()
}
