package s3

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/requorum/requorum/sinks"
)

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
			err:   err, temporary: sinks.Temporary(err),
		}
	}
	if identity := head.Metadata[identityKey]; identity != u.identity && (identity != "" || aws.ToString(head.ETag) != etag) {
		return sinks.Object{}, fmt.Errorf("put %s in %s: another writer has overwritten it meanwhile, on a server that does not prevent that: %w", u.name, s, sinks.ErrExists)
	}
	if head.VersionId == nil && version != "" {
		head.VersionId = &version
	}
	return s.honoured(u, head)
}

// honoured compares what was asked for with what the server says. An object
// that is not what was asked for is removed again.
func (s *Sink) honoured(u upload, head *s3.HeadObjectOutput) (sinks.Object, error) {
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

// unencrypted says how the encryption that the server tells of differs from
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
