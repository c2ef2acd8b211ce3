// Package s3 is the sink that keeps objects in an S3 bucket, at Amazon or at
// any server that speaks the protocol.
//
// How it keeps the promises of package sinks:
//
//  1. Whole or absent: an object is one conditional PutObject, or a multipart
//     upload whose completion is conditional. Abort confirms that the upload
//     is gone.
//  2. Written once: If-None-Match on every put and completion. Whether the
//     server heeds it is probed once for each Sink; on one that does not, each
//     Commit looks first, which is safe with a single writer, and Abilities
//     says so.
//  3. An answer that may have been a success is cleared up: each upload
//     carries an identity of its own in the object's metadata, and Commit reads
//     it back. Where the server stays out of reach, Commit says
//     sinks.ErrUncertain.
//  4. What the configuration asks for (encryption, storage class, object lock)
//     is read back as well; a server that ignores it is an error.
//
// Memory is bounded: a Writer holds at most five parts of 16 MiB, whatever the
// size of the stream up to 62 GiB, and grows its parts beyond that; a reader
// holds at most five chunks of 8 MiB.
package s3

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/requorum/requorum/sinks"
)

// Sink is a place in a bucket. It implements sinks.Sink.
type Sink struct {
	config    Config
	client    *s3.Client
	closeIdle func()

	probing chan struct{} // a lock that a context can end the wait for
	probed  *sinks.Abilities
	failing lastFailure // of the probe that is under way, for who waits for it
	reached atomic.Bool // the bucket is known to be there
	hides   atomic.Bool // the credentials may not delete versions
}

var _ sinks.Sink = (*Sink)(nil)

// Open prepares the sink and speaks to nobody but, where credentials come from
// one, the machine's metadata service: the first request reports whether the
// place is there.
func Open(ctx context.Context, c Config) (*Sink, error) {
	s := &Sink{config: c, probing: make(chan struct{}, 1)}
	err := c.check()
	if err == nil {
		s.client, s.closeIdle, err = newClient(ctx, c)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", s, err)
	}
	return s, nil
}

// String is the URL that ParseURL reads the same place from. It is kept in
// plans, which other hosts follow, and so holds all that opening it takes but
// the secrets.
func (s *Sink) String() string { return s.config.String() }

// Close releases the idle connections.
func (s *Sink) Close() error {
	s.closeIdle()
	return nil
}

// key is the object's key in the bucket.
func (s *Sink) key(name string) string {
	if s.config.Prefix == "" {
		return name
	}
	return s.config.Prefix + "/" + name
}

// name is the opposite of key.
func (s *Sink) name(key string) string {
	if s.config.Prefix == "" {
		return key
	}
	return strings.TrimPrefix(key, s.config.Prefix+"/")
}

// Stat describes an object.
func (s *Sink) Stat(ctx context.Context, name string) (sinks.Object, error) {
	if err := sinks.ValidName(name); err != nil {
		return sinks.Object{}, err
	}
	head, err := s.head(ctx, name)
	if err != nil {
		return sinks.Object{}, err
	}
	return object(name, head), nil
}

func object(name string, head *s3.HeadObjectOutput) sinks.Object {
	return sinks.Object{
		Name:        name,
		Size:        aws.ToInt64(head.ContentLength),
		ModTime:     aws.ToTime(head.LastModified),
		LockedUntil: aws.ToTime(head.ObjectLockRetainUntilDate),
	}
}

// maxBarren is how many empty pages may follow each other: a server may need some to
// get over what was deleted.
const maxBarren = 100

// List asks for one page of names after the other, as they are wanted. Keys
// that cannot be names (folders that other tools make, the probe's objects) are
// left out.
func (s *Sink) List(ctx context.Context, prefix, after string) iter.Seq2[sinks.Object, error] {
	return func(yield func(sinks.Object, error) bool) {
		if prefix != "" && sinks.ValidName(prefix) != nil && sinks.ValidName(prefix+"x") != nil {
			return // no name starts so, and some servers refuse such a prefix
		}
		in := &s3.ListObjectsV2Input{Bucket: &s.config.Bucket}
		if key := s.key(prefix); key != "" {
			in.Prefix = &key
		}
		if after != "" {
			in.StartAfter = aws.String(s.key(after))
		}
		last, top, barren := "", "", 0
		for pages := s3.NewListObjectsV2Paginator(s.client, in); pages.HasMorePages(); {
			page, err := pages.NextPage(ctx)
			if err != nil {
				yield(sinks.Object{}, s.explain(opList, "", err))
				return
			}
			s.reached.Store(true)
			// Pages that do not get on could go on for ever.
			if barren++; barren > maxBarren {
				yield(sinks.Object{}, fmt.Errorf("list %s: the server sends one empty page after the other and says that more follows: it cannot be used", s))
				return
			}
			for i, o := range page.Contents {
				key := aws.ToString(o.Key)
				if i == 0 && key <= top {
					yield(sinks.Object{}, fmt.Errorf("list %s: the server begins a page with %q after %q, which is not the order of S3: it cannot be used", s, key, top))
					return
				}
				top, barren = max(top, key), 0
				name := s.name(key)
				if sinks.ValidName(name) != nil || !strings.HasPrefix(name, prefix) {
					continue
				}
				if name <= last {
					yield(sinks.Object{}, fmt.Errorf("list %s: the server lists %s after %s, which is not the order of S3: it cannot be used", s, name, last))
					return
				}
				last = name
				if name <= after {
					continue // some servers know no StartAfter
				}
				if !yield(sinks.Object{Name: name, Size: aws.ToInt64(o.Size), ModTime: aws.ToTime(o.LastModified)}, nil) {
					return
				}
			}
		}
	}
}

// head asks for an object's description. Its errors are explained.
func (s *Sink) head(ctx context.Context, name string) (*s3.HeadObjectOutput, error) {
	ctx = s.config.startClock(ctx) // one for all the requests that follow
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.config.Bucket, Key: aws.String(s.key(name))})
	if err == nil {
		s.reached.Store(true)
		return out, nil
	}
	status, _, _ := answer(err)
	switch status {
	case 0:
	case http.StatusNotFound:
		// The same answer is given where the bucket is missing, and "no such
		// object" would then hide a typing error in the URL.
		if lost := s.reach(ctx); lost != nil {
			return nil, s.explain(opStat, name, lost)
		}
	default:
		// The answer to a HEAD has no body, hence no reason. A GET has one.
		get, reason := s.client.GetObject(ctx, &s3.GetObjectInput{
			Bucket: &s.config.Bucket, Key: aws.String(s.key(name)), Range: aws.String("bytes=0-0"),
		})
		if reason == nil {
			get.Body.Close() // nothing was wanted of it
		} else if now, _, _ := answer(reason); now == status {
			err = reason
		}
	}
	return nil, s.explain(opStat, name, err)
}

// reach returns an error when the bucket is known to be missing.
func (s *Sink) reach(ctx context.Context) error {
	if s.reached.Load() {
		return nil
	}
	one := int32(1)
	_, err := s.client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &s.config.Bucket, Prefix: aws.String(s.key("")), MaxKeys: &one})
	status, code, _ := answer(err)
	if code == "NoSuchBucket" || status == http.StatusNotFound {
		return err
	}
	if err == nil {
		s.reached.Store(true)
	}
	return nil // without the right to list it cannot be known
}

func isNotFound(err error) bool { return errors.Is(err, sinks.ErrNotFound) }

// Delete removes an object. In a bucket that keeps versions a plain delete frees no space,
// and hides a locked object behind a marker: so the newest version is read, with its lock,
// and that version is deleted. Where the credentials may not delete versions the object,
// which is not locked, is hidden.
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
	in := &s3.DeleteObjectInput{Bucket: &s.config.Bucket, Key: aws.String(s.key(name)), VersionId: head.VersionId}
	hide := head.VersionId != nil && s.hides.Load()
	if hide {
		in.VersionId = nil
	}
	// No bypass of a governance lock, whatever the credentials may do.
	out, err := s.client.DeleteObject(ctx, in)
	status, code, _ := answer(err)
	switch {
	case status == http.StatusNotFound && code != "NoSuchBucket":
		return nil
	case status == http.StatusForbidden && (head.ObjectLockMode != "" || code == "ObjectLocked"):
		return s.locked(name, head) // by the server's clock it is
	case status == http.StatusForbidden && in.VersionId != nil && !strings.Contains(strings.ToLower(err.Error()), "object lock"):
		// Without the right to delete versions the object is hidden, and somebody else may
		// bring it back until a lifecycle rule has it expire.
		in.VersionId = nil
		if _, errHide := s.client.DeleteObject(ctx, in); errHide != nil {
			return s.explain(opDelete, name, err)
		}
		s.hides.Store(true)
		return nil
	case err != nil:
		return s.explain(opDelete, name, err)
	case hide || !aws.ToBool(out.DeleteMarker) || head.VersionId != nil:
		return nil
	}
	// The bucket keeps versions and did not say so: the object is hidden, not
	// deleted. Undo that.
	if _, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{
		Bucket: &s.config.Bucket, Key: aws.String(s.key(name)), VersionId: out.VersionId,
	}); err != nil {
		return fmt.Errorf("delete %s in %s: the server hid the object behind a delete marker, which could not be removed again: %w", name, s, s.explain(opDelete, name, err))
	}
	return fmt.Errorf("delete %s in %s: %w", name, s, errors.New("the bucket keeps versions and the server does not say which; nothing was deleted"))
}

func (s *Sink) locked(name string, head *s3.HeadObjectOutput) error {
	if head.ObjectLockLegalHoldStatus == types.ObjectLockLegalHoldStatusOn {
		return fmt.Errorf("delete %s in %s: a legal hold is on it: %w", name, s, sinks.ErrLocked)
	}
	return fmt.Errorf("delete %s in %s: %s lock until %s: %w", name, s, head.ObjectLockMode,
		aws.ToTime(head.ObjectLockRetainUntilDate).UTC().Format(time.RFC3339), sinks.ErrLocked)
}
