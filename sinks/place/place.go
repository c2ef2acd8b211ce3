// Package place opens the sink that a URL names.
package place

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/s3"
)

// ErrURL is within the error of a URL that names no place.
var ErrURL = errors.New("not the URL of a repository")

// urlError has ErrURL within, and its own words.
type urlError struct{ error }

func (e urlError) Unwrap() []error { return []error{ErrURL, e.error} }

// Check reports whether raw names a place, without looking at it. Its error has
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
	return safe(raw)
}

// safe leaves out of a URL that names no place what may be secret.
func safe(raw string) string {
	head, _, _ := strings.Cut(raw, "?")
	if strings.Contains(head, "@") {
		return "a URL of no repository"
	}
	return head
}

// PaysPerRequest reports whether each request to a place, by its URL or name, costs
// money: then few large objects are better than many small ones.
func PaysPerRequest(raw string) bool { return strings.HasPrefix(raw, "s3:") }

// Open opens the sink at file:///path, at a path that begins with / or ., or at s3://bucket/prefix?….
// An error of the URL itself has ErrURL within. The caller closes the sink.
func Open(ctx context.Context, raw string, o sinks.Options) (sinks.Sink, error) {
	path, bucket, err := parse(raw)
	switch {
	case err != nil:
		return nil, err
	case bucket != nil:
		bucket.Options = o
		return s3.Open(ctx, *bucket)
	}
	if err := fits(path); err != nil {
		return nil, err
	}
	s, err := disk.New(path)
	if err != nil {
		return nil, err
	}
	s.Set(o)
	return s, nil
}

// fits refuses a folder that is no repository yet, and lies inside another repository,
// as a mistyped path does, or inside a member's data directory: what is stored there is
// lost with the member.
func fits(path string) error {
	there := func(elem ...string) bool {
		_, err := os.Lstat(filepath.Join(elem...))
		return err == nil
	}
	if there(path, repository.MarkerName) || there(path, "timelines") { // the marker may be lost
		return nil
	}
	for dir := path; ; dir = filepath.Dir(dir) {
		switch {
		case dir != path && there(dir, repository.MarkerName): // here another writer may just have made it
			return urlError{fmt.Errorf("%s lies inside the repository %s: name that one, or a folder outside of it", path, dir)}
		case there(dir, "member", "snap"), there(dir, "member", "wal"), there(dir, "snap", "db"):
			return urlError{fmt.Errorf("%s: %s is the data directory of a member, and what is stored in it is lost with it: name a folder elsewhere", path, dir)}
		case dir == filepath.Dir(dir):
			return nil
		}
	}
}

// parse gives the path of a folder, or a bucket.
func parse(raw string) (path string, bucket *s3.Config, err error) {
	scheme, _, hasScheme := strings.Cut(raw, "://")
	switch {
	case raw == "":
		return "", nil, urlError{errors.New("the URL of the repository is empty; use file:///path or s3://bucket/prefix")}
	case filepath.IsAbs(raw), raw == ".", raw == "..", strings.HasPrefix(raw, "./"), strings.HasPrefix(raw, "../"):
		path, err = filepath.Abs(raw)
		return path, nil, err
	case !hasScheme:
		// Not into a folder of that name: "s3:/bucket" is a slip, and "backups" depends
		// on where the command is run.
		return "", nil, urlError{fmt.Errorf("%s: want a bucket as s3://bucket/prefix, or a folder as file:///path, /path or ./path", safe(raw))}
	case scheme == "file":
		u, err := url.Parse(raw)
		if err != nil || u.Host != "" || u.Path == "" || u.RawQuery != "" || u.Fragment != "" {
			return "", nil, urlError{fmt.Errorf("%s: want file:///absolute/path, with three slashes and nothing after the path", raw)}
		}
		return u.Path, nil, nil
	case scheme == "s3":
		c, err := s3.ParseURL(raw)
		if err != nil {
			return "", nil, urlError{err}
		}
		return "", &c, nil
	}
	if scheme == "http" || scheme == "https" {
		return "", nil, urlError{fmt.Errorf("%q repositories are not known; a bucket on a server of your own is s3://bucket/prefix?endpoint=%s://HOST:PORT", scheme, scheme)}
	}
	return "", nil, urlError{fmt.Errorf("%q repositories are not known; use file:// or s3://, in small letters", scheme)}
}
