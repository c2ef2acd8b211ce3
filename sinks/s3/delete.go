package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/requorum/requorum/sinks"
)

// Delete removes an object. In a bucket that keeps versions a plain delete of
// a locked object succeeds and hides it behind a marker, and space is never
// freed: so the newest version is read, with its lock, and that version is
// deleted.
func (s *Sink) Delete(ctx context.Context, name string) error {
	if err := sinks.ValidName(name); err != nil {
		return err
	}
	head, err := s.head(ctx, name)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return s.remove(ctx, name, head)
}

// remove deletes the version that head describes.
func (s *Sink) remove(ctx context.Context, name string, head *s3.HeadObjectOutput) error {
	locked := aws.ToTime(head.ObjectLockRetainUntilDate).After(time.Now()) || head.ObjectLockLegalHoldStatus == types.ObjectLockLegalHoldStatusOn
	if locked {
		return s.locked(name, head)
	}
	// No bypass of a governance lock, whatever the credentials may do.
	out, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{
		Bucket: &s.config.Bucket, Key: aws.String(s.key(name)), VersionId: head.VersionId,
	})
	if status, code, _ := answer(err); status == http.StatusNotFound && code != "NoSuchBucket" {
		return nil
	} else if status == http.StatusForbidden && (head.ObjectLockMode != "" || code == "ObjectLocked") {
		return s.locked(name, head) // by the server's clock it is
	}
	if err != nil {
		return s.explain(opDelete, name, err)
	}
	if !aws.ToBool(out.DeleteMarker) || head.VersionId != nil {
		return nil
	}
	// The bucket keeps versions and did not say so: the object is hidden, not
	// deleted. Undo that.
	if _, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{
		Bucket: &s.config.Bucket, Key: aws.String(s.key(name)), VersionId: out.VersionId,
	}); err != nil {
		return fmt.Errorf("delete %s in %s: the server hid the object behind a delete marker, which could not be removed again: %w", name, s, s.explain(opDelete, name, err))
	}
	return fmt.Errorf("delete %s in %s: %w", name, s, errors.New("the bucket keeps versions and the server does not tell which; nothing was deleted"))
}

func (s *Sink) locked(name string, head *s3.HeadObjectOutput) error {
	if head.ObjectLockLegalHoldStatus == types.ObjectLockLegalHoldStatusOn {
		return fmt.Errorf("delete %s in %s: a legal hold is on it: %w", name, s, sinks.ErrLocked)
	}
	return fmt.Errorf("delete %s in %s: %s lock until %s: %w", name, s, head.ObjectLockMode,
		aws.ToTime(head.ObjectLockRetainUntilDate).UTC().Format(time.RFC3339), sinks.ErrLocked)
}
