package retention

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/requorum/requorum/sinks/repository"
)

// Options are how a plan is carried out.
type Options struct {
	// Trusted are whose verdicts count; they must be those of the plan's inventory.
	Trusted []ed25519.PublicKey
	Logger  *slog.Logger // may be nil
}

// Result is what was done. Its JSON form is stable.
type Result struct {
	Records   int   `json:"records"` // written, that something was let go
	Backups   int   `json:"backups"` // let go: their manifests are gone
	Objects   int   `json:"objects"` // of backups and interrupted uploads, that are gone
	Segments  int   `json:"segments"`
	Marks     int   `json:"marks"`
	Gaps      int   `json:"gaps"`
	Swept     int   `json:"swept"` // verdicts, records, claims and scratch objects
	BytesGone int64 `json:"bytes"` // that are free now
	// Locked is how many objects could not go yet.
	Locked int `json:"locked"`
	// Spared is what the plan lets go and stayed, since something changed.
	Spared []Spared `json:"spared"`
}

// Spared is what a plan lets go and a second look does not.
type Spared struct {
	Timeline repository.TimelineID `json:"timeline"`
	Backup   string                `json:"backup,omitempty"`
	Why      string                `json:"why"`
}

// RefusedError says why a plan is not carried out.
type RefusedError struct{ Why string }

func (e *RefusedError) Error() string { return "nothing was deleted: " + e.Why }

// Execute carries a plan out. It looks the repository through once more first:
// of full snapshots it lets go what both the plan and a new one of the same policy
// and time let go; for the rest the new one counts, since what waited for the grace
// time may be due by now. It returns what it did also with an error; what is left is done by the next
// run. Where the credentials lack the right to delete the error is a
// *DeniedError, before anything is written but a scratch object.
func Execute(ctx context.Context, repo *repository.Repository, plan *Plan, o Options) (Result, error) {
	if plan.Refused != "" {
		return Result{Spared: []Spared{}}, &RefusedError{plan.Refused}
	}
	if plan.Repository != repo.String() {
		return Result{Spared: []Spared{}}, &RefusedError{fmt.Sprintf("the plan is for %s, not for %s", plan.Repository, repo)}
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

// waits tells that something may be due by now that was not when the plan was made.
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
	if x.inv, err = Read(ctx, x.repo, plan.Made, x.Trusted...); err != nil {
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
	letGo, err := x.letGo(ctx, todo.Let)
	if err != nil {
		return err
	}
	if err := x.removeLeftovers(ctx, todo.Leftovers, letGo); err != nil {
		return err
	}
	for _, l := range todo.Log {
		if err := x.removeLog(ctx, l); err != nil {
			return err
		}
	}
	return x.sweep(ctx, todo.Sweep)
}

// both is what is done of two plans; what stays although the first let it go is noted.
func (x *execution) both(plan, fresh *Plan) *Plan {
	todo := &Plan{Repository: fresh.Repository, Made: fresh.Made, Policy: fresh.Policy, Sweep: fresh.Sweep, Leftovers: fresh.Leftovers}
	for _, l := range plan.Let {
		i := slices.IndexFunc(fresh.Let, func(f Let) bool { return f.Timeline == l.Timeline && f.Backup == l.Backup })
		switch {
		case i >= 0:
			todo.Let = append(todo.Let, fresh.Let[i])
		case x.inv.backup(l.Timeline, l.Backup) != nil:
			x.spare(l, "something changed since the plan was made: "+fresh.whyKept(l))
		}
	}
	for _, l := range fresh.Log {
		// The log behind what stays after all stays as well.
		for _, other := range fresh.Let {
			if other.Timeline == l.Timeline && other.Index > 0 && !todo.lets(other) {
				l.Before = min(l.Before, other.Index+1)
			}
		}
		todo.Log = append(todo.Log, l)
	}
	return todo
}

func (p *Plan) lets(l Let) bool {
	return slices.ContainsFunc(p.Let, func(o Let) bool { return o.Timeline == l.Timeline && o.Backup == l.Backup })
}

func (p *Plan) whyKept(l Let) string {
	for _, k := range p.Keep {
		if k.Timeline == l.Timeline && k.Backup == l.Backup && len(k.Reasons) > 0 {
			return "it is kept now (" + k.Reasons[0] + ")"
		}
	}
	return "it stays"
}

func (x *execution) spare(l Let, why string) {
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

// letGo writes the records, looks whether anything was pinned meanwhile, and
// deletes the manifests. It returns which backups are let go.
func (x *execution) letGo(ctx context.Context, all []Let) ([]Let, error) {
	err := each(ctx, all, func(ctx context.Context, l Let) error {
		if b := x.inv.backup(l.Timeline, l.Backup); b != nil && b.Recorded {
			// By a run that was interrupted: the grace time counts from now.
			if _, err := x.remove(ctx, repository.PrunedName(l.Timeline, l.Backup)); err != nil {
				return err
			}
		}
		return x.repo.RecordPruned(ctx, repository.Pruned{
			Timeline: l.Timeline, Backup: l.Backup, Reason: l.Why, Created: time.Now().UTC(), RaftIndex: l.Index})
	})
	if err != nil {
		return nil, fmt.Errorf("record what is let go: %w", err)
	}
	x.result.Records += len(all)
	var gone []Let
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
			x.Logger.Info("backup let go", "timeline", l.Timeline, "backup", l.Backup, "why", l.Why)
		}
	}
	x.result.Backups += len(gone)
	return gone, err
}

// notPinned are those without a pin. The record of a pinned one is taken back.
func (x *execution) notPinned(ctx context.Context, all []Let) ([]Let, error) {
	pins, err := x.repo.PinNames(ctx)
	if err != nil {
		return nil, err
	}
	var free []Let
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
