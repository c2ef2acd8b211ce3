package sinks

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/time/rate"
)

// Limits are the bytes a second that a sink may send and receive at most, over all
// objects together, where the bytes pass: at S3 in its connections, with all that
// belongs to requests, on disk in reads and writes. Zero or less is no limit. In a
// second it is exceeded by less than a tenth.
type Limits struct{ Up, Down int64 }

// Rate holds what shares it to some bytes a second. A nil Rate is no limit.
type Rate struct{ limiter *rate.Limiter }

// Options are how any place is used.
type Options struct {
	Limits Limits
	Retry  Retry
}

// NewRate is nil for zero or less.
func NewRate(bytesPerSecond int64) *Rate {
	if bytesPerSecond <= 0 {
		return nil
	}
	burst := min(max(bytesPerSecond/40, 4<<10), bytesPerSecond, 256<<10)
	return &Rate{rate.NewLimiter(rate.Limit(bytesPerSecond), int(burst))}
}

// Most is as much of n bytes as may pass at once.
func (r *Rate) Most(n int) int {
	if r == nil {
		return n
	}
	return min(n, r.limiter.Burst())
}

// Wait waits until n bytes may pass, Most of them at the most, or ctx ends.
func (r *Rate) Wait(ctx context.Context, n int) error {
	if r == nil || n == 0 {
		return nil
	}
	err := r.limiter.WaitN(ctx, n)
	if err == nil {
		return nil
	}
	if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		// The limiter ends early, in words of its own, when the wait would
		// outlast the deadline.
		err = fmt.Errorf("%w: %w", err, context.DeadlineExceeded)
	}
	return fmt.Errorf("wait for the rate limit of %.0f bytes/s: %w", float64(r.limiter.Limit()), err)
}
