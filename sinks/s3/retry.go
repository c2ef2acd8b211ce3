package s3

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
)

const (
	defaultAttempts = 6
	defaultBackoff  = 10 * time.Second
	firstPause      = 500 * time.Millisecond
)

// retriedCodes are tried again beyond what the SDK does: bytes that were changed
// on their way (the part is still in memory), and conflicts that S3 asks to
// repeat.
var retriedCodes = map[string]struct{}{
	"BadDigest": {}, "XAmzContentSHA256Mismatch": {}, "XAmzContentChecksumMismatch": {},
	"ConditionalRequestConflict": {}, "OperationAborted": {},
}

// errTimeUsed marks an error that came back for all of Config.RetryFor.
var errTimeUsed = errors.New("the time for trying again is over")

// setRetries tells the SDK what is tried again, and how often or how long.
func (c Config) setRetries(o *s3.Options) {
	standard := retry.NewStandard(func(r *retry.StandardOptions) {
		r.MaxAttempts = c.attempts()
		r.MaxBackoff = cmp.Or(c.Backoff, defaultBackoff)
		// The SDK's budget of retries is for the whole life of a client: in an
		// agent that runs for months one bad hour would use it up.
		r.RateLimiter = ratelimit.None
		r.Retryables = append([]retry.IsErrorRetryable{retry.IsErrorRetryableFunc(hopeless)},
			append(slices.Clone(r.Retryables), retry.RetryableErrorCode{Codes: retriedCodes})...)
	})
	o.Retryer = standard
	o.APIOptions = append(o.APIOptions, keepLastFailure)
	if c.RetryFor > 0 {
		o.Retryer = persistent{standard, min(cmp.Or(c.Backoff, defaultBackoff), c.RetryFor/defaultAttempts)}
		o.RetryMaxAttempts = 0 // AWS_MAX_ATTEMPTS would bound what was asked for
		o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
			return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("RetryFor", func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
				return next.HandleInitialize(c.startClock(ctx), in)
			}), middleware.Before)
		})
	}
}

func (c Config) attempts() int {
	return cmp.Or(c.Attempts, defaultAttempts)
}

// triedFor says how long or how often a request was tried.
func (c Config) triedFor() string {
	if c.RetryFor > 0 {
		return fmt.Sprintf("for %s", c.RetryFor)
	}
	return fmt.Sprintf("in all of %d attempts", c.attempts())
}

// hopeless is what the SDK tries again though time does not mend it.
func hopeless(err error) aws.Ternary {
	if isCertificate(err) || isPlainHTTP(err) {
		return aws.FalseTernary
	}
	return aws.UnknownTernary
}

// untilKey is where a context says when no further attempt may begin.
type untilKey struct{}

// startClock starts the time that RetryFor allows. A clock that runs already
// goes on: the requests that share a context share the time.
func (c Config) startClock(ctx context.Context) context.Context {
	if c.RetryFor <= 0 || ctx.Value(untilKey{}) != nil {
		return ctx
	}
	return context.WithValue(ctx, untilKey{}, time.Now().Add(c.RetryFor))
}

// persistent is the SDK's retryer, bounded by a clock and not by a number.
type persistent struct {
	aws.RetryerV2
	longest time.Duration // pause
}

// MaxAttempts is none.
func (p persistent) MaxAttempts() int { return 0 }

// RetryDelay doubles up to the longest pause and varies by half, so that many
// parts and many clients do not come back together. The SDK's own does not vary
// its longest pause.
func (p persistent) RetryDelay(attempt int, _ error) (time.Duration, error) {
	pause := min(p.longest, firstPause<<min(max(attempt-1, 0), 10))
	return pause/2 + rand.N(pause/2+1), nil
}

// GetRetryToken refuses another attempt that the pause could bring beyond the
// clock's end.
func (p persistent) GetRetryToken(ctx context.Context, err error) (func(error) error, error) {
	if until, ok := ctx.Value(untilKey{}).(time.Time); ok && time.Now().Add(p.longest).After(until) {
		return nil, errTimeUsed
	}
	return p.RetryerV2.GetRetryToken(ctx, err)
}

// takesRefusal does not try again what the server refuses as a bad request.
type takesRefusal struct{ aws.Retryer }

// IsErrorRetryable leaves all the rest to the retryer it wraps.
func (r takesRefusal) IsErrorRetryable(err error) bool {
	status, _, _ := answer(err)
	return status != http.StatusBadRequest && r.Retryer.IsErrorRetryable(err)
}

// cutError is of a request whose context ended after an attempt had failed, of
// which the SDK says nothing then. Of both only the end is in the chain.
type cutError struct{ end, last error }

func (e *cutError) Error() string { return e.end.Error() }
func (e *cutError) Unwrap() error { return e.end }

// lastKey is where a context keeps the error of the last attempt: a *lastFailure.
type lastKey struct{}

// lastFailure is nil where there was no attempt, or where the last succeeded.
type lastFailure struct{ atomic.Pointer[error] }

// cut makes a *cutError of an end, where an attempt had failed before.
func (l *lastFailure) cut(end error) error {
	if last := l.Load(); last != nil {
		return &cutError{end, *last}
	}
	return end
}

// keepLastFailure makes a *cutError of an end that came between or in attempts.
func keepLastFailure(stack *middleware.Stack) error {
	whole := middleware.InitializeMiddlewareFunc("LastFailure", func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
		last, shared := ctx.Value(lastKey{}).(*lastFailure)
		if !shared {
			last = &lastFailure{}
			ctx = context.WithValue(ctx, lastKey{}, last)
		}
		out, metadata, err := next.HandleInitialize(ctx, in)
		if err != nil && ctx.Err() != nil {
			err = last.cut(err)
		}
		return out, metadata, err
	})
	attempt := middleware.FinalizeMiddlewareFunc("LastFailureOfAttempts", func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
		out, metadata, err := next.HandleFinalize(ctx, in)
		if last, ok := ctx.Value(lastKey{}).(*lastFailure); ok {
			switch {
			case err == nil:
				last.Store(nil)
			case ctx.Err() == nil:
				last.Store(&err)
			}
		}
		return out, metadata, err
	})
	return errors.Join(stack.Initialize.Add(whole, middleware.Before), stack.Finalize.Insert(attempt, (*retry.Attempt)(nil).ID(), middleware.After))
}
