package retention

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
)

// Options are how a plan is carried out.
type Options struct {
	// Confirm is Plan.Confirm, as somebody has seen it.
	Confirm int
	Logger  *slog.Logger // may be nil
}

// Result is what was done. Its JSON form is stable.
type Result struct {
	Records   int   `json:"records"` // written, that something was pruned
	Backups   int   `json:"backups"` // pruned: their manifests are gone
	Objects   int   `json:"objects"` // of backups and interrupted uploads, that are gone
	Segments  int   `json:"segments"`
	Marks     int   `json:"marks"`
	Gaps      int   `json:"gaps"`
	Swept     int   `json:"swept"` // verdicts, records, claims, results of jobs, heartbeats and scratch objects
	BytesGone int64 `json:"bytes"` // that are free now
	// Locked is how many objects could not go yet.
	Locked int `json:"locked"`
	// Spared is what the plan names and stayed, since something changed.
	Spared []Spared `json:"spared"`
}

// Spared is what a plan prunes and a second look does not.
type Spared struct {
	Timeline repository.TimelineID `json:"timeline"`
	Backup   string                `json:"backup,omitempty"`
	Why      string                `json:"why"`
}

// RefusedError says why a plan is not carried out.
type RefusedError struct{ Why string }

func (e *RefusedError) Error() string { return "nothing was deleted: " + e.Why }

// Execute carries a plan out. It looks the repository through once more first:
// of full snapshots it prunes what both the plan and a new one of the same policy
// and time name; for the rest the new one counts, since what waited for the grace
// time may be due by now. It returns what it did also with an error; what is left is done by the next
// run. Where the credentials lack the right to delete the error names
// it, and has sinks.ErrDenied within, before anything is written but a scratch object.
func Execute(ctx context.Context, repo *repository.Repository, plan *Plan, o Options) (Result, error) {
	if plan.Refused != "" {
		return Result{Spared: []Spared{}}, &RefusedError{plan.Refused}
	}
	if plan.Repository != repo.String() {
		return Result{Spared: []Spared{}}, &RefusedError{fmt.Sprintf("the plan is for %s, not for %s", plan.Repository, repo)}
	}
	if plan.Confirm > 0 && o.Confirm != plan.Confirm {
		return Result{Spared: []Spared{}}, &RefusedError{fmt.Sprintf("%d full snapshots that passed verification would go at once, more than a third of them: look at the plan (requorum prune --dry-run), and if it is what you want prune with --confirm %d", plan.Confirm, plan.Confirm)}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	x := &execution{Options: o, repo: repo, policy: plan.Policy, result: Result{Spared: []Spared{}}}
	if plan.Empty() && !plan.waits() {
		return x.result, nil
	}
	err := x.run(ctx, plan)
	return x.result, err
}

// waits says that something may be due by now that was not when the plan was made.
func (p *Plan) waits() bool {
	return slices.ContainsFunc(p.Later, func(l Later) bool { return l.Object != "" })
}

// execution is a plan being carried out.
type execution struct {
	Options
	repo   *repository.Repository
	policy Policy
	inv    *Inventory // as it is now
	lock   sync.Mutex // over result.Locked
	result Result
}

func (x *execution) run(ctx context.Context, plan *Plan) error {
	clock, err := x.probe(ctx)
	if err != nil {
		return err
	}
	if x.inv, err = Read(ctx, x.repo, plan.Made); err != nil {
		return fmt.Errorf("look again before anything is deleted: %w", err)
	}
	x.inv.Clock = later(x.inv.Clock, clock)
	fresh := NewPlan(x.inv, plan.Policy, plan.Made)
	if fresh.Refused != "" {
		return &RefusedError{fresh.Refused}
	}
	todo := x.both(plan, fresh)
	if err := todo.holds(x.inv); err != nil {
		return &RefusedError{err.Error()}
	}
	gone, err := x.prune(ctx, todo.Delete)
	if err != nil {
		return err
	}
	if err := x.removeLeftovers(ctx, todo.Leftovers, gone); err != nil {
		return err
	}
	for _, l := range todo.Log {
		if err := x.removeLog(ctx, l); err != nil {
			return err
		}
	}
	return x.sweep(ctx, todo.Sweep)
}

// both is what is done of two plans; what stays although the first names it is noted.
func (x *execution) both(plan, fresh *Plan) *Plan {
	todo := &Plan{Repository: fresh.Repository, Made: fresh.Made, Policy: fresh.Policy, Sweep: fresh.Sweep, Leftovers: fresh.Leftovers}
	for _, l := range plan.Delete {
		i := slices.IndexFunc(fresh.Delete, func(f Deletion) bool { return f.Timeline == l.Timeline && f.Backup == l.Backup })
		switch {
		case i >= 0:
			todo.Delete = append(todo.Delete, fresh.Delete[i])
		case x.inv.backup(l.Timeline, l.Backup) != nil:
			x.spare(l, "something changed since the plan was made: "+fresh.whyKept(l))
		}
	}
	for _, l := range fresh.Log {
		// The log behind what stays after all stays as well.
		for _, other := range fresh.Delete {
			if other.Timeline == l.Timeline && other.Index > 0 && !todo.deletes(other.Timeline, other.Backup) {
				l.Before = min(l.Before, other.Index+1)
			}
		}
		todo.Log = append(todo.Log, l)
	}
	return todo
}

// deletes says that the plan's own list names a backup.
func (p *Plan) deletes(t repository.TimelineID, backup string) bool {
	return slices.ContainsFunc(p.Delete, func(l Deletion) bool { return l.Timeline == t && l.Backup == backup })
}

func (p *Plan) whyKept(l Deletion) string {
	for _, k := range p.Keep {
		if k.Timeline == l.Timeline && k.Backup == l.Backup && len(k.Reasons) > 0 {
			return "it is kept now (" + k.Reasons[0] + ")"
		}
	}
	return "it stays"
}

func (x *execution) spare(l Deletion, why string) {
	x.result.Spared = append(x.result.Spared, Spared{l.Timeline, l.Backup, why})
}

// holds checks what is really going to be done, whoever made the plan.
func (p *Plan) holds(inv *Inventory) error {
	d := &decision{inv: inv, policy: p.Policy, now: p.Made, plan: p, cuts: map[*Timeline]cut{}}
	for _, l := range p.Log {
		if t := inv.timeline(l.Timeline); t != nil && l.Before > 0 {
			d.cuts[t] = cut{index: l.Before - 1}
		}
	}
	return d.check()
}

// prune writes the records, looks whether anything was pinned meanwhile, and
// deletes the manifests. It returns which backups are pruned.
func (x *execution) prune(ctx context.Context, all []Deletion) ([]Deletion, error) {
	err := each(ctx, all, func(ctx context.Context, l Deletion) error {
		if b := x.inv.backup(l.Timeline, l.Backup); b != nil && b.Recorded {
			// By a run that was interrupted: the grace time counts from now.
			if _, err := x.remove(ctx, repository.PrunedName(l.Timeline, l.Backup)); err != nil {
				return err
			}
		}
		return x.record(ctx, repository.Pruned{Timeline: l.Timeline, Backup: l.Backup, Reason: l.Why, Created: time.Now().UTC(), RaftIndex: l.Index})
	})
	if err != nil {
		return nil, fmt.Errorf("record what is pruned: %w", err)
	}
	x.result.Records += len(all)
	var gone []Deletion
	if len(all) > 0 {
		// Whoever pins a backup writes the pin and then looks for the record: one of
		// the two sees the other.
		if all, err = x.notPinned(ctx, all); err != nil {
			return nil, err
		}
	}
	done := make([]bool, len(all))
	err = each(ctx, indexes(all), func(ctx context.Context, i int) (err error) {
		l := all[i]
		done[i], err = x.remove(ctx, repository.ManifestName(l.Timeline, l.Backup))
		return err
	})
	for i, l := range all {
		if done[i] {
			gone = append(gone, l)
			x.Logger.Info("backup pruned", "timeline", l.Timeline, "backup", l.Backup, "why", l.Why)
		}
	}
	x.result.Backups += len(gone)
	return gone, err
}

// record writes a record. An unsigned object in its place goes first: it hinders nobody
// who knows whom to trust.
func (x *execution) record(ctx context.Context, p repository.Pruned) error {
	err := x.repo.RecordPruned(ctx, p)
	if !errors.Is(err, sinks.ErrExists) {
		return err
	}
	name := repository.PrunedName(p.Timeline, p.Backup)
	x.Logger.Warn("an unsigned object is deleted, which has the name of a record", "object", name)
	if gone, err := x.remove(ctx, name); err != nil || !gone {
		return errors.Join(err, fmt.Errorf("%s is unsigned and cannot be deleted: nothing of it is pruned", name))
	}
	return x.repo.RecordPruned(ctx, p)
}

// notPinned are those without a pin. The record of a pinned one is taken back.
func (x *execution) notPinned(ctx context.Context, all []Deletion) ([]Deletion, error) {
	pins, err := x.repo.PinNames(ctx)
	if err != nil {
		return nil, err
	}
	var free []Deletion
	for _, l := range all {
		if !slices.Contains(pins, repository.PinName(l.Timeline, l.Backup)) {
			free = append(free, l)
			continue
		}
		x.spare(l, "it was pinned meanwhile")
		if _, err := x.remove(ctx, repository.PrunedName(l.Timeline, l.Backup)); err != nil {
			return nil, err
		}
	}
	return free, nil
}

// deleters is how many deletions are under way at once, and batch how many are
// begun before all of them have ended.
const (
	deleters = 8
	batch    = 64
)

// probe writes a scratch object and deletes it: it shows the time by the place's
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

// explain names the right that a denied request lacks.
func (x *execution) explain(err error) error {
	if errors.Is(err, sinks.ErrDenied) {
		return fmt.Errorf("pruning %s needs the right to delete objects in it (in S3: s3:DeleteObject on all of the prefix; in a folder: to write in it): %w", x.repo, err)
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

// removeInOrder deletes objects one after the other up to the first locked one. However
// it ends, the log that is left has no holes: retention may not leave what verify would
// have to take for loss.
func (x *execution) removeInOrder(ctx context.Context, names []string) (gone int, err error) {
	for _, name := range names {
		if ok, err := x.remove(ctx, name); err != nil || !ok {
			return gone, err
		}
		gone++
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

// removeLeftovers deletes the objects of backups that were pruned long enough
// ago, and those of nobody. Without a grace time what was pruned just now goes at
// once.
func (x *execution) removeLeftovers(ctx context.Context, all []Leftover, pruned []Deletion) error {
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
	for _, l := range pruned {
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

// removeLog deletes a log from its beginning on.
func (x *execution) removeLog(ctx context.Context, l LogCut) error {
	t, last := x.inv.timeline(l.Timeline), l.Before-1
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
		x.Logger.Info("log pruned", "timeline", l.Timeline, "before index", l.Before, "segments", n, "why", l.Why)
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

// sweep deletes what was of use for some time only.
func (x *execution) sweep(ctx context.Context, s Sweep) error {
	n, err := x.removeAll(ctx, s.others)
	x.result.Swept += n
	return err
}
