package sinks

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Defaults of a RetryPolicy. Five minutes outlast the restart of a storage
// node and most throttling; a longer outage is for the scheduler to handle,
// which can tell somebody.
const (
	DefaultFirstWait   = 500 * time.Millisecond
	DefaultLongestWait = 30 * time.Second
	DefaultRetryFor    = 5 * time.Minute
)

// RetryPolicy says how long and how often to try again. Zero fields take the
// defaults.
type RetryPolicy struct {
	// First is the wait after the first failure. Waits double from there and
	// vary by half either way, so that many clients don't come back together.
	First time.Duration
	// Longest is where the waits stop growing.
	Longest time.Duration
	// For bounds the attempts and the waits of one call. A read or a listing
	// that got on meanwhile starts anew: the bound is on standing still.
	For time.Duration
	// Logger is told of every failure that is tried again; nil for nobody.
	Logger *slog.Logger
}

// Retry returns s with calls repeated whose errors are Temporary. A broken
// read goes on at the offset reached, a broken listing after the last name
// yielded. The last error is returned with the number of attempts.
//
// Writers are those of s, unchanged: what was given to Write is gone and
// cannot be sent again from here, so a backend repeats its own requests (S3
// its parts), and Commit has cleared up by contract what became of the object.
// The caller repeats the whole object, from Create on.
func Retry(s Sink, policy RetryPolicy) Sink {
	policy.First = cmp.Or(policy.First, DefaultFirstWait)
	policy.Longest = cmp.Or(policy.Longest, DefaultLongestWait)
	policy.For = cmp.Or(policy.For, DefaultRetryFor)
	return &retrying{s, policy}
}

type retrying struct {
	Sink
	policy RetryPolicy
}

// Unwrap returns the sink whose calls are repeated.
func (r *retrying) Unwrap() Sink { return r.Sink }

// Create is repeated; what the Writer does is not.
func (r *retrying) Create(ctx context.Context, name string, opts CreateOptions) (Writer, error) {
	return attempt(ctx, r, "create", name, func() (Writer, error) { return r.Sink.Create(ctx, name, opts) })
}

// Open is repeated, and the reader opens again where it broke.
func (r *retrying) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	body, err := attempt(ctx, r, "open", name, func() (io.ReadCloser, error) { return r.Sink.Open(ctx, name, offset, length) })
	if err != nil {
		return nil, err
	}
	return &resumingReader{ctx: ctx, sink: r, name: name, offset: offset, left: length, body: body}, nil
}

// Stat is repeated.
func (r *retrying) Stat(ctx context.Context, name string) (Object, error) {
	return attempt(ctx, r, "stat", name, func() (Object, error) { return r.Sink.Stat(ctx, name) })
}

// List is repeated from the last name yielded.
func (r *retrying) List(ctx context.Context, prefix, after string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		for ended := false; !ended; {
			var err error
			ended, err = attempt(ctx, r, "list", prefix, func() (bool, error) {
				start := after
				for object, err := range r.Sink.List(ctx, prefix, after) {
					switch {
					case err == nil:
						after = object.Name
						if !yield(object, nil) {
							return true, nil
						}
					case after != start && Temporary(err):
						r.report("list", prefix, err, 0)
						return false, nil // it got on: a new attempt with all its time
					default:
						return false, err
					}
				}
				return true, nil
			})
			if err != nil {
				yield(Object{}, err)
				return
			}
		}
	}
}

// Delete is repeated: deleting what is gone already is no error.
func (r *retrying) Delete(ctx context.Context, name string) error {
	_, err := attempt(ctx, r, "delete", name, func() (struct{}, error) { return struct{}{}, r.Sink.Delete(ctx, name) })
	return err
}

// Abilities is repeated.
func (r *retrying) Abilities(ctx context.Context) (Abilities, error) {
	return attempt(ctx, r, "probe", "abilities", func() (Abilities, error) { return r.Sink.Abilities(ctx) })
}

// attempt calls do until it succeeds, fails for good, or the policy's time or
// the context is over.
func attempt[T any](ctx context.Context, r *retrying, verb, name string, do func() (T, error)) (T, error) {
	var (
		why   error // of the last that might have passed by itself
		count int
		began = time.Now()
	)
	value, err := backoff.Retry(ctx, func() (T, error) {
		count++
		value, err := do()
		if err != nil && !Temporary(err) {
			return value, backoff.Permanent(err)
		}
		why = err
		return value, err
	}, backoff.WithBackOff(&backoff.ExponentialBackOff{
		InitialInterval:     r.policy.First,
		RandomizationFactor: 0.5,
		Multiplier:          2,
		MaxInterval:         r.policy.Longest,
	}), backoff.WithMaxElapsedTime(r.policy.For), backoff.WithNotify(func(err error, wait time.Duration) {
		r.report(verb, name, err, wait)
	}))
	switch {
	case err == nil:
		return value, nil
	case why != nil && ctx.Err() != nil:
		return value, fmt.Errorf("%w, while trying again after: %w", err, why)
	case count > 1:
		return value, fmt.Errorf("%w (attempt %d, after %s)", err, count, time.Since(began).Round(time.Millisecond))
	}
	return value, err
}

func (r *retrying) report(verb, name string, err error, wait time.Duration) {
	if r.policy.Logger != nil {
		r.policy.Logger.Warn("trying again", "call", verb, "object", name, "place", r.String(), "wait", wait, "error", err)
	}
}
