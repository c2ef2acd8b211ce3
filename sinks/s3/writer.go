package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/requorum/requorum/sinks"
)

// writer receives one object. What stays below one part is put in one go at
// Commit; the first full part begins a multipart upload.
type writer struct {
	sink   *Sink
	object upload // what is to be stored, and how
	ctx    context.Context

	buffer    []byte // the part that is being filled
	multipart *multipart
	closed    bool
}

// upload says what is stored, and how; it is the same for a single put and for
// a multipart upload.
type upload struct {
	name string
	// identity is random, kept in the object's metadata: it distinguishes our object
	// from another's of the same name when an answer was lost.
	identity    string
	contentType string
	lockedUntil time.Time // zero: no lock
	size        int64
}

// Create starts an object. The first call on a sink probes what the place can
// do.
func (s *Sink) Create(ctx context.Context, name string, opts sinks.CreateOptions) (sinks.Writer, error) {
	if err := sinks.ValidName(name); err != nil {
		return nil, err
	}
	if _, err := s.Abilities(ctx); err != nil {
		return nil, fmt.Errorf("create %s: %w", name, err)
	}
	w := &writer{sink: s, ctx: ctx, object: upload{name: name, identity: rand.Text(), contentType: opts.ContentType}}
	if opts.Lock && s.config.LockMode != "" {
		w.object.lockedUntil = time.Now().Add(s.config.Retention).Truncate(time.Second)
	}
	return w, nil
}

func (w *writer) Write(p []byte) (int, error) {
	if w.closed {
		return 0, sinks.ErrClosed
	}
	written := 0
	for len(p) > 0 {
		if err := w.interrupted(); err != nil {
			return written, err
		}
		take := min(len(p), w.limit()-len(w.buffer))
		w.buffer = append(w.buffer, p[:take]...)
		p, written, w.object.size = p[take:], written+take, w.object.size+int64(take)
		if len(w.buffer) == w.limit() {
			if err := w.send(); err != nil {
				return written, err
			}
		}
	}
	return written, w.interrupted()
}

// interrupted reports the end of Create's context and of a part that failed.
func (w *writer) interrupted() error {
	if w.multipart != nil {
		if err := w.multipart.failed(); err != nil {
			return err
		}
	}
	if w.ctx.Err() != nil {
		return w.sink.explain(opUpload, w.object.name, context.Cause(w.ctx))
	}
	return nil
}

func (w *writer) limit() int {
	if w.multipart == nil {
		return sizeOfPart(1)
	}
	return sizeOfPart(w.multipart.count() + 1)
}

// send hands the full buffer to the multipart upload and takes an empty one.
func (w *writer) send() (err error) {
	if w.object.size > maxObject {
		return fmt.Errorf("upload %s to %s: larger than 5 TiB, which is the most that S3 stores in one object", w.object.name, w.sink)
	}
	if w.multipart == nil {
		if w.multipart, err = w.sink.begin(w.ctx, w.object); err != nil {
			return err
		}
	}
	w.buffer, err = w.multipart.send(w.buffer)
	return err
}

// Commit stores the object, or leaves nothing. An answer that was lost is
// cleared up by looking, which can take a little longer than ctx.
func (w *writer) Commit(ctx context.Context) (sinks.Object, error) {
	if w.closed {
		return sinks.Object{}, sinks.ErrClosed
	}
	object, err := w.commit(ctx)
	if err != nil {
		return sinks.Object{}, errors.Join(err, w.Abort())
	}
	w.closed, w.buffer = true, nil
	return object, nil
}

func (w *writer) commit(ctx context.Context) (sinks.Object, error) {
	if err := w.interrupted(); err != nil {
		return sinks.Object{}, err
	}
	if err := w.sink.free(ctx, w.object.name); err != nil {
		return sinks.Object{}, err
	}
	if w.multipart == nil {
		return w.sink.put(ctx, w.object, w.buffer)
	}
	if len(w.buffer) > 0 {
		if err := w.send(); err != nil {
			return sinks.Object{}, err
		}
	}
	return w.multipart.complete(ctx, w.object)
}

// Abort drops what was sent. It takes half a minute at most.
func (w *writer) Abort() error {
	if w.closed {
		return nil
	}
	w.closed, w.buffer = true, nil
	if w.multipart == nil {
		return nil
	}
	return w.multipart.abort()
}

// free looks whether a name is taken, where the server would overwrite: that is
// safe with a single writer, and Abilities said that it takes one.
func (s *Sink) free(ctx context.Context, name string) error {
	abilities, err := s.Abilities(ctx)
	if err != nil || abilities.ExclusiveCreate {
		return err
	}
	switch _, err := s.head(ctx, name); {
	case err == nil:
		return s.taken(name)
	case isNotFound(err):
		return nil
	default:
		return err
	}
}

func (s *Sink) taken(name string) error {
	return fmt.Errorf("put %s in %s: %w", name, s, sinks.ErrExists)
}

// identityKey is where an object's metadata holds the identity of its upload.
const identityKey = "requorum-upload"

// put stores a small object with one request.
func (s *Sink) put(ctx context.Context, u upload, data []byte) (sinks.Object, error) {
	in := &s3.PutObjectInput{
		Bucket:            &s.config.Bucket,
		Key:               aws.String(s.key(u.name)),
		Body:              bytes.NewReader(data),
		ContentLength:     aws.Int64(int64(len(data))),
		ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c,
		ChecksumCRC32C:    aws.String(checksum(data)),
		IfNoneMatch:       aws.String("*"),
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
	sent := newSendings()
	out, err := s.client.PutObject(sent.watch(ctx), in)
	switch {
	case err == nil:
		return s.confirm(ctx, u, aws.ToString(out.ETag), aws.ToString(out.VersionId))
	case !sent.whole.Load():
		return sinks.Object{}, s.explain(opPut, u.name, err)
	}
	return s.settle(ctx, u, opPut, err, sent, nil, func() {})
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is CRC32C as S3's headers spell it. Amazon and the servers tried
// (versitygw, minio) take it on single puts and on parts; CRC64NVME, the other
// candidate, is unknown to older servers.
func checksum(data []byte) string {
	var sum [4]byte
	binary.BigEndian.PutUint32(sum[:], crc32.Checksum(data, castagnoli))
	return base64.StdEncoding.EncodeToString(sum[:])
}

func (s *Sink) encryption() (types.ServerSideEncryption, *string) {
	if s.config.KMSKey == "" {
		return types.ServerSideEncryption(s.config.Encryption), nil
	}
	return types.ServerSideEncryption(s.config.Encryption), &s.config.KMSKey
}

const (
	mebibyte = 1 << 20
	// partSize is measured: larger parts were no faster, smaller ones cost more
	// requests.
	partSize = 16 * mebibyte
	// inFlight bounds the bytes of parts that are on their way; one more part is
	// being filled meanwhile.
	inFlight = 4 * partSize
	// maxParts and maxObject are S3's limits.
	maxParts  = 10_000
	maxObject = 5 << 40
)

// sizeOfPart is the size of the n-th part, from 1. All parts of 16 MiB would
// end a stream at 156 GiB, since there are 10,000 at most. So parts grow once
// 62 GiB are stored, which no snapshot of etcd has reached: memory is flat up
// to there.
func sizeOfPart(n int) int {
	switch {
	case n <= 4000:
		return partSize
	case n <= 5000:
		return 4 * partSize
	case n <= 6000:
		return 16 * partSize
	default:
		return 96 * partSize // 1.5 GiB
	}
}
