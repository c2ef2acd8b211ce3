package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/requorum/requorum/sinks"
)

// breaking answers each GET with a body that brings some bytes, takes a time, and
// breaks off. It is no server: in fake time nobody can wait for a socket.
type breaking struct {
	content  string
	each     int           // bytes that a body brings
	takes    time.Duration // before it breaks
	requests int
}

func (b *breaking) Do(r *http.Request) (*http.Response, error) {
	b.requests++
	var first, last int
	if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last); err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusPartialContent,
		Header: http.Header{
			"Etag": {`"e"`}, "Content-Length": {fmt.Sprint(last + 1 - first)},
			"Content-Range": {fmt.Sprintf("bytes %d-%d/%d", first, last, len(b.content))},
		},
		Body: &breakingBody{strings.NewReader(b.content[first:min(last+1, first+b.each)]), b.takes},
	}, nil
}

type breakingBody struct {
	rest  io.Reader
	takes time.Duration
}

func (b *breakingBody) Read(p []byte) (int, error) {
	n, err := b.rest.Read(p)
	if err == io.EOF {
		time.Sleep(b.takes)
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (b *breakingBody) Close() error { return nil }

// read reads all of the object by one chunkReader.
func (b *breaking) read(ctx context.Context, retry sinks.Retry) (string, error) {
	c := Config{Bucket: "bucket", Options: sinks.Options{Retry: retry}}
	client := s3.New(s3.Options{Region: "us-east-1", HTTPClient: b, Credentials: aws.AnonymousCredentials{}}, c.setRetries)
	r := &chunkReader{ctx: ctx, source: &source{sink: &Sink{config: c, client: client}, name: "object"}, end: int64(len(b.content))}
	got, err := io.ReadAll(r)
	return string(got), errors.Join(err, r.Close())
}

// TestBreaksOfAReader: the time of Retry is for standing still. A body that broke off
// after it had got on starts anew, however long all takes; one that brings nothing
// ends with the time, and in a pause with its context.
func TestBreaksOfAReader(t *testing.T) {
	retry := sinks.Retry{For: time.Minute}
	t.Run("gets on", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := &breaking{content: strings.Repeat("0123456789abcdef", 12*progress/16), each: progress, takes: 20 * time.Second}
			began := time.Now()
			got, err := b.read(t.Context(), retry)
			if err != nil || got != b.content || b.requests != 12 {
				t.Errorf("%d bytes of %d by %d requests, %v", len(got), len(b.content), b.requests, err)
			}
			if took := time.Since(began); took < 3*retry.For {
				t.Errorf("it took %s: too little to show anything", took)
			}
		})
	})
	t.Run("stands still", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := &breaking{content: strings.Repeat("x", 2*progress)}
			began := time.Now()
			_, err := b.read(t.Context(), retry)
			// No pause begins that could end beyond the time: 10 s is the longest.
			if took := time.Since(began); !errors.Is(err, io.ErrUnexpectedEOF) || took > retry.For || took < retry.For-10*time.Second {
				t.Errorf("after %s: %v", took, err)
			}
			if b.requests < 5 || b.requests > 20 {
				t.Errorf("%d requests", b.requests)
			}
		})
	})
	t.Run("ends in a pause", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := &breaking{content: strings.Repeat("x", 2*progress)}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // only pauses take time
			defer cancel()
			began := time.Now()
			_, err := b.read(ctx, retry)
			if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != 20*time.Second {
				t.Errorf("after %s: %v", took, err)
			}
		})
	})
}
