package sinks

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Target is one place that a FanOut writes to.
type Target struct {
	Sink    Sink
	Name    string // of the object, there
	Options CreateOptions
}

// Result is what became of one target.
type Result struct {
	Target Target
	Object Object // where Err is nil
	Err    error  // why there is no object; with ErrUncertain there may be one
}

// FanOut writes one stream to several sinks in one pass. A target that fails
// is aborted at once and the others go on. Each Write goes to all at once, and waits
// for all: a sink at the end of a line has a buffer of its own.
//
// It is used by one goroutine, and ended with Commit or Abort.
type FanOut struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	targets []*destination
	closed  bool
}

// destination is one target of a FanOut, and its object on the way.
type destination struct {
	Result
	writer   Writer // nil where Create failed
	abortErr error
}

// NewFanOut starts the object on every target, in parallel. It fails only when
// no target could start; a target that could not is reported by Commit. The end
// of ctx ends all targets, which the next call aborts.
func NewFanOut(ctx context.Context, targets []Target) (*FanOut, error) {
	if len(targets) == 0 {
		return nil, errors.New("write to several sinks: none was given")
	}
	f := &FanOut{}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	for _, target := range targets {
		f.targets = append(f.targets, &destination{Result: Result{Target: target}})
	}
	f.each(func(d *destination) {
		if d.writer, d.Err = d.Target.Sink.Create(f.ctx, d.Target.Name, d.Target.Options); d.Err != nil {
			d.writer = nil
		}
	})
	if err := f.failure(); err != nil {
		f.cancel(nil)
		return nil, err
	}
	return f, nil
}

// each does something with all targets that have not failed, in parallel.
func (f *FanOut) each(do func(*destination)) {
	var all sync.WaitGroup
	for _, d := range f.targets {
		if d.Err == nil {
			all.Go(func() { do(d) })
		}
	}
	all.Wait()
}

// Write gives p to all targets that are left. It fails when there is none, with all
// their errors.
func (f *FanOut) Write(p []byte) (int, error) {
	if f.closed {
		return 0, ErrClosed
	}
	f.each(func(d *destination) {
		err := context.Cause(f.ctx)
		if err == nil {
			_, err = d.writer.Write(p)
		}
		if err != nil {
			f.fail(d, err)
		}
	})
	if err := f.failure(); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Commit commits each target that is left, in parallel, and says what became
// of each, in the order of NewFanOut. The end of ctx aborts what is not
// committed yet. A second call, or one after Abort, is ErrClosed throughout.
func (f *FanOut) Commit(ctx context.Context) []Result {
	results := make([]Result, len(f.targets))
	if f.closed {
		for i, d := range f.targets {
			results[i] = Result{Target: d.Target, Err: ErrClosed}
		}
		return results
	}
	f.closed = true
	stop := context.AfterFunc(ctx, func() { f.cancel(ctx.Err()) })
	f.each(func(d *destination) {
		err := context.Cause(f.ctx)
		if err == nil {
			d.Object, err = d.writer.Commit(ctx)
		}
		if err != nil {
			f.fail(d, err)
		}
	})
	stop()
	f.cancel(nil)
	for i, d := range f.targets {
		results[i] = d.Result
	}
	return results
}

// Abort leaves nothing on any target. After Commit or another Abort it does
// nothing, so that it can be deferred.
func (f *FanOut) Abort() error {
	if f.closed {
		return nil
	}
	f.closed = true
	f.cancel(context.Canceled)
	f.each(func(d *destination) { f.fail(d, context.Canceled) })
	var errs []error
	for _, d := range f.targets {
		errs = append(errs, d.abortErr)
	}
	return errors.Join(errs...)
}

// fail aborts a target. An error of its Abort is for FanOut.Abort to return; it
// is also shown beside the one that led to it, which Commit returns.
func (f *FanOut) fail(d *destination, err error) {
	if cause := context.Cause(f.ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err) // why it was cancelled
	}
	d.abortErr = d.writer.Abort()
	d.Object, d.Err = Object{}, err
	if d.abortErr != nil {
		d.Err = fmt.Errorf("%w; and aborting it failed: %w", err, d.abortErr)
	}
}

// failure joins the errors of all targets; nil where one is left.
func (f *FanOut) failure() error {
	var errs []error
	for _, d := range f.targets {
		if d.Err == nil {
			return nil
		}
		errs = append(errs, d.Err)
	}
	return fmt.Errorf("no target is left: %w", errors.Join(errs...))
}
