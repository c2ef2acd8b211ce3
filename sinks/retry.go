package sinks

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"
)

const (
	firstPause   = 500 * time.Millisecond
	longestPause = 10 * time.Second
)

// Retry says for how long a call is made again that failed for what may pass, such
// as a place that is away for a while, or throttles. Each place repeats its own
// requests by it, since it alone knows what can be sent again: S3 a part, no place
// the whole of an object that is being written. The zero value makes each call once.
type Retry struct {
	// For is how long: no attempt begins later than that after the first one. A
	// read that got on meanwhile starts anew: the bound is on standing still.
	For time.Duration
	// Longest is where the pauses stop growing: 10 seconds, or a sixth of For, where
	// it is 0 or longer than that.
	Longest time.Duration
	// Logger hears from Do of every failure after which it tries again; nil for nobody.
	Logger *slog.Logger
}

// Pause is how long to wait after the n-th failure, from 1 on. Pauses double, and
// vary by half, so that many parts and many clients do not come back together.
func (r Retry) Pause(n int) time.Duration {
	pause := min(r.longest(), firstPause<<min(max(n-1, 0), 10))
	return pause/2 + rand.N(pause/2+1)
}

func (r Retry) longest() time.Duration {
	longest := cmp.Or(r.Longest, longestPause)
	if r.For > 0 {
		longest = min(longest, r.For/6)
	}
	return longest
}

// Over reports whether an attempt after one more pause could begin later than until.
func (r Retry) Over(until time.Time) bool { return !time.Now().Add(r.longest()).Before(until) }

// Do makes a call until it succeeds, fails for what does not pass, or the time or ctx
// is over. The last error is returned, with the number of attempts where there were several.
func (r Retry) Do(ctx context.Context, passes func(error) bool, call func() error) error {
	began := time.Now()
	for n := 1; ; n++ {
		err := call()
		if err == nil {
			return nil
		}
		if !passes(err) || r.Over(began.Add(r.For)) {
			if n == 1 {
				return err
			}
			return fmt.Errorf("%w (attempt %d, after %s)", err, n, time.Since(began).Round(time.Millisecond))
		}
		pause := r.Pause(n)
		if r.Logger != nil {
			r.Logger.Warn("trying again", "wait", pause, "error", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w, while trying again after: %w", ctx.Err(), err)
		case <-time.After(pause):
		}
	}
}
