package sinktest

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/requorum/requorum/sinks"
)

// soon is how long a call may take to notice that its context has ended.
const soon = 10 * time.Second

// cancelledCalls: with a context that has ended no call succeeds.
func cancelledCalls(t *testing.T, s sinks.Sink, _ Options) {
	put(t, s, "there", []byte("data"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := sinks.Put(ctx, s, "new", []byte("data"), sinks.CreateOptions{})
	is(t, "put", err, context.Canceled)
	_, err = read(ctx, s, "there", 0, -1)
	is(t, "open and read", err, context.Canceled)
	_, err = s.Stat(ctx, "there")
	is(t, "stat", err, context.Canceled)
	is(t, "delete", s.Delete(ctx, "there"), context.Canceled)
	err = nil
	for _, e := range s.List(ctx, "", "") {
		err = e
	}
	is(t, "list", err, context.Canceled)

	w := create(t.Context(), t, s, "new")
	write(t, w, []byte("data"))
	_, err = w.Commit(ctx)
	is(t, "commit", err, context.Canceled)
	if err := w.Abort(); err != nil {
		t.Errorf("abort after a cancelled commit: %v", err)
	}
	absent(t, s, "new")
	holds(t, s, "there", []byte("data"))
}

// cancelledWrite: a writer whose context ends midway fails soon, and leaves
// nothing.
func cancelledWrite(t *testing.T, s sinks.Sink, opts Options) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := create(ctx, t, s, "cancelled")
	data := Random(4, 1<<20)
	write(t, w, data)
	stop := time.AfterFunc(20*time.Millisecond, cancel)
	defer stop.Stop()
	// It may take some more before it looks, but not for ever.
	var err error
	for end := time.Now().Add(soon); err == nil && time.Now().Before(end); {
		if ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		_, err = w.Write(data)
	}
	is(t, "write", err, context.Canceled)
	if err := w.Abort(); err != nil {
		t.Errorf("abort: %v", err)
	}
	absent(t, s, "cancelled")
}

// cancelledRead: a reader whose context ends midway never ends cleanly.
func cancelledRead(t *testing.T, s sinks.Sink, opts Options) {
	put(t, s, "big", Random(5, opts.Big))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := s.Open(ctx, "big", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	cancel()
	began := time.Now()
	_, err = io.Copy(io.Discard, r)
	is(t, "read on", err, context.Canceled)
	if took := time.Since(began); took > soon {
		t.Errorf("the reader took %s to notice", took)
	}
	if err := r.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}
