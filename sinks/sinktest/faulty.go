package sinktest

import (
	"context"
	"fmt"
	"io"
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/requorum/requorum/sinks"
)

// Faulty is a sink that goes wrong by a script. It counts its calls, so that a
// test can tell how often something was tried.
type Faulty struct {
	sinks.Sink
	mu     sync.Mutex
	script []*armed
	calls  map[Op]int
}

type armed struct {
	Fault
	seen  int
	fired int
}

// NewFaulty wraps s. Faults are independent of each other; of two that strike
// one call, the first in the script returns its error.
func NewFaulty(s sinks.Sink, script ...Fault) *Faulty {
	f := &Faulty{Sink: s, calls: map[Op]int{}}
	f.Add(script...)
	return f
}

// Add lengthens the script; new faults count from now on.
func (f *Faulty) Add(script ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fault := range script {
		f.script = append(f.script, &armed{Fault: fault})
	}
}

// Unwrap returns the sink without faults.
func (f *Faulty) Unwrap() sinks.Sink { return f.Sink }

// Calls is how often op was called, struck or not.
func (f *Faulty) Calls(op Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

// Fired is how many faults of the script have struck.
func (f *Faulty) Fired() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, a := range f.script {
		if a.fired > 0 {
			n++
		}
	}
	return n
}

// AllFired fails the test for each fault that never struck: what it was to
// show was not shown.
func (f *Faulty) AllFired(t testing.TB) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.script {
		if a.fired == 0 {
			t.Errorf("the fault %q never struck: %d calls matched, of %v", a.Fault, a.seen, f.calls)
		}
	}
}

// call counts one call and makes it, as the script has it.
func call[T any](ctx context.Context, f *Faulty, op Op, name string, do func() (T, error)) (T, error) {
	var zero T
	var wait time.Duration
	var failure, lost error
	f.mu.Lock()
	f.calls[op]++
	for _, a := range f.script {
		if !a.matches(op, name) || a.kind == cuts || a.kind == flips {
			continue
		}
		if a.seen++; a.seen < a.nth || a.seen > a.nth && !a.always {
			continue
		}
		a.fired++
		switch {
		case a.kind == delays:
			wait += a.delay
		case a.kind == fails && failure == nil:
			failure = a.failure()
		case a.kind == loses && lost == nil:
			lost = a.failure()
		}
	}
	f.mu.Unlock()
	if wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return zero, ctx.Err()
		}
	}
	if failure != nil {
		return zero, fmt.Errorf("%s %s in %s: %w", op, name, f, failure)
	}
	value, err := do()
	if err == nil && lost != nil {
		return zero, fmt.Errorf("%s %s in %s: %w", op, name, f, lost)
	}
	return value, err
}

// arm counts one reader, writer or iteration whose bytes or objects from start
// to end (or without a known end: negative) pass, and returns the cuts and
// flips that are meant for it.
func (f *Faulty) arm(op Op, name string, start, end int64) []*armed {
	f.mu.Lock()
	defer f.mu.Unlock()
	var mine []*armed
	for _, a := range f.script {
		if !a.matches(op, name) || a.kind != cuts && a.kind != flips {
			continue
		}
		if a.kind == flips && (a.at < start || end >= 0 && a.at >= end) {
			continue
		}
		if a.seen++; a.seen == a.nth || a.seen > a.nth && a.always {
			mine = append(mine, a)
		}
	}
	return mine
}

func (f *Faulty) strike(a *armed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a.fired++
}

// Create implements sinks.Sink.
func (f *Faulty) Create(ctx context.Context, name string, opts sinks.CreateOptions) (sinks.Writer, error) {
	return call(ctx, f, Create, name, func() (sinks.Writer, error) {
		w, err := f.Sink.Create(ctx, name, opts)
		if err != nil {
			return nil, err
		}
		return &faultyWriter{Writer: w, ctx: ctx, sink: f, name: name, mine: f.arm(Write, name, 0, -1)}, nil
	})
}

// Open implements sinks.Sink.
func (f *Faulty) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	return call(ctx, f, Open, name, func() (io.ReadCloser, error) {
		r, err := f.Sink.Open(ctx, name, offset, length)
		if err != nil {
			return nil, err
		}
		end := int64(-1)
		if length >= 0 {
			end = offset + length
		}
		mine := f.arm(Read, name, offset, end)
		return &faultyReader{ReadCloser: r, ctx: ctx, sink: f, name: name, start: offset, offset: offset, mine: mine}, nil
	})
}

// Stat implements sinks.Sink.
func (f *Faulty) Stat(ctx context.Context, name string) (sinks.Object, error) {
	return call(ctx, f, Stat, name, func() (sinks.Object, error) { return f.Sink.Stat(ctx, name) })
}

// List implements sinks.Sink.
func (f *Faulty) List(ctx context.Context, prefix, after string) iter.Seq2[sinks.Object, error] {
	return func(yield func(sinks.Object, error) bool) {
		mine := f.arm(List, prefix, 0, -1)
		_, err := call(ctx, f, List, prefix, func() (struct{}, error) {
			count := int64(0)
			for object, err := range f.Sink.List(ctx, prefix, after) {
				for _, a := range mine {
					if a.at == count {
						f.strike(a)
						return struct{}{}, fmt.Errorf("list %s* in %s: %w", prefix, f, a.failure())
					}
				}
				count++
				if !yield(object, err) || err != nil {
					yield = nil
					break
				}
			}
			return struct{}{}, nil
		})
		if err != nil && yield != nil {
			yield(sinks.Object{}, err)
		}
	}
}

// Delete implements sinks.Sink.
func (f *Faulty) Delete(ctx context.Context, name string) error {
	_, err := call(ctx, f, Delete, name, func() (struct{}, error) { return struct{}{}, f.Sink.Delete(ctx, name) })
	return err
}
