package s3

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"

	"github.com/requorum/requorum/sinks"
)

// errTimeUsed marks an error that came back for all the time that it was tried.
var errTimeUsed = errors.New("the time for trying again is over")

// setRetries has the SDK try again by our rule, and not by a number of its own.
func (c Config) setRetries(o *s3.Options) {
	o.Retryer = retryer{retry.NewStandard(func(r *retry.StandardOptions) {
		// The SDK's budget of retries is for the whole life of a client: in an
		// agent that runs for months one bad hour would use it up.
		r.RateLimiter = ratelimit.None
		r.Retryables = append([]retry.IsErrorRetryable{retry.IsErrorRetryableFunc(passes)}, r.Retryables...)
	}), c.Retry}
	o.RetryMaxAttempts = 0 // AWS_MAX_ATTEMPTS would bound what was asked for
	o.APIOptions = append(o.APIOptions, keepLastFailure, func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("RetryFor", func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
			return next.HandleInitialize(c.startClock(ctx), in)
		}), middleware.Before)
	})
}

// passes says what is tried again, beyond what the SDK does by itself, and what is
// not though the SDK would: time mends no certificate.
func passes(err error) aws.Ternary {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return aws.UnknownTernary // the SDK's own matter
	}
	if isCertificate(err) || errors.Is(err, http.ErrSchemeMismatch) {
		return aws.FalseTernary
	}
	status, code, _ := answer(err)
	if _, again := unanswered(err, ""); status == 0 && again || passing(status, code) {
		return aws.TrueTernary
	}
	return aws.UnknownTernary
}

// untilKey is where a context says when no further attempt may begin.
type untilKey struct{}

// startClock starts the time that Retry allows. A clock that runs already goes on:
// the requests that share a context share the time.
func (c Config) startClock(ctx context.Context) context.Context {
	if ctx.Value(untilKey{}) != nil {
		return ctx
	}
	return context.WithValue(ctx, untilKey{}, time.Now().Add(c.Retry.For))
}

// retryer is the SDK's, bounded by a clock and not by a number.
type retryer struct {
	aws.RetryerV2
	policy sinks.Retry
}

// MaxAttempts is none.
func (r retryer) MaxAttempts() int { return 0 }

// RetryDelay is the policy's: the SDK's own does not vary its longest pause.
func (r retryer) RetryDelay(attempt int, _ error) (time.Duration, error) {
	return r.policy.Pause(attempt), nil
}

// GetRetryToken refuses another attempt that the pause could bring beyond the
// clock's end.
func (r retryer) GetRetryToken(ctx context.Context, err error) (func(error) error, error) {
	if until, ok := ctx.Value(untilKey{}).(time.Time); !ok || r.policy.Over(until) {
		return nil, errTimeUsed
	}
	return r.RetryerV2.GetRetryToken(ctx, err)
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
