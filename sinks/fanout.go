package sinks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// What a FanOut keeps in memory at most, whatever the number of targets:
// fanOutChunks × fanOutChunk bytes. Enough to let the targets' uploads run
// beside each other, too little to matter.
const (
	fanOutChunk  = 256 << 10
	fanOutChunks = 8
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
// is aborted at once and the others go on. Each target has a goroutine of its
// own, so that slow ones overlap; the slowest sets the pace.
//
// It is used by one goroutine, and ended with Commit or Abort.
type FanOut struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	lanes   []*lane
	running int         // lanes with a goroutine, failed ones included
	free    chan *chunk // the only source of chunks: bounds the memory
	current *chunk      // being filled
	alive   atomic.Int32
	dead    chan struct{} // closed when no target is left
	commit  context.Context
	closed  bool
}

// chunk is a piece of the stream, shared by all lanes.
type chunk struct {
	data  []byte
	users atomic.Int32
}

// NewFanOut starts the object on every target, in parallel. It fails only when
// no target could start; a target that could not is told of by Commit. The end
// of ctx aborts all targets.
func NewFanOut(ctx context.Context, targets []Target) (*FanOut, error) {
	if len(targets) == 0 {
		return nil, errors.New("write to several sinks: none was given")
	}
	f := &FanOut{free: make(chan *chunk, fanOutChunks), dead: make(chan struct{})}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	for range fanOutChunks {
		f.free <- &chunk{}
	}
	var started sync.WaitGroup
	for _, target := range targets {
		l := &lane{target: target, queue: make(chan *chunk, fanOutChunks), done: make(chan struct{})}
		f.lanes = append(f.lanes, l)
		started.Go(func() {
			if l.writer, l.err = target.Sink.Create(f.ctx, target.Name, target.Options); l.err != nil {
				l.writer = nil
			}
		})
	}
	started.Wait()
	for _, l := range f.lanes {
		if l.err == nil {
			f.running++
		}
	}
	if f.running == 0 {
		f.cancel(nil)
		return nil, f.failure()
	}
	f.alive.Store(int32(f.running))
	for _, l := range f.lanes {
		if l.err != nil {
			close(l.done)
			continue
		}
		go l.run(f)
	}
	return f, nil
}

// Write takes p, and returns once it is copied; what a target makes of it
// shows later. It fails when no target is left, with all their errors.
func (f *FanOut) Write(p []byte) (int, error) {
	if f.closed {
		return 0, ErrClosed
	}
	written := 0
	for {
		select {
		case <-f.dead:
			return written, f.failure()
		default:
		}
		if written == len(p) {
			return written, nil
		}
		if f.current == nil {
			select {
			case f.current = <-f.free:
			case <-f.dead:
				return written, f.failure()
			}
			if f.current.data == nil {
				f.current.data = make([]byte, 0, fanOutChunk)
			}
		}
		data := f.current.data
		n := copy(data[len(data):cap(data)], p[written:])
		f.current.data = data[:len(data)+n]
		written += n
		if len(f.current.data) == cap(data) {
			f.flush()
		}
	}
}

// flush hands the current chunk to the lanes. A queue has room for every chunk
// there is, so this never waits.
func (f *FanOut) flush() {
	c := f.current
	f.current = nil
	if c == nil {
		return
	}
	c.users.Store(int32(f.running))
	for _, l := range f.lanes {
		if l.writer != nil {
			l.queue <- c
		}
	}
}

// Commit commits each target that is left, in parallel, and tells what became
// of each, in the order of NewFanOut. The end of ctx aborts what is not
// committed yet. A second call, or one after Abort, is ErrClosed throughout.
func (f *FanOut) Commit(ctx context.Context) []Result {
	results := make([]Result, len(f.lanes))
	if f.closed {
		for i, l := range f.lanes {
			results[i] = Result{Target: l.target, Err: ErrClosed}
		}
		return results
	}
	f.closed = true
	f.commit = ctx
	f.flush()
	stop := context.AfterFunc(ctx, func() { f.cancel(ctx.Err()) })
	for _, l := range f.lanes {
		close(l.queue)
	}
	for i, l := range f.lanes {
		<-l.done
		results[i] = Result{Target: l.target, Object: l.object, Err: l.err}
	}
	stop()
	f.cancel(nil)
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
	var errs []error
	for _, l := range f.lanes {
		<-l.done
		errs = append(errs, l.abortErr)
	}
	return errors.Join(errs...)
}

// failure joins the errors of all lanes, each of which has failed.
func (f *FanOut) failure() error {
	var errs []error
	for _, l := range f.lanes {
		errs = append(errs, l.err)
	}
	return fmt.Errorf("no target is left: %w", errors.Join(errs...))
}
