package job

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"

	"github.com/requorum/requorum/sinks"
)

var errDead = errors.New("this process was killed")

// host is what a process sees of the sink: it can be killed, be stalled (nothing
// gets through until it wakes up), or lose the network.
type host struct {
	sinks.Sink
	dead    atomic.Bool
	away    atomic.Bool
	stalled atomic.Pointer[chan struct{}]
	ops     atomic.Int64
	lists   atomic.Int64
}

func (h *host) gate(ctx context.Context) error {
	if c := h.stalled.Load(); c != nil {
		<-*c // whatever ctx says: nothing of the process runs
	}
	switch {
	case h.dead.Load():
		return errDead
	case h.away.Load():
		return errors.New("no route to host")
	}
	h.ops.Add(1)
	return ctx.Err()
}

func (h *host) Stat(ctx context.Context, name string) (sinks.Object, error) {
	if err := h.gate(ctx); err != nil {
		return sinks.Object{}, err
	}
	return h.Sink.Stat(ctx, name)
}

func (h *host) Create(ctx context.Context, name string, o sinks.CreateOptions) (sinks.Writer, error) {
	if err := h.gate(ctx); err != nil {
		return nil, err
	}
	w, err := h.Sink.Create(ctx, name, o)
	return &hostWriter{w, h}, err
}

func (h *host) List(ctx context.Context, prefix, after string) iter.Seq2[sinks.Object, error] {
	h.lists.Add(1)
	if err := h.gate(ctx); err != nil {
		return func(yield func(sinks.Object, error) bool) { yield(sinks.Object{}, err) }
	}
	return h.Sink.List(ctx, prefix, after)
}

type hostWriter struct {
	sinks.Writer
	host *host
}

func (w *hostWriter) Commit(ctx context.Context) (sinks.Object, error) {
	if err := w.host.gate(ctx); err != nil {
		return sinks.Object{}, err
	}
	return w.Writer.Commit(ctx)
}
