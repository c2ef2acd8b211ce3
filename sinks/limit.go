package sinks

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/time/rate"
)

// limitBurst is what may pass at once. Large enough that waiting costs little,
// small enough that a slow line sees an even flow.
const limitBurst = 256 << 10

// Limit returns s with at most up bytes written and down bytes read a second,
// over all objects together. Zero or less is no limit. The first burst, up to
// 256 KiB, passes at once. Waiting ends with the context of Create or Open.
func Limit(s Sink, up, down int64) Sink {
	return &limited{s, newLimiter(up), newLimiter(down)}
}

type limited struct {
	Sink
	up, down *rate.Limiter
}

// Unwrap returns the sink without the limits.
func (l *limited) Unwrap() Sink { return l.Sink }

// Create limits what is written, over all of the sink's objects together.
func (l *limited) Create(ctx context.Context, name string, opts CreateOptions) (Writer, error) {
	w, err := l.Sink.Create(ctx, name, opts)
	if err != nil || l.up == nil {
		return w, err
	}
	return &limitedWriter{w, ctx, l.up}, nil
}

// Open limits what is read, over all of the sink's objects together.
func (l *limited) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	r, err := l.Sink.Open(ctx, name, offset, length)
	if err != nil || l.down == nil {
		return r, err
	}
	return &limitedReader{r, ctx, l.down}, nil
}

type limitedWriter struct {
	Writer
	ctx   context.Context
	limit *rate.Limiter
}

func (w *limitedWriter) Write(p []byte) (int, error) {
	written := 0
	for {
		part := p[written:min(len(p), written+w.limit.Burst())]
		if err := wait(w.ctx, w.limit, len(part)); err != nil {
			return written, err
		}
		n, err := w.Writer.Write(part)
		written += n
		if err != nil || written == len(p) {
			return written, err
		}
	}
}

type limitedReader struct {
	io.ReadCloser
	ctx   context.Context
	limit *rate.Limiter
}

// Read waits after reading: only then is it known how much there was.
func (r *limitedReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p[:min(len(p), r.limit.Burst())])
	if waitErr := wait(r.ctx, r.limit, n); waitErr != nil && (err == nil || err == io.EOF) {
		return n, waitErr
	}
	return n, err
}

func newLimiter(bytesPerSecond int64) *rate.Limiter {
	if bytesPerSecond <= 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(bytesPerSecond), int(min(bytesPerSecond, limitBurst)))
}

func wait(ctx context.Context, limit *rate.Limiter, n int) error {
	err := limit.WaitN(ctx, n)
	if err == nil {
		return nil
	}
	if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		// The limiter ends early, in words of its own, when the wait would
		// outlast the deadline.
		err = fmt.Errorf("%w: %w", err, context.DeadlineExceeded)
	}
	return fmt.Errorf("wait for the rate limit of %.0f bytes/s: %w", float64(limit.Limit()), err)
}
