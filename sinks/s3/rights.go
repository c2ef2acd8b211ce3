package s3

import (
	"context"
	"errors"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/requorum/requorum/sinks"
)

// Right is what credentials may do below a prefix.
type Right string

// The rights that the policies in deploy/s3 divide.
const (
	MayPut           Right = "put"            // under a name that is free
	MayReplace       Right = "replace"        // also under one that is taken
	MayDelete        Right = "delete"         // where versions are kept: hide
	MayDeleteVersion Right = "delete version" // for good
)

// May reports whether the credentials have a right to the object called name, which must
// be a name that nobody uses. Nothing is stored, replaced or deleted: servers look at
// rights first, and then refuse a put whose checksum is wrong, and have nothing to delete.
func (s *Sink) May(ctx context.Context, right Right, name string) (bool, error) {
	if err := sinks.ValidName(name); err != nil {
		return false, err
	}
	op := opPut
	var err error
	once := func(o *s3.Options) { o.Retryer = aws.NopRetryer{} } // a wrong checksum would be tried again
	if right == MayPut || right == MayReplace {
		in := s.probePut(name, checksum(nil))
		in.ServerSideEncryption, in.SSEKMSKeyId = s.encryption() // policies may ask for it
		if right == MayReplace {
			in.IfNoneMatch = nil
		}
		if _, err = s.client.PutObject(ctx, in, once); err == nil { // the server looks at no checksum
			return true, s.Delete(ctx, name)
		}
	} else {
		op = opDelete
		in := &s3.DeleteObjectInput{Bucket: &s.config.Bucket, Key: aws.String(s.key(name))}
		if right == MayDeleteVersion {
			in.VersionId = aws.String("null")
		} else {
			in.IfMatch = aws.String(noContent) // without it a bucket with versions would keep a delete marker
		}
		if _, err = s.client.DeleteObject(ctx, in); err == nil {
			return true, nil
		}
	}
	status, _, _ := answer(err)
	switch err = s.explain(op, name, err); {
	case errors.Is(err, sinks.ErrDenied):
		return false, nil
	case status == http.StatusBadRequest, status == http.StatusNotFound, status == http.StatusPreconditionFailed:
		return true, nil
	}
	return false, err
}

// noContent is an ETag that no object has.
const noContent = `"00000000000000000000000000000000"`

// OfAmazon reports whether the bucket is at Amazon, whose policies know conditions that
// other servers' do not.
func (s *Sink) OfAmazon() bool { return s.config.Endpoint == "" }
