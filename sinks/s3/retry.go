package s3

import (
	"context"
	"errors"
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
	o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("Tries", func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
			ctx, tried := c.count(ctx)
			out, metadata, err := next.HandleInitialize(ctx, in)
			if err != nil && ctx.Err() != nil {
				err = tried.cut(err)
			}
			return out, metadata, err
		}), middleware.Before)
	})
}

// passes says what is tried again, beyond what the SDK does by itself, and what is
// not though the SDK would: time mends no certificate.
func passes(err error) aws.Ternary {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return aws.UnknownTernary // the SDK's own matter
	}
	if isCertificate(err) || isPlainHTTP(err) {
		return aws.FalseTernary
	}
	status, code, _ := answer(err)
	if _, again := unanswered(err, ""); status == 0 && again || passing(status, code) {
		return aws.TrueTernary
	}
	return aws.UnknownTernary
}

// tries are the attempts of the requests that share a context.
type tries struct {
	until time.Time // when no further attempt may begin
	// last is how the attempt before failed; nil before the second one, and where that
	// succeeded.
	last atomic.Pointer[error]
}

// triesKey is where a context keeps them.
type triesKey struct{}

func (t *tries) of(ctx context.Context) context.Context { return context.WithValue(ctx, triesKey{}, t) }

// count starts the time that Retry allows. Where it was started already it goes on:
// the requests that share a context share the time.
func (c Config) count(ctx context.Context) (context.Context, *tries) {
	t, ok := ctx.Value(triesKey{}).(*tries)
	if !ok {
		t = &tries{until: time.Now().Add(c.Retry.For)}
		ctx = t.of(ctx)
	}
	return ctx, t
}

// cut makes a *cutError of an end, where an attempt had failed before.
func (t *tries) cut(end error) error {
	if last := t.last.Load(); last != nil {
		return &cutError{end, *last}
	}
	return end
}

// cutError is of a request whose context ended after an attempt had failed, of
// which the SDK says nothing then. Of both only the end is in the chain.
type cutError struct{ end, last error }

func (e *cutError) Error() string { return e.end.Error() }
func (e *cutError) Unwrap() error { return e.end }

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
// end of the time.
func (r retryer) GetRetryToken(ctx context.Context, err error) (func(error) error, error) {
	t, ok := ctx.Value(triesKey{}).(*tries)
	if !ok || r.policy.Over(t.until) {
		return nil, errTimeUsed
	}
	if ctx.Err() == nil {
		t.last.Store(&err)
	}
	release, refused := r.RetryerV2.GetRetryToken(ctx, err)
	return func(err error) error { // of the next attempt
		if err == nil {
			t.last.Store(nil)
		}
		return release(err)
	}, refused
}
