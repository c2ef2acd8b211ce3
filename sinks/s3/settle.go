package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/requorum/requorum/sinks"
)

const (
	// settleTimeout bounds the search for what became of a put.
	settleTimeout = 20 * time.Second
	// latePut is how long a server may go on with a put whose connection is
	// gone before we believe that the object does not appear.
	latePut = 2 * time.Second
)

// sendings remembers what of a request reached the network.
type sendings struct {
	began time.Time
	// whole: in one attempt at least the request was written to its end. One
	// that was not cannot have stored anything.
	whole atomic.Bool
	// attempts that were begun to be written. The answer to the last one tells
	// nothing of those before it.
	attempts atomic.Int32
}

func newSendings() *sendings { return &sendings{began: time.Now()} }

func (f *sendings) watch(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteHeaders: func() { f.attempts.Add(1) },
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				f.whole.Store(true)
			}
		},
	})
}

// aftermath is the context for looking what became of an upload whose context
// was ctx. It has the rest of the time that RetryFor gives from began on, and
// settleTimeout at least; once ctx has ended, settleTimeout.
func (s *Sink) aftermath(ctx context.Context, began time.Time) (context.Context, context.CancelFunc) {
	until := time.Now().Add(max(settleTimeout, s.config.RetryFor-time.Since(began)))
	look, cancel := context.WithDeadline(context.WithValue(context.WithoutCancel(ctx), untilKey{}, until), until)
	context.AfterFunc(ctx, func() {
		select {
		case <-time.After(settleTimeout):
			cancel()
		case <-look.Done():
		}
	})
	return look, cancel
}

// settle finds out what became of a put or completion that failed with cause.
// Even "exists already" may be an answer to the second attempt of a put whose
// first one succeeded, and a timeout may be a success. fence, where there is
// one, makes sure that nothing appears later; stored is called when the object
// is ours. What cannot be found out is sinks.ErrUncertain.
func (s *Sink) settle(ctx context.Context, u upload, op operation, cause error, sent *sendings, fence func() error, stored func()) (sinks.Object, error) {
	ctx, cancel := s.aftermath(ctx, sent.began)
	defer cancel()
	explained := s.explain(op, u.name, cause)
	status, _, _ := answer(cause)
	// Refused, in the only attempt there was: no success hides behind that.
	refused := sent.attempts.Load() <= 1 && clear4xx(status)
	uncertain := func(what string, err error) error {
		return &failure{
			what: fmt.Sprintf("%s %s in %s", op.verb, u.name, s), kind: sinks.ErrUncertain,
			cause: fmt.Sprintf("; see whether it is there before anything is concluded: %v; and %s failed: %v", explained, what, err),
			err:   errors.Join(explained, err), temporary: sinks.Temporary(explained),
		}
	}
	fenced := fence == nil
	for deadline := time.Now().Add(latePut); ; {
		head, err := s.head(ctx, u.name, s.fewAttempts)
		switch {
		case err == nil && head.Metadata[identityKey] == u.identity:
			stored()
			return s.honoured(u, head)
		case err == nil:
			return sinks.Object{}, s.taken(u.name)
		case !isNotFound(err) && refused:
			return sinks.Object{}, explained // that nobody can look changes nothing
		case !isNotFound(err):
			return sinks.Object{}, uncertain("looking", err)
		case !fenced:
			switch err := fence(); {
			case err != nil && refused:
				return sinks.Object{}, errors.Join(explained, err)
			case err != nil:
				return sinks.Object{}, uncertain("ending the upload", err)
			}
			// And look on: a completion that was under way may still win over the
			// end of its upload.
			fenced, deadline = true, time.Now().Add(latePut)
		case refused || time.Now().After(deadline):
			return sinks.Object{}, explained
		default:
			time.Sleep(latePut / 10)
		}
	}
}

// clear4xx says that the server refused, and did nothing.
func clear4xx(status int) bool {
	return status >= 400 && status < 500 && status != http.StatusRequestTimeout
}

// fewAttempts is for looking, where the time is short and no clock bounds it.
func (s *Sink) fewAttempts(o *s3.Options) {
	if s.config.RetryFor <= 0 {
		o.RetryMaxAttempts = 3
	}
}
