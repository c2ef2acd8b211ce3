package s3

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/requorum/requorum/sinks"
)

// The probe's objects. Their names are none that ValidName accepts, so that
// they are never taken for stored objects. They stay: the steady state then
// costs two requests, and no right to delete is needed.
const (
	probeConditional = ".probe/conditional"
	probeEncryption  = ".probe/encryption"
)

var probeData = []byte("requorum probes with this object what the server can do. It may be deleted; it is made again.\n")

// Abilities probes the place, once for each Sink that it succeeds for. What is
// configured and cannot be had (object lock, encryption) is an error.
func (s *Sink) Abilities(ctx context.Context) (sinks.Abilities, error) {
	select {
	case s.probing <- struct{}{}:
		defer func() { <-s.probing }()
	case <-ctx.Done():
		return sinks.Abilities{}, fmt.Errorf("find out what the server can do: %w", s.explain(opPut, probeConditional, s.failing.cut(context.Cause(ctx))))
	}
	if s.probed != nil {
		return *s.probed, nil
	}
	s.failing.Store(nil)
	found, err := s.probe(context.WithValue(ctx, lastKey{}, &s.failing))
	if err != nil {
		return sinks.Abilities{}, fmt.Errorf("find out what the server can do: %w", err)
	}
	s.probed = &found
	return found, nil
}

func (s *Sink) probe(ctx context.Context) (found sinks.Abilities, err error) {
	if found.ExclusiveCreate, err = s.probeConditional(ctx); err != nil {
		return found, err
	}
	if !found.ExclusiveCreate {
		found.Notes = append(found.Notes, fmt.Sprintf("%s ignores conditional puts (If-None-Match): of two writers with one name the later would overwrite the earlier. Objects are looked for before each put, which is safe with a single writer. Let one process write there at a time, or use a server with conditional puts.", s))
	}
	note, err := s.probeLock(ctx)
	if err != nil {
		return found, err
	}
	if note != "" {
		found.Notes = append(found.Notes, note)
	}
	return found, s.probeEncryption(ctx)
}

// probeConditional: a 412 is proof at once; where the first put was accepted,
// the second must not be.
func (s *Sink) probeConditional(ctx context.Context) (bool, error) {
	for range 2 {
		_, err := s.client.PutObject(ctx, s.probePut(probeConditional))
		switch status, code, _ := answer(err); {
		case status == http.StatusPreconditionFailed:
			s.reached.Store(true)
			return true, nil
		case status == http.StatusNotImplemented || code == "NotImplemented":
			return false, fmt.Errorf("%s refuses conditional puts: requorum needs a server that takes or ignores If-None-Match: %w", s, s.explain(opPut, probeConditional, err))
		case err != nil:
			return false, s.explain(opPut, probeConditional, err)
		}
	}
	s.reached.Store(true)
	return false, nil
}

func (s *Sink) probePut(name string) *s3.PutObjectInput {
	sum := checksum(probeData)
	return &s3.PutObjectInput{
		Bucket: &s.config.Bucket, Key: aws.String(s.key(name)),
		Body: bytes.NewReader(probeData), ContentLength: aws.Int64(int64(len(probeData))),
		ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c, ChecksumCRC32C: &sum,
		IfNoneMatch: aws.String("*"),
	}
}

// probeLock reads the bucket's object lock: needed when one is configured, and
// worth a note when the bucket locks everything by itself.
func (s *Sink) probeLock(ctx context.Context) (note string, err error) {
	out, err := s.client.GetObjectLockConfiguration(ctx, &s3.GetObjectLockConfigurationInput{Bucket: &s.config.Bucket})
	configured := s.config.LockMode != ""
	if err != nil {
		status, code, _ := answer(err)
		switch {
		case configured && (code == "ObjectLockConfigurationNotFoundError" || status == http.StatusNotImplemented || status == http.StatusNotFound):
			return "", fmt.Errorf("%s: %s", s, s.noLock())
		case configured || status == 0 || status >= 500 && status != http.StatusNotImplemented:
			return "", s.explain(opReadLock, "", err)
		}
		return "", nil // no lock is wanted, and none is there or the credentials may not know
	}
	enabled := out.ObjectLockConfiguration != nil && out.ObjectLockConfiguration.ObjectLockEnabled == types.ObjectLockEnabledEnabled
	if configured && !enabled {
		return "", fmt.Errorf("%s: %s", s, s.noLock())
	}
	if !enabled || out.ObjectLockConfiguration.Rule == nil || out.ObjectLockConfiguration.Rule.DefaultRetention == nil {
		return "", nil
	}
	r := out.ObjectLockConfiguration.Rule.DefaultRetention
	period := fmt.Sprintf("%d days", aws.ToInt32(r.Days))
	if r.Years != nil {
		period = fmt.Sprintf("%d years", *r.Years)
	}
	return fmt.Sprintf("bucket %s locks every object by itself (%s, %s): scratch objects too, and nothing can be deleted before. Remove the bucket's default retention and let object-lock and retention in the URL lock what needs it.", s.config.Bucket, r.Mode, period), nil
}

// probeEncryption puts an object with the encryption that is configured and
// reads back which one it got. The answer to the start of a multipart upload
// would do without an object, but minio's does not say. The object's name
// stands for the settings, so that a later change of them makes another one.
func (s *Sink) probeEncryption(ctx context.Context) error {
	if s.config.Encryption == "" {
		return nil
	}
	name := fmt.Sprintf("%s-%08x", probeEncryption, crc32.ChecksumIEEE([]byte(s.config.Encryption+" "+s.config.KMSKey)))
	in := s.probePut(name)
	in.ServerSideEncryption, in.SSEKMSKeyId = s.encryption()
	_, err := s.client.PutObject(ctx, in)
	if status, _, _ := answer(err); err != nil && status != http.StatusPreconditionFailed {
		return s.explain(opPut, name, err)
	}
	head, err := s.head(ctx, name)
	if err != nil {
		return err
	}
	if problem := s.unencrypted(head.ServerSideEncryption, head.SSEKMSKeyId); problem != "" {
		return fmt.Errorf("%s: %s", s, problem)
	}
	return nil
}
