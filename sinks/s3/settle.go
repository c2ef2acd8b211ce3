package s3

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/requorum/requorum/sinks"
)

// settleTimeout bounds the search for what became of a put.
const settleTimeout = 20 * time.Second

// latePut is how long a server may go on with a put whose connection is gone before
// we believe that the object does not appear.
const latePut = 2 * time.Second

// sendings remembers what of a request reached the network.
type sendings struct {
	began time.Time
	// whole: in one attempt at least the request was written to its end. One
	// that was not cannot have stored anything.
	whole atomic.Bool
	// attempts that were begun to be written. The answer to the last one says
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
// was ctx. It has the rest of the time that Retry gives from began on, and
// settleTimeout at least; once ctx has ended, settleTimeout.
func (s *Sink) aftermath(ctx context.Context, began time.Time) (context.Context, context.CancelFunc) {
	least := cmp.Or(s.config.settle, settleTimeout)
	until := time.Now().Add(max(least, s.config.Retry.For-time.Since(began)))
	longer, stop := lingering(ctx, least)
	look, cancel := context.WithDeadline(context.WithValue(longer, untilKey{}, until), until)
	return look, func() {
		cancel()
		stop()
	}
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
			err:   errors.Join(explained, err),
		}
	}
	fenced := fence == nil
	for deadline := time.Now().Add(latePut); ; {
		head, err := s.head(ctx, u.name)
		switch {
		case err == nil && head.Metadata[identityKey] == u.identity:
			stored()
			return s.asAsked(u, head)
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

// confirm reads back what the server says of an object that it has just
// accepted.
func (s *Sink) confirm(ctx context.Context, u upload, etag, version string) (sinks.Object, error) {
	// It is stored already: the end of ctx must not turn that into a failure.
	ctx, cancel := s.aftermath(ctx, time.Now())
	defer cancel()
	head, err := s.head(ctx, u.name)
	if err != nil {
		return sinks.Object{}, &failure{
			what: fmt.Sprintf("put %s in %s", u.name, s), kind: sinks.ErrUncertain,
			cause: fmt.Sprintf(": the server accepted it, and it cannot be read back: %v", err),
			err:   err,
		}
	}
	if identity := head.Metadata[identityKey]; identity != u.identity && (identity != "" || aws.ToString(head.ETag) != etag) {
		return sinks.Object{}, fmt.Errorf("put %s in %s: another writer has overwritten it meanwhile, on a server that does not prevent that: %w", u.name, s, sinks.ErrExists)
	}
	if head.VersionId == nil && version != "" {
		head.VersionId = &version
	}
	return s.asAsked(u, head)
}

// asAsked compares what was asked for with what the server says. An object
// that is not what was asked for is removed again.
func (s *Sink) asAsked(u upload, head *s3.HeadObjectOutput) (sinks.Object, error) {
	err := s.compare(u, head)
	if err == nil {
		return object(u.name, head), nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), abortTimeout)
	defer cancel()
	if undo := s.remove(ctx, u.name, head); undo != nil {
		return sinks.Object{}, &failure{
			what: err.Error(), cause: fmt.Sprintf("the object stays, since it could not be removed again: %v", undo),
			err: errors.Join(sinks.ErrUncertain, err, undo),
		}
	}
	return sinks.Object{}, err
}

func (s *Sink) compare(u upload, head *s3.HeadObjectOutput) error {
	unlike := func(format string, args ...any) error {
		return fmt.Errorf("put %s in %s: %s", u.name, s, fmt.Sprintf(format, args...))
	}
	if size := aws.ToInt64(head.ContentLength); size != u.size {
		return unlike("%d bytes were sent and the server has %d: do not trust this server", u.size, size)
	}
	if problem := s.unencrypted(head.ServerSideEncryption, head.SSEKMSKeyId); problem != "" {
		return unlike("%s", problem)
	}
	if want := s.config.StorageClass; want != "" && want != string(types.StorageClassStandard) && want != string(head.StorageClass) {
		return unlike("storage-class=%s was asked for and the server says %q: it ignores storage classes; leave it out of the URL", want, head.StorageClass)
	}
	if u.lockedUntil.IsZero() {
		return nil
	}
	until := aws.ToTime(head.ObjectLockRetainUntilDate)
	switch {
	case head.ObjectLockMode == "" && until.IsZero():
		return unlike("the server does not say that the object is locked: either it ignores object lock, or the credentials lack the right s3:GetObjectRetention")
	case string(head.ObjectLockMode) != s.config.LockMode || until.Before(u.lockedUntil.Add(-time.Second)):
		return unlike("object-lock=%s until %s was asked for and the server says %s until %s", s.config.LockMode, u.lockedUntil.UTC().Format(time.RFC3339), head.ObjectLockMode, until.UTC().Format(time.RFC3339))
	}
	return nil
}

// unencrypted says how the encryption that the server reports differs from
// the one that is configured; "" where it does not.
func (s *Sink) unencrypted(got types.ServerSideEncryption, key *string) string {
	want := s.config.Encryption
	switch {
	case want == "":
		return ""
	case string(got) != want:
		return fmt.Sprintf("sse=%s was asked for and the server says %q: it does not encrypt, or not so; leave sse out of the URL and encrypt with age recipients instead", want, got)
	case s.config.KMSKey != "" && !strings.Contains(s.config.KMSKey, "alias/") && !strings.HasSuffix(aws.ToString(key), s.config.KMSKey):
		return fmt.Sprintf("kms-key=%s was asked for and the server used %s", s.config.KMSKey, aws.ToString(key))
	}
	return ""
}
