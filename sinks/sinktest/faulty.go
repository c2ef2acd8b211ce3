package sinktest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/requorum/requorum/sinks"
)

// ErrInjected is what a fault returns that was given no error of its own.
var ErrInjected = errors.New("injected fault")

// Op is a call that a Fault strikes.
type Op string

// The calls of a sink, its writers and its readers.
const (
	Create Op = "create"
	Write  Op = "write"
	Commit Op = "commit"
	Abort  Op = "abort"
	Open   Op = "open"
	Read   Op = "read"
	Stat   Op = "stat"
	List   Op = "list" // one iteration
	Delete Op = "delete"
)

// Fault is one line of a script: what goes wrong, and when. Calls are counted
// from 1, and only those that match; for CutRead whole readers are.
type Fault struct {
	op     Op
	kind   kind
	nth    int
	always bool
	name   string
	err    error
	at     int64
	delay  time.Duration
}

type kind string

const (
	fails  kind = "fails"
	loses  kind = "is done and its answer lost"
	delays kind = "is delayed"
	cuts   kind = "is cut"
)

// Fail makes the nth call return err instead of being made.
func Fail(op Op, nth int, err error) Fault { return Fault{op: op, kind: fails, nth: nth, err: err} }

// Lose makes the nth call and then returns err all the same: an answer that
// was lost on its way.
func Lose(op Op, nth int, err error) Fault { return Fault{op: op, kind: loses, nth: nth, err: err} }

// Delay makes the nth call wait first, or until the context ends.
func Delay(op Op, nth int, wait time.Duration) Fault {
	return Fault{op: op, kind: delays, nth: nth, delay: wait}
}

// CutRead ends the nth reader with err after so many bytes.
func CutRead(nth int, after int64, err error) Fault {
	return Fault{op: Read, kind: cuts, nth: nth, at: after, err: err}
}

// CutList ends the nth iteration with err after so many objects.
func CutList(nth int, after int64, err error) Fault {
	return Fault{op: List, kind: cuts, nth: nth, at: after, err: err}
}

// Of restricts the fault to names that contain part.
func (f Fault) Of(part string) Fault { f.name = part; return f }

// Always lets the fault strike at every call from the nth on.
func (f Fault) Always() Fault { f.always = true; return f }

// String describes the fault for the message of a test.
func (f Fault) String() string {
	text := fmt.Sprintf("%s %d %s", f.op, f.nth, f.kind)
	if f.name != "" {
		text += fmt.Sprintf(", of names with %q", f.name)
	}
	if f.kind == cuts {
		text += fmt.Sprintf(", at %d", f.at)
	}
	return text
}

func (f Fault) failure() error {
	if f.err == nil {
		return ErrInjected
	}
	return f.err
}

func (f Fault) matches(op Op, name string) bool {
	return f.op == op && strings.Contains(name, f.name)
}

// Faulty is a sink that goes wrong by a script. It counts its calls, so that a
// test can see how often something was tried.
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
		if !a.matches(op, name) || a.kind == cuts {
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

// arm counts one reader or iteration, and returns the cuts that are meant for it.
func (f *Faulty) arm(op Op, name string) []*armed {
	f.mu.Lock()
	defer f.mu.Unlock()
	var mine []*armed
	for _, a := range f.script {
		if !a.matches(op, name) || a.kind != cuts {
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
		return &faultyWriter{Writer: w, ctx: ctx, sink: f, name: name}, nil
	})
}

// Open implements sinks.Sink.
func (f *Faulty) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	return call(ctx, f, Open, name, func() (io.ReadCloser, error) {
		r, err := f.Sink.Open(ctx, name, offset, length)
		if err != nil {
			return nil, err
		}
		mine := f.arm(Read, name)
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
		mine := f.arm(List, prefix)
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

type faultyWriter struct {
	sinks.Writer
	ctx  context.Context
	sink *Faulty
	name string
}

func (w *faultyWriter) Write(p []byte) (int, error) {
	return call(w.ctx, w.sink, Write, w.name, func() (int, error) { return w.Writer.Write(p) })
}

// Commit aborts where the script lets it fail.
func (w *faultyWriter) Commit(ctx context.Context) (sinks.Object, error) {
	object, err := call(ctx, w.sink, Commit, w.name, func() (sinks.Object, error) { return w.Writer.Commit(ctx) })
	if err != nil {
		// A Commit that failed owes to leave nothing, also one that was not made.
		err = errors.Join(err, w.Writer.Abort())
	}
	return object, err
}

// Abort is struck also when the context has ended.
func (w *faultyWriter) Abort() error {
	_, err := call(context.WithoutCancel(w.ctx), w.sink, Abort, w.name, func() (struct{}, error) {
		return struct{}{}, w.Writer.Abort()
	})
	return err
}

type faultyReader struct {
	io.ReadCloser
	ctx           context.Context
	sink          *Faulty
	name          string
	start, offset int64 // in the object
	mine          []*armed
}

func (r *faultyReader) Read(p []byte) (int, error) {
	for _, a := range r.mine {
		left := r.start + a.at - r.offset
		if left <= 0 {
			r.sink.strike(a)
			return 0, fmt.Errorf("read %s in %s at %d: %w", r.name, r.sink, r.offset, a.failure())
		}
		p = p[:min(int64(len(p)), left)]
	}
	n, err := call(r.ctx, r.sink, Read, r.name, func() (int, error) { return r.ReadCloser.Read(p) })
	r.offset += int64(n)
	return n, err
}
