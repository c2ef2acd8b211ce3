package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/semaphore"

	"github.com/requorum/requorum/sinks"
)

// abortTimeout bounds an abort, which has a context of its own: that of the
// upload has often ended.
const abortTimeout = 30 * time.Second

// multipart is an upload in parts, several of them on their way at once.
type multipart struct {
	sink   *Sink
	name   string
	id     string
	ctx    context.Context
	cancel context.CancelCauseFunc
	slots  *semaphore.Weighted // bytes on their way
	spare  chan []byte         // buffers to use again
	going  sync.WaitGroup
	mu     sync.Mutex            // of parts
	parts  []types.CompletedPart // by number; whole after going
	over   bool                  // completed or aborted
}

// begin starts a multipart upload. ctx is that of all its parts.
func (s *Sink) begin(ctx context.Context, u upload) (*multipart, error) {
	in := &s3.CreateMultipartUploadInput{
		Bucket:            &s.config.Bucket,
		Key:               aws.String(s.key(u.name)),
		ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c,
		Metadata:          map[string]string{identityKey: u.identity},
		StorageClass:      types.StorageClass(s.config.StorageClass),
	}
	in.ServerSideEncryption, in.SSEKMSKeyId = s.encryption()
	if u.contentType != "" {
		in.ContentType = &u.contentType
	}
	if !u.lockedUntil.IsZero() {
		in.ObjectLockMode, in.ObjectLockRetainUntilDate = types.ObjectLockMode(s.config.LockMode), &u.lockedUntil
	}
	// It outlives ctx a little: an upload whose ID never arrived here could not be
	// aborted.
	starting, stop := lingering(ctx, beginGrace)
	defer stop()
	out, err := s.client.CreateMultipartUpload(starting, in)
	if err != nil {
		return nil, s.explain(opUpload, u.name, err)
	}
	if aws.ToString(out.UploadId) == "" {
		return nil, fmt.Errorf("upload %s to %s: the server began a multipart upload and gave no ID for it", u.name, s)
	}
	m := &multipart{
		sink: s, name: u.name, id: *out.UploadId,
		slots: semaphore.NewWeighted(inFlight),
		spare: make(chan []byte, inFlight/partSize+1),
	}
	m.ctx, m.cancel = context.WithCancelCause(ctx)
	if ctx.Err() != nil {
		return nil, errors.Join(s.explain(opUpload, u.name, context.Cause(ctx)), m.abort())
	}
	return m, nil
}

// beginGrace is how long the answer to the start of an upload is waited for
// after the caller's context has ended.
const beginGrace = 5 * time.Second

// lingering is a context that ends some time after ctx does.
func lingering(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(grace, func() { cancel(context.Cause(ctx)) })
	})
	return longer, func() {
		stop()
		cancel(nil)
	}
}

// failed is the first error of a part.
func (m *multipart) failed() error {
	if m.ctx.Err() == nil {
		return nil
	}
	return m.sink.explain(opUpload, m.name, context.Cause(m.ctx))
}

// send starts to send a part and returns a buffer for the next one. It blocks
// while enough bytes are on their way.
func (m *multipart) send(part []byte) (next []byte, err error) {
	number := m.count() + 1
	if number > maxParts {
		return nil, fmt.Errorf("upload %s to %s: more than %d parts", m.name, m.sink, maxParts)
	}
	weight := min(int64(len(part)), inFlight)
	if err := m.slots.Acquire(m.ctx, weight); err != nil {
		return nil, m.failed()
	}
	m.keep(number, types.CompletedPart{})
	m.going.Go(func() {
		defer m.slots.Release(weight)
		done, err := m.sendPart(int32(number), part)
		if err != nil {
			m.cancel(m.sink.explain(opUpload, m.name, fmt.Errorf("part %d: %w", number, err)))
			return
		}
		m.keep(number, done)
		select {
		case m.spare <- part[:0]:
		default:
		}
	})
	select {
	case next = <-m.spare:
	default:
		next = make([]byte, 0, partSize)
	}
	return next, nil
}

// keep notes a part that is begun or done.
func (m *multipart) keep(number int, part types.CompletedPart) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if number > len(m.parts) {
		m.parts = append(m.parts, part)
		return
	}
	m.parts[number-1] = part
}

// count is how many parts were begun.
func (m *multipart) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.parts)
}

func (m *multipart) sendPart(number int32, part []byte) (types.CompletedPart, error) {
	sum := aws.String(checksum(part))
	out, err := m.sink.client.UploadPart(m.ctx, &s3.UploadPartInput{
		Bucket: &m.sink.config.Bucket, Key: aws.String(m.sink.key(m.name)), UploadId: &m.id,
		PartNumber: &number, Body: bytes.NewReader(part), ContentLength: aws.Int64(int64(len(part))),
		ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c, ChecksumCRC32C: sum,
	})
	if err != nil {
		return types.CompletedPart{}, err
	}
	return types.CompletedPart{PartNumber: &number, ETag: out.ETag, ChecksumCRC32C: sum}, nil
}

// complete waits for the parts and makes the object of them.
func (m *multipart) complete(ctx context.Context, u upload) (sinks.Object, error) {
	stop := context.AfterFunc(ctx, func() { m.cancel(context.Cause(ctx)) })
	m.going.Wait()
	stop()
	if err := m.failed(); err != nil {
		return sinks.Object{}, err
	}
	s := m.sink
	sent := newSendings()
	out, err := s.client.CompleteMultipartUpload(sent.watch(ctx), &s3.CompleteMultipartUploadInput{
		Bucket: &s.config.Bucket, Key: aws.String(s.key(m.name)), UploadId: &m.id,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: m.parts},
		MpuObjectSize:   &u.size,
		IfNoneMatch:     aws.String("*"),
	})
	if err == nil {
		m.over = true
		return s.confirm(ctx, u, aws.ToString(out.ETag), aws.ToString(out.VersionId))
	}
	if !sent.whole.Load() {
		return sinks.Object{}, s.explain(opUpload, m.name, err)
	}
	// With the upload gone, no late completion can make the object appear.
	fence := func() error {
		err := m.abort()
		m.over = err == nil
		return err
	}
	return s.settle(ctx, u, opUpload, err, sent, fence, func() { m.over = true })
}

// abort drops the parts that were sent, and makes sure of it.
func (m *multipart) abort() error {
	m.cancel(context.Canceled)
	m.going.Wait()
	if m.over {
		return nil
	}
	m.over = true
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.ctx), abortTimeout)
	defer cancel()
	if err := m.sink.abortUpload(ctx, m.name, m.id); err != nil {
		return fmt.Errorf("%w; parts of upload %s may stay stored and cost space: docs/s3.md shows the lifecycle rule that removes such remains", err, m.id)
	}
	return nil
}

// abortUpload ends an upload and confirms that it is gone: a part that was on
// its way may be stored after the first abort.
func (s *Sink) abortUpload(ctx context.Context, name, id string) error {
	key := aws.String(s.key(name))
	for range 3 {
		_, err := s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &s.config.Bucket, Key: key, UploadId: &id})
		if noSuchUpload(err) {
			return nil
		}
		if err != nil {
			return s.explain(opAbort, name, err)
		}
		_, err = s.client.ListParts(ctx, &s3.ListPartsInput{Bucket: &s.config.Bucket, Key: key, UploadId: &id, MaxParts: aws.Int32(1)})
		if err != nil {
			// Without the right to list parts the server's word is all there is.
			if status, _, _ := answer(err); noSuchUpload(err) || status == http.StatusForbidden || status == http.StatusNotImplemented {
				return nil
			}
			return s.explain(opAbort, name, err)
		}
	}
	return fmt.Errorf("abort the upload of %s in %s: the server goes on listing it", name, s)
}

func noSuchUpload(err error) bool {
	var gone *types.NoSuchUpload
	status, code, _ := answer(err)
	return errors.As(err, &gone) || status == http.StatusNotFound && code == "NoSuchUpload"
}
