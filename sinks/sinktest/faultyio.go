package sinktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/requorum/requorum/sinks"
)

type faultyWriter struct {
	sinks.Writer
	ctx    context.Context
	sink   *Faulty
	name   string
	offset int64
	mine   []*armed
}

func (w *faultyWriter) Write(p []byte) (int, error) {
	n, err := call(w.ctx, w.sink, Write, w.name, func() (int, error) {
		return w.Writer.Write(w.flip(p))
	})
	w.offset += int64(n)
	return n, err
}

// flip leaves the caller's bytes as they are: a Writer must not change them.
func (w *faultyWriter) flip(p []byte) []byte {
	for _, a := range w.mine {
		if i := a.at - w.offset; i >= 0 && i < int64(len(p)) {
			p = bytes.Clone(p)
			p[i] ^= 1
			w.sink.strike(a)
		}
	}
	return p
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
		switch {
		case a.kind != cuts:
		case left <= 0:
			r.sink.strike(a)
			return 0, fmt.Errorf("read %s in %s at %d: %w", r.name, r.sink, r.offset, a.failure())
		default:
			p = p[:min(int64(len(p)), left)]
		}
	}
	n, err := call(r.ctx, r.sink, Read, r.name, func() (int, error) { return r.ReadCloser.Read(p) })
	for _, a := range r.mine {
		if i := a.at - r.offset; a.kind == flips && i >= 0 && i < int64(n) {
			p[i] ^= 1
			r.sink.strike(a)
		}
	}
	r.offset += int64(n)
	return n, err
}
