package s3

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/requorum/requorum/sinks"
)

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
