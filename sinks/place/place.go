// Package place opens the sink that a URL names.
package place

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/s3"
)

// ErrURL is within the error of a URL that names no place.
var ErrURL = errors.New("not the URL of a repository")

// urlError has ErrURL within, and its own words.
type urlError struct{ error }

func (e urlError) Unwrap() []error { return []error{ErrURL, e.error} }

// Check tells whether raw names a place, without looking at it. Its error has
// ErrURL within, and no secrets.
func Check(raw string) error {
	_, _, err := parse(raw)
	return err
}

// Name is the one way in which a place is written, whatever the order of what stands
// in its URL: what its sink's String gives. Of a URL that names no place it leaves out
// what may be secret.
func Name(raw string) string {
	path, bucket, err := parse(raw)
	if err == nil && bucket != nil {
		return bucket.String()
	}
	if err == nil {
		var s *disk.Sink
		if s, err = disk.New(path); err == nil {
			return s.String()
		}
	}
	head, _, _ := strings.Cut(raw, "?")
	if strings.Contains(head, "@") {
		return "a URL of no repository"
	}
	return head
}

// Open opens the sink at file:///path, at a path, or at s3://bucket/prefix?….
// retryFor is how long S3 tries one request again; 0 is that sink's default. An
// error of the URL itself has ErrURL within. The caller closes the sink.
func Open(ctx context.Context, raw string, retryFor time.Duration) (sinks.Sink, error) {
	path, bucket, err := parse(raw)
	switch {
	case err != nil:
		return nil, err
	case bucket != nil:
		bucket.RetryFor = retryFor // parts of an upload can only be tried again there
		return s3.Open(ctx, *bucket)
	}
	return disk.New(path)
}

// parse gives the path of a folder, or a bucket.
func parse(raw string) (path string, bucket *s3.Config, err error) {
	scheme, _, hasScheme := strings.Cut(raw, "://")
	switch {
	case raw == "":
		return "", nil, urlError{errors.New("the URL of the repository is empty; use file:///path or s3://bucket/prefix")}
	case !hasScheme:
		path, err = filepath.Abs(raw)
		return path, nil, err
	case scheme == "file":
		u, err := url.Parse(raw)
		if err != nil || u.Host != "" || u.Path == "" || u.RawQuery != "" || u.Fragment != "" {
			return "", nil, urlError{fmt.Errorf("%s: want file:///absolute/path, with three slashes and nothing behind the path", raw)}
		}
		return u.Path, nil, nil
	case scheme == "s3":
		c, err := s3.ParseURL(raw)
		if err != nil {
			return "", nil, urlError{err}
		}
		return "", &c, nil
	}
	return "", nil, urlError{fmt.Errorf("%q repositories are not known; use file:// or s3://", scheme)}
}
