package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/requorum/requorum/sinks"
)

const (
	// chunkSize and chunksAhead: a long range is read in chunks, some of them at
	// once; one connection alone reaches a fraction of what a bucket gives.
	chunkSize   = 8 * mebibyte
	chunksAhead = 4
	// progress is what a body has to bring, in bytes, for the time in which it may
	// break off again to begin anew.
	progress = 64 << 10
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

// get asks for length bytes from offset on. The first answer gives the size and
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
	start, came, size, err := contentRange(aws.ToString(out.ContentRange))
	switch {
	case err != nil:
	case start != offset:
		err = fmt.Errorf("byte %d was asked for and byte %d came", offset, start)
	case came > length || aws.ToInt64(out.ContentLength) > length:
		err = fmt.Errorf("%d bytes were asked for and %d came", length, max(came, aws.ToInt64(out.ContentLength)))
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

// contentRange reads "bytes 0-99/1000": where the range starts, its length, and the
// object's size.
func contentRange(s string) (start, length, size int64, err error) {
	var end int64
	if s == "" {
		return 0, 0, 0, errors.New("the server ignores ranges and sends whole objects: it cannot be used")
	}
	const form = "bytes %d-%d/%d"
	if _, err := fmt.Sscanf(s, form, &start, &end, &size); err != nil || fmt.Sprintf(form, start, end, size) != s || start < 0 || end < start || size <= end {
		return 0, 0, 0, fmt.Errorf("the server sent a Content-Range that cannot be read: %q", s)
	}
	return start, end - start + 1, size, nil
}

var errReaderClosed = errors.New("the reader is closed")

// parallelReader reads chunks ahead and hands them out in order. It holds
// chunksAhead+1 chunks at most.
type parallelReader struct {
	ctx    context.Context
	cancel context.CancelFunc
	order  chan chan chunk // in the order of the object
	spare  chan []byte     // as many as may be held: taking one is the bound
	going  sync.WaitGroup

	current chunk
	rest    []byte
	err     error
}

type chunk struct {
	data []byte
	err  error
}

// newParallelReader reads from first on up to end.
func newParallelReader(ctx context.Context, src *source, first *chunkReader, end int64) *parallelReader {
	r := &parallelReader{
		order: make(chan chan chunk, chunksAhead),
		spare: make(chan []byte, chunksAhead+1),
	}
	r.ctx, r.cancel = context.WithCancel(ctx)
	for range cap(r.spare) {
		r.spare <- nil // made when first used
	}
	r.going.Go(func() {
		defer close(r.order)
		next := first
		for {
			var buffer []byte
			select {
			case buffer = <-r.spare:
			case <-r.ctx.Done():
				next.Close() //nolint:errcheck // given up
				return
			}
			result := make(chan chunk, 1)
			c := next
			c.ctx = r.ctx
			r.going.Go(func() { result <- fetch(c, buffer) })
			r.order <- result // never blocks for long: there are as many places as buffers
			if c.end == end {
				return
			}
			next = &chunkReader{ctx: r.ctx, source: src, at: c.end, end: min(c.end+chunkSize, end)}
		}
	})
	return r
}

func fetch(c *chunkReader, buffer []byte) chunk {
	if buffer == nil {
		buffer = make([]byte, chunkSize)
	}
	n, err := io.ReadFull(c, buffer[:c.end-c.at])
	if err == nil {
		err = c.Close()
	} else {
		c.Close() //nolint:errcheck // the first error is the one to report
	}
	return chunk{buffer[:n], err}
}

func (r *parallelReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 && r.err == nil {
		if r.current.data != nil {
			r.spare <- r.current.data[:cap(r.current.data)]
			r.current = chunk{}
		}
		result, more := <-r.order
		if !more {
			if r.err = r.ctx.Err(); r.err == nil {
				r.err = io.EOF
			}
			break
		}
		r.current = <-result
		r.rest, r.err = r.current.data, r.current.err
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	if n > 0 || len(p) == 0 {
		return n, nil
	}
	return 0, r.err
}

// Close ends what is still being read.
func (r *parallelReader) Close() error {
	r.cancel()
	for result := range r.order {
		<-result
	}
	r.going.Wait()
	if r.err == nil {
		r.err, r.rest = errReaderClosed, nil
	}
	return nil
}

// chunkReader reads one range with one request, and goes on with another one
// where the connection broke.
type chunkReader struct {
	ctx     context.Context
	source  *source
	body    io.ReadCloser // nil: to be asked for
	at, end int64
	err     error // for good

	breaks int       // since there was progress
	from   int64     // where that was
	until  time.Time // when no other request may begin
}

func (c *chunkReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for c.err == nil {
		if c.at == c.end {
			return 0, io.EOF
		}
		if c.body == nil {
			if c.body, c.err = c.source.get(c.ctx, c.at, c.end-c.at); c.err != nil {
				break
			}
		}
		n, err := c.body.Read(p[:min(int64(len(p)), c.end-c.at)])
		c.at += int64(n)
		if err != nil && c.at < c.end {
			c.lost(err)
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, c.err
}

// lost drops a body that broke off. The next request is made at once, and those that
// bring no progress after the pauses of Retry, until its time is over.
func (c *chunkReader) lost(err error) {
	c.body.Close() // it is broken already
	c.body = nil
	retry := c.source.sink.config.Retry
	if c.breaks == 0 || c.at-c.from >= progress {
		c.breaks, c.from, c.until = 0, c.at, time.Now().Add(retry.For)
	}
	over := retry.Over(c.until)
	if c.breaks++; c.breaks > 1 && !over {
		select {
		case <-c.ctx.Done():
		case <-time.After(retry.Pause(c.breaks - 1)):
		}
	}
	switch {
	case c.ctx.Err() != nil:
		c.err = c.source.sink.explain(opRead, c.source.name, context.Cause(c.ctx))
	case over:
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		c.err = &failure{
			what:  fmt.Sprintf("read %s in %s", c.source.name, c.source.sink),
			cause: fmt.Sprintf("the connection broke %d times within %s, last at byte %d: %v", c.breaks, retry.For, c.at, err),
			err:   fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, err),
		}
	}
}

// Close ends the request that is under way.
func (c *chunkReader) Close() error {
	if c.body == nil {
		return nil
	}
	err := c.body.Close()
	c.body = nil
	if c.err == nil {
		c.err = errReaderClosed
	}
	return err
}
