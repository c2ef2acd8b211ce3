package retention

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
)

// DeniedError says that the credentials lack the right to delete.
type DeniedError struct {
	Repository string
	Err        error
}

func (e *DeniedError) Error() string {
	return fmt.Sprintf("pruning %s needs the right to delete objects in it (in S3: s3:DeleteObject and, where the bucket keeps versions, s3:DeleteObjectVersion on all of the prefix; in a folder: to write in it): %v", e.Repository, e.Err)
}

func (e *DeniedError) Unwrap() error { return e.Err }

// deleters is how many deletions are under way at once, and batch how many are
// begun before all of them have ended.
const (
	deleters = 8
	batch    = 64
)

// probe writes a scratch object and deletes it: it tells the time by the place's
// own clock, and that deleting is allowed, before anything is recorded.
func (x *execution) probe(ctx context.Context) (time.Time, error) {
	var random [6]byte
	rand.Read(random[:]) // never fails, by its documentation
	name := "scratch/prune-" + hex.EncodeToString(random[:])
	o, err := sinks.Put(ctx, x.repo.Sink(), name, []byte("requorum prune reads the time from this object and deletes it\n"), sinks.CreateOptions{})
	if err != nil {
		return time.Time{}, fmt.Errorf("try what pruning needs: %w", x.explain(err))
	}
	clock := o.ModTime
	if clock.IsZero() {
		if o, err = x.repo.Sink().Stat(ctx, name); err != nil {
			return time.Time{}, fmt.Errorf("try what pruning needs: %w", err)
		}
		clock = o.ModTime
	}
	if err := x.repo.Sink().Delete(ctx, name); err != nil && !errors.Is(err, sinks.ErrLocked) {
		return time.Time{}, fmt.Errorf("try what pruning needs: %w", x.explain(err))
	}
	return clock, nil
}

func (x *execution) explain(err error) error {
	if errors.Is(err, sinks.ErrDenied) {
		return &DeniedError{x.repo.String(), err}
	}
	return err
}

// remove deletes an object. A locked one stays, and is no error.
func (x *execution) remove(ctx context.Context, name string) (gone bool, err error) {
	err = x.repo.Sink().Delete(ctx, name)
	switch {
	case errors.Is(err, sinks.ErrLocked):
		x.locked()
		return false, nil
	case err != nil:
		return false, x.explain(err)
	}
	return true, nil
}

func (x *execution) locked() {
	x.lock.Lock()
	defer x.lock.Unlock()
	x.result.Locked++
}

// removeAll deletes objects, batch by batch in their order, and returns how many
// are gone.
func (x *execution) removeAll(ctx context.Context, names []string) (int, error) {
	var gone atomic.Int64
	for part := range slices.Chunk(names, batch) {
		err := each(ctx, part, func(ctx context.Context, name string) error {
			ok, err := x.remove(ctx, name)
			if ok {
				gone.Add(1)
			}
			return err
		})
		if err != nil {
			return int(gone.Load()), err
		}
	}
	return int(gone.Load()), nil
}

// removeInOrder is removeAll that ends behind the batch in which something is
// locked: what stays is then an end of the whole, and the rest goes later.
func (x *execution) removeInOrder(ctx context.Context, names []string) (gone int, err error) {
	for part := range slices.Chunk(names, batch) {
		n, err := x.removeAll(ctx, part)
		if gone += n; err != nil || n < len(part) {
			return gone, err
		}
	}
	return gone, nil
}

// each does something with all of a few, some at once. The first error ends it.
func each[T any](ctx context.Context, all []T, do func(context.Context, T) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(deleters)
	for _, one := range all {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return do(ctx, one)
		})
	}
	return group.Wait()
}

func indexes[T any](all []T) []int {
	var n []int
	for i := range all {
		n = append(n, i)
	}
	return n
}

// removeLeftovers deletes the objects of backups that were let go long enough
// ago, and those of nobody. Without a grace time what was let go just now goes at
// once.
func (x *execution) removeLeftovers(ctx context.Context, all []Leftover, letGo []Let) error {
	for _, l := range all {
		if l.Kind != Unnamed {
			// Whoever took so long may have finished it.
			if _, err := x.repo.Sink().Stat(ctx, repository.ManifestName(l.Timeline, l.Backup)); err == nil {
				continue
			} else if !errors.Is(err, sinks.ErrNotFound) {
				return err
			}
		}
		if err := x.removeObjects(ctx, l.Objects, l.Bytes); err != nil {
			return err
		}
	}
	if x.policy.Grace > 0 {
		return nil
	}
	for _, l := range letGo {
		manifest := repository.ManifestName(l.Timeline, l.Backup)
		var names []string
		for o, err := range x.repo.Sink().List(ctx, manifest[:len(manifest)-len("manifest.json")], "") {
			if err != nil {
				return fmt.Errorf("list what is left of backup %s: %w", l.Backup, err)
			}
			names = append(names, o.Name)
		}
		if err := x.removeObjects(ctx, names, l.Bytes); err != nil {
			return err
		}
	}
	return nil
}

func (x *execution) removeObjects(ctx context.Context, names []string, bytes int64) error {
	n, err := x.removeAll(ctx, names)
	x.result.Objects += n
	if err == nil && n == len(names) {
		x.result.BytesGone += bytes
	}
	return err
}

// removeLog records that the log goes, and deletes it from its beginning on, so
// that whatever is left is an end of it.
func (x *execution) removeLog(ctx context.Context, l LogCut) error {
	t, last := x.inv.timeline(l.Timeline), l.Before-1
	err := x.repo.RecordPrunedLog(ctx, repository.PrunedLog{Timeline: l.Timeline, Index: last, Reason: l.Why, Created: time.Now().UTC()})
	if err != nil {
		return fmt.Errorf("record that log is let go: %w", err)
	}
	x.result.Records++
	var segments []string
	var bytes int64
	for _, s := range t.goneSegments(last) {
		segments = append(segments, s.Name)
		bytes += s.Bytes
	}
	n, err := x.removeInOrder(ctx, segments)
	x.result.Segments += n
	if err != nil {
		return err
	}
	if n == len(segments) {
		x.result.BytesGone += bytes
	}
	if n > 0 {
		x.Logger.Info("log let go", "timeline", l.Timeline, "before index", l.Before, "segments", n, "why", l.Why)
	}
	n, err = x.removeAll(ctx, t.goneGaps(last))
	x.result.Gaps += n
	if err != nil {
		return err
	}
	n, err = x.removeAll(ctx, t.goneMarks(last))
	x.result.Marks += n
	return err
}

// sweep deletes what was of use for some time only. Verdicts go one after the
// other: none may be missing from the middle of their chain.
func (x *execution) sweep(ctx context.Context, s Sweep) error {
	for _, name := range s.verdicts {
		gone, err := x.remove(ctx, name)
		if err != nil {
			return err
		}
		if !gone {
			break
		}
		x.result.Swept++
	}
	n, err := x.removeAll(ctx, s.others)
	x.result.Swept += n
	return err
}
