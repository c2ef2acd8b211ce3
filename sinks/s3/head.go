package s3

import (
	"context"
	"errors"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/requorum/requorum/sinks"
)

// head asks for an object's description. Its errors are explained.
func (s *Sink) head(ctx context.Context, name string, options ...func(*s3.Options)) (*s3.HeadObjectOutput, error) {
	ctx = s.config.startClock(ctx) // one for all the requests that follow
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.config.Bucket, Key: aws.String(s.key(name))}, options...)
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
		}, options...)
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
