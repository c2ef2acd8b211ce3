package restore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/requorum/requorum/snapshot"
)

// ExecOptions are how a plan is carried out on this host.
type ExecOptions struct {
	// Only names the one member that this host builds; empty for all.
	Only string
	// SetAside allows this host what Request.SetAside allows to all, and Owner,
	// if not nil, wins over the plan's.
	SetAside bool
	Owner    *Owner
	// Progress, if not nil, is called from one goroutine at a time.
	Progress func(Progress)
	// Logger may be nil.
	Logger *slog.Logger

	// Seams for tests: step is called before each change of what a member could
	// find, swap stands for exchange.
	step func(name string)
	swap func(a, b string) error
}

// run is one execution of a plan.
type run struct {
	plan    *Plan
	image   snapshot.Image
	opts    ExecOptions
	log     *slog.Logger
	targets []*target
	stamp   string
	undo    []func() error
	phases  []PhaseTime

	downgrade string // that edit ended
}

// Execute carries a plan out: it builds the members of this host aside, puts
// them in place, and sets them free when all are there and synced. When it
// fails, no member can start from what it built, and what it had set aside is
// back. Where an earlier run of the same request had all members in place, it
// only completes that one, without reading the image.
func Execute(ctx context.Context, p *Plan, image snapshot.Image, opts ExecOptions) (_ *Result, err error) {
	if opts.Only == "" && p.NeedsOnly() {
		return nil, badRequest("restore: %s", p.sharedNote())
	}
	p = p.onHost(opts)
	r := &run{plan: p, image: image, opts: opts, log: opts.Logger, stamp: stamp(time.Now())}
	r.fill()
	members, err := p.local(opts.Only)
	if err != nil {
		return nil, err
	}
	done := r.phase(PhaseCheck)
	if err := p.Source.check(ctx, image, p.ID); err != nil {
		return nil, err
	}
	p = p.ofImage(image)
	r.plan = p
	// Once without locks, which need files in the directories: a request that is
	// refused leaves no trace.
	if _, err := p.Check(ctx, opts); err != nil {
		return nil, err
	}
	if r.targets, err = openTargets(members); err != nil {
		return nil, err
	}
	clean := false // before build, staging may hold what an earlier run needs
	defer func() { err = errors.Join(err, closeTargets(r.targets, clean)) }()
	ready, err := p.Check(ctx, opts)
	if err != nil {
		return nil, err
	}
	for _, t := range r.targets {
		if err := t.survey(); err != nil {
			return nil, err
		}
	}
	done()
	if ready.Completes != nil {
		r.plan = ready.Completes
		if err := r.finish(); err != nil {
			return nil, err
		}
		clean = true
		res := r.result()
		res.CompletedEarlier = true
		return res, nil
	}
	clean = true
	if err := r.build(ctx); err != nil {
		return nil, err
	}
	if err := r.publish(ctx); err != nil {
		if undoErr := r.rollBack(); undoErr != nil {
			clean = false
			err = fmt.Errorf("%w; and what was done could not be undone, run again to complete it: %w", err, undoErr)
		}
		return nil, err
	}
	// From here on only names are removed, and another run can do that as well.
	if err := r.finish(); err != nil {
		clean = false
		return nil, fmt.Errorf("%w: all members are in place, run again to complete the restore", err)
	}
	return r.result(), nil
}

func (r *run) fill() {
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if r.opts.Progress == nil {
		r.opts.Progress = func(Progress) {}
	}
	if r.opts.step == nil {
		r.opts.step = func(string) {}
	}
	if r.opts.swap == nil {
		r.opts.swap = exchange
	}
}

// phase starts a phase; the function that it returns ends it.
func (r *run) phase(p Phase) func() {
	start := time.Now()
	r.opts.Progress(Progress{Phase: p})
	return func() {
		took := time.Since(start)
		r.phases = append(r.phases, PhaseTime{p, took})
		r.log.Debug("restore: phase done", "phase", p, "took", took)
	}
}

// rollBack takes back what publish did, newest first.
func (r *run) rollBack() error {
	var errs []error
	for i := len(r.undo) - 1; i >= 0; i-- {
		errs = append(errs, r.undo[i]())
	}
	return errors.Join(errs...)
}

func (r *run) result() *Result {
	res := newResult(r.plan, r.targets)
	res.DowngradeEnded = r.downgrade
	res.Phases = r.phases
	return res
}
