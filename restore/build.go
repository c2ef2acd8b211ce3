package restore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
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
	return r.each(ctx, func(_ int, t *target) error {
		if err := r.complete(t); err != nil {
			return fmt.Errorf("build member %s in %s: %w", t.Name, t.data.root, err)
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
		if err := t.removeUnfinished(filepath.Join(t.data.root, name)); err != nil {
			return err
		}
	}
	return safedir.MkdirAll(filepath.Join(t.built(), "snap"))
}

// removeUnfinished removes what an unfinished restore built under a set-aside name.
// Another folder may have got that name since it was looked at: so it is removed in
// the staging folder, where names stay, and only if it is still the same.
func (t *target) removeUnfinished(path string) error {
	if state, _, err := memberStateOf(path); err != nil || state != stateUnfinished {
		return err
	}
	before, err := inodeOf(path)
	if err != nil {
		return err
	}
	to := filepath.Join(t.data.staging(), "old")
	if err := safedir.Rename(path, to); err != nil {
		return err
	}
	state, _, err := memberStateOf(to)
	if now, inodeErr := inodeOf(to); err != nil || inodeErr != nil || now != before || state != stateUnfinished {
		return errors.Join(err, inodeErr, safedir.Rename(to, path), fmt.Errorf("%s changed while it was looked at: something else works there: stop it, then run again", path))
	}
	return safedir.RemoveAll(to)
}

func (r *run) buildInOnePass(ctx context.Context) error {
	var paths []string
	for _, t := range r.targets {
		paths = append(paths, t.database())
	}
	if err := r.writeDatabases(ctx, paths); err != nil {
		return err
	}
	done := r.phase(PhaseEdit)
	outs := make([]edited, len(r.targets))
	err := r.each(ctx, func(i int, t *target) (err error) {
		outs[i], err = edit{cluster: clusterOf(r.plan), bump: r.plan.Bump, authOff: r.plan.AuthOff}.apply(t.database())
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
	return r.each(ctx, func(_ int, t *target) error {
		cluster := clusterOf(r.plan)
		withVersion(cluster, outs[0].clusterVersion)
		if err := writeLog(t.builtWAL(), filepath.Dir(t.database()), cluster, t.Member); err != nil {
			return fmt.Errorf("member %s: %w", t.Name, err)
		}
		return nil
	})
}

func (t *target) database() string { return filepath.Join(t.built(), "snap", "db") }

// writeDatabases writes the image to all paths: to each in the same pass, or
// to one and then as copies that share its blocks, where a file system can. The only
// one gets the very file of an image that was rebuilt, where that lies beside it.
func (r *run) writeDatabases(ctx context.Context, paths []string) error {
	defer r.phase(PhaseWrite)()
	if image, ok := r.image.(interface {
		Take(path string) (bool, error)
	}); ok && len(paths) == 1 {
		// Its pages were checked: by the replay, or by the host that they came from.
		if taken, err := image.Take(paths[0]); taken || err != nil {
			return err
		}
	}
	files := make([]*os.File, len(paths))
	var err error
	for i, path := range paths {
		if files[i], err = safedir.Create(path); err != nil {
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
	r.opts.Progress(PhaseWrite, done, r.plan.Source.Size)
}

func writers(files []*os.File) []io.Writer {
	out := make([]io.Writer, len(files))
	for i, f := range files {
		out[i] = safedir.NewWriteback(f)
	}
	return out
}

// canClone tries to clone a scratch file to every member's staging folder.
func canClone(targets []*target) bool {
	scratch := func(t *target) (*os.File, error) {
		return safedir.Create(filepath.Join(t.data.staging(), "clone-"+randomID()))
	}
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
	_ = safedir.Remove(f.Name())
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

// editError distinguishes a database that makes no sense, although its bytes are those
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
	if err := safedir.MkdirAll(own); err != nil {
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
	if err := t.data.give(like, t.built()); err != nil {
		return err
	}
	if t.wal == nil {
		return nil
	}
	if like, err = traitsFrom(r.plan.Owner, t.WALDir, t.live(), t.DataDir); err != nil {
		return err
	}
	like.fileMode = 0o600
	return t.wal.give(like, t.builtWAL())
}

// give gives what was built in the staging folder its owner and its mode, then the
// directory itself where it is new, and syncs all of it. The staging folder stays
// ours: nobody else gets at what was built before it is in its place.
func (s *site) give(like traits, built string) error {
	if err := like.apply(built); err != nil {
		return err
	}
	if s.fresh() {
		if err := like.applyToDir(s.dir, traits.applyTo); err != nil {
			return err
		}
	}
	for _, dir := range s.made {
		if err := like.applyToDir(dir, traits.applyOwner); err != nil {
			return err
		}
	}
	return errors.Join(syncTree(built), safedir.Sync(s.staging()), safedir.Sync(s.root))
}

// each does something for all members at once.
func (r *run) each(ctx context.Context, do func(int, *target) error) error {
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

const (
	chunkSize = 1 << 20
	// chunks bounds the memory of a fetch, and how far the fastest file may be
	// ahead of the slowest.
	chunks = 16
)

// fetch reads the image once and writes its bytes to all writers, each by a
// goroutine of its own. When it returns nil, the image's own checks passed, its
// size is the planned one, and so is its SHA-256 if the plan has one.
func fetch(ctx context.Context, image snapshot.Image, src Source, to []io.Writer, progress func(done int64)) (err error) {
	var sum hash.Hash
	if src.DatabaseSHA256 != "" {
		// Open compares the sum itself where the image knows one.
		if h, ok := image.(hashed); !ok || h.DatabaseSHA256() != src.DatabaseSHA256 {
			sum = sha256.New()
			to = append(slices.Clip(to), sum)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := image.Open(ctx)
	if err != nil {
		return fmt.Errorf("open %s: %w", image.Name(), err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()

	f := newFanOut(to)
	n, err := f.run(ctx, r, src.Size, progress)
	if err != nil {
		return fmt.Errorf("restore from %s: %w", image.Name(), err)
	}
	if n != src.Size {
		return &snapshot.DamagedError{Object: image.Name(), Offset: n, Err: fmt.Errorf("it ends after %d of %d bytes", n, src.Size)}
	}
	if sum != nil {
		if got := hex.EncodeToString(sum.Sum(nil)); got != src.DatabaseSHA256 {
			return &snapshot.DamagedError{Object: image.Name(), Offset: -1, Err: fmt.Errorf("its SHA-256 is %s, the plan has %s", got, src.DatabaseSHA256)}
		}
	}
	return nil
}

// fanOut hands chunks of one reader to several writers.
type fanOut struct {
	free  chan *chunk
	lanes []chan *chunk
	wg    sync.WaitGroup

	failed atomic.Pointer[error]
}

type chunk struct {
	buf  []byte
	len  int
	refs atomic.Int32
}

func newFanOut(to []io.Writer) *fanOut {
	f := &fanOut{free: make(chan *chunk, chunks)}
	for range chunks {
		f.free <- &chunk{buf: make([]byte, chunkSize)}
	}
	for _, w := range to {
		f.lane(w)
	}
	return f
}

// lane starts a writer. After an error it only gives chunks back, so that the
// reader never waits for it.
func (f *fanOut) lane(w io.Writer) {
	ch := make(chan *chunk, chunks)
	f.lanes = append(f.lanes, ch)
	f.wg.Go(func() {
		for c := range ch {
			if f.failed.Load() == nil {
				if _, err := w.Write(c.buf[:c.len]); err != nil {
					f.failed.CompareAndSwap(nil, &err)
				}
			}
			if c.refs.Add(-1) == 0 {
				f.free <- c
			}
		}
	})
}

// run reads until io.EOF and waits until all is written.
func (f *fanOut) run(ctx context.Context, r io.Reader, size int64, progress func(int64)) (int64, error) {
	n, err := f.feed(ctx, r, size, progress)
	for _, ch := range f.lanes {
		close(ch)
	}
	f.wg.Wait()
	if failed := f.failed.Load(); failed != nil {
		return n, *failed
	}
	return n, err
}

func (f *fanOut) feed(ctx context.Context, r io.Reader, size int64, progress func(int64)) (total int64, err error) {
	for err == nil {
		if err := ctx.Err(); err != nil {
			return total, err
		}
		if f.failed.Load() != nil {
			return total, nil // run reports it
		}
		c := <-f.free
		// Not io.ReadFull: it cannot distinguish a reader that failed with
		// io.ErrUnexpectedEOF from one that ended.
		for c.len = 0; c.len < len(c.buf) && err == nil; {
			var n int
			n, err = r.Read(c.buf[c.len:])
			c.len += n
		}
		total += int64(c.len)
		if total > size {
			return total, fmt.Errorf("it has more than the planned %d bytes", size)
		}
		c.refs.Store(int32(len(f.lanes)))
		for _, ch := range f.lanes {
			ch <- c
		}
		progress(total)
	}
	if err == io.EOF {
		err = nil
	}
	return total, err
}
