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

// sentFlag remembers whether a request was ever written to its end, in any of
// its attempts. One that was not cannot have stored anything.
type sentFlag struct{ sent atomic.Bool }

func (f *sentFlag) watch(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				f.sent.Store(true)
			}
		},
	})
}

func (f *sentFlag) unset() bool { return !f.sent.Load() }

// settle finds out what became of a put or completion that failed with cause.
// Even "exists already" may be an answer to the second attempt of a put whose
// first one succeeded, and a timeout may be a success. fence, where there is
// one, makes sure that nothing appears later; stored is called when the object
// is ours.
func (s *Sink) settle(u upload, op operation, cause error, fence func() error, stored func()) (sinks.Object, error) {
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	explained := s.explain(op, u.name, cause)
	status, _, _ := answer(cause)
	fenced := fence == nil
	for deadline := time.Now().Add(latePut); ; {
		head, err := s.head(ctx, u.name, fewAttempts)
		switch {
		case err == nil && head.Metadata[identityKey] == u.identity:
			stored()
			return s.honoured(u, head)
		case err == nil:
			return sinks.Object{}, s.taken(u.name)
		case errors.Is(err, sinks.ErrDenied) && status == http.StatusPreconditionFailed:
			return sinks.Object{}, explained
		case !isNotFound(err) && clear4xx(status):
			return sinks.Object{}, explained // it was refused, and that nobody can look changes nothing
		case !isNotFound(err):
			return sinks.Object{}, &failure{
				what:  fmt.Sprintf("%s %s in %s", op.verb, u.name, s),
				cause: fmt.Sprintf("it is not known whether the object was stored; see whether it is there before anything is concluded: %v; and looking failed: %v", explained, err),
				err:   errors.Join(explained, err), temporary: sinks.Temporary(explained),
			}
		case !fenced:
			if err := fence(); err != nil {
				return sinks.Object{}, errors.Join(explained, err)
			}
			fenced = true // and look once more
		case fence != nil || clear4xx(status) || time.Now().After(deadline):
			return sinks.Object{}, explained
		default:
			time.Sleep(latePut / 10)
		}
	}
}

// clear4xx says that the server refused: no success hides behind the answer.
func clear4xx(status int) bool {
	return status >= 400 && status < 500 && status != http.StatusRequestTimeout
}

// fewAttempts is for looking, where the time is short.
func fewAttempts(o *s3.Options) { o.RetryMaxAttempts = 3 }
