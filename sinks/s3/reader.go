package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/requorum/requorum/sinks"
)

const (
	// chunkSize and chunksAhead: a long range is read in chunks, some of them at
	// once; one connection alone reaches a fraction of what a bucket gives.
	chunkSize   = 8 * mebibyte
	chunksAhead = 4
	// resumes is how often one chunk's body may break off and be gone on with.
	resumes = 5
)

// source is one object at the moment when it was opened: what is read later
// must be of the same content.
type source struct {
	sink *Sink
	name string
	etag string
	size int64
}

// Open reads a range. Short ones are one request, long ones are read ahead in
// parallel. An object that is replaced meanwhile is an error.
func (s *Sink) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if err := sinks.ValidName(name); err != nil {
		return nil, err
	}
	if offset < 0 {
		return nil, fmt.Errorf("read %s in %s: negative offset %d", name, s, offset)
	}
	want := int64(chunkSize)
	if length >= 0 {
		want = min(want, length)
	}
	if want == 0 {
		return s.openEmpty(ctx, name, offset)
	}
	src := &source{sink: s, name: name}
	body, err := src.get(ctx, offset, want)
	if status, _, _ := answer(err); status == http.StatusRequestedRangeNotSatisfiable {
		return s.openEmpty(ctx, name, offset)
	}
	if err != nil {
		return nil, err
	}
	end := src.size
	if length >= 0 && length < end-offset {
		end = offset + length
	}
	first := &chunkReader{ctx: ctx, source: src, body: body, at: offset, end: min(end, offset+want)}
	if first.end == end {
		return first, nil
	}
	return newParallelReader(ctx, src, first, end), nil
}

// openEmpty is for a range without bytes: the object must be there all the
// same, and reach as far as offset.
func (s *Sink) openEmpty(ctx context.Context, name string, offset int64) (io.ReadCloser, error) {
	object, err := s.Stat(ctx, name)
	if err != nil {
		return nil, err
	}
	if offset > object.Size {
		return nil, fmt.Errorf("read %s in %s: offset %d is beyond its end at %d", name, s, offset, object.Size)
	}
	return io.NopCloser(strings.NewReader("")), nil
}

// get asks for length bytes from offset on. The first answer tells the size and
// the ETag, which the later ones must match.
func (src *source) get(ctx context.Context, offset, length int64) (io.ReadCloser, error) {
	s := src.sink
	in := &s3.GetObjectInput{
		Bucket: &s.config.Bucket, Key: aws.String(s.key(src.name)),
		Range: aws.String(fmt.Sprintf("bytes=%d-%d", offset, offset+length-1)),
	}
	if src.etag != "" {
		in.IfMatch = &src.etag
	}
	out, err := s.client.GetObject(ctx, in)
	if status, _, _ := answer(err); status == http.StatusNotFound {
		if lost := s.reach(ctx); lost != nil {
			err = lost
		}
	} else if status == http.StatusPreconditionFailed {
		return nil, src.changed()
	}
	if err != nil {
		return nil, s.explain(opRead, src.name, err)
	}
	s.reached.Store(true)
	start, size, err := contentRange(aws.ToString(out.ContentRange))
	if err == nil && start != offset {
		err = fmt.Errorf("byte %d was asked for and byte %d came", offset, start)
	}
	if err == nil && src.etag != "" && (size != src.size || aws.ToString(out.ETag) != src.etag) {
		err = src.changed()
	}
	if err != nil {
		out.Body.Close() // nothing of it is used
		return nil, fmt.Errorf("read %s in %s: %w", src.name, s, err)
	}
	if src.etag == "" {
		src.etag, src.size = aws.ToString(out.ETag), size
	}
	return out.Body, nil
}

func (src *source) changed() error {
	return fmt.Errorf("read %s in %s: the object was replaced while it was read; stored objects are never overwritten by requorum: somebody else writes there", src.name, src.sink)
}

// contentRange reads "bytes 0-99/1000".
func contentRange(s string) (start, size int64, err error) {
	var end int64
	if s == "" {
		return 0, 0, errors.New("the server ignores ranges and sends whole objects: it cannot be used")
	}
	rest, ok := strings.CutPrefix(s, "bytes ")
	bounds, total, ok2 := strings.Cut(rest, "/")
	first, last, ok3 := strings.Cut(bounds, "-")
	if ok && ok2 && ok3 {
		start, err = strconv.ParseInt(first, 10, 64)
		if err == nil {
			end, err = strconv.ParseInt(last, 10, 64)
		}
		if err == nil {
			size, err = strconv.ParseInt(total, 10, 64)
		}
		if err == nil && 0 <= start && start <= end && end < size {
			return start, size, nil
		}
	}
	return 0, 0, fmt.Errorf("the server sent a Content-Range that cannot be read: %q", s)
}
