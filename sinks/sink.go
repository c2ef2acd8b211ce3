// Package sinks is where objects live: on disk, in S3, and what wraps them.
//
// A sink promises its callers:
//
//  1. An object is visible whole or not at all. What is interrupted before
//     Commit returned leaves no object, however the process ended.
//  2. A name is written once. Committing to a name that exists fails with
//     ErrExists and leaves the first object as it was. Where a provider cannot
//     promise this between two racing writers, Abilities says so.
//  3. An object is durable when Commit returned without an error.
//  4. Names sort by their bytes, and List follows that order.
//
// and is owed in return: names that ValidName accepts, no name that is a
// folder of another ("a" beside "a/b"), and one Commit or Abort for each
// Create.
package sinks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"time"
)

// Errors that every sink returns, wrapped with the object and the place.
var (
	// ErrNotFound says that no object has that name.
	ErrNotFound = errors.New("no such object")
	// ErrExists says that an object of that name is there already and stays
	// as it is.
	ErrExists = errors.New("object exists already and is never overwritten")
	// ErrLocked says that the object is under a retention or a legal hold and
	// cannot be deleted yet.
	ErrLocked = errors.New("object is locked against deletion")
	// ErrDenied says that the credentials are known and lack the right.
	ErrDenied = errors.New("access denied")
	// ErrUncertain says that Commit could not find out whether the object is
	// there: it must not be taken for absent, nor for stored.
	ErrUncertain = errors.New("it is not known whether the object was stored")
	// ErrTooLarge says that an object is larger than one of its kind can be.
	ErrTooLarge = errors.New("larger than such an object can be")
	// ErrClosed says that a Writer was used after Commit or Abort.
	ErrClosed = errors.New("writer is closed")
)

// Sink is a place where objects are stored. All methods may be called
// concurrently; all end soon after their context does.
type Sink interface {
	// Create starts an object. Nothing is visible under name until the
	// Writer's Commit returned nil. It may fail early with ErrExists; Commit is
	// where that is decided.
	Create(ctx context.Context, name string, opts CreateOptions) (Writer, error)

	// Open reads length bytes from offset on, or to the end where length is
	// negative. An offset at the object's end reads nothing; one beyond it is an
	// error. Fewer bytes than asked for, while the object has them, is
	// io.ErrUnexpectedEOF from Read, never a clean end. The caller closes the
	// reader.
	Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error)

	// Stat describes one object, or fails with ErrNotFound.
	Stat(ctx context.Context, name string) (Object, error)

	// List yields the objects whose names start with prefix and sort after
	// after, in ascending order of names. It yields one error at most, last.
	List(ctx context.Context, prefix, after string) iter.Seq2[Object, error]

	// Delete removes an object for good: with versions kept by the provider, this one,
	// without leaving a marker that hides it, unless the credentials may hide it only.
	// Deleting what is not there is no error. A locked object is ErrLocked.
	Delete(ctx context.Context, name string) error

	// Abilities says what this place can promise. What cannot be known
	// otherwise is probed with scratch objects, once for each Sink.
	Abilities(ctx context.Context) (Abilities, error)

	// String is the place's URL, without secrets.
	String() string

	// Close releases connections. Writers and readers end before.
	Close() error
}

// CreateOptions say how an object is to be stored.
type CreateOptions struct {
	// Lock asks for the retention that the sink is configured with; no effect
	// on a sink without one.
	Lock bool
	// ContentType is kept where the place keeps such a thing.
	ContentType string
}

// Writer receives one object. It is used by one goroutine at a time. After an
// error from Write the only useful call is Abort.
type Writer interface {
	io.Writer

	// Commit makes the object visible and durable, or leaves nothing and
	// returns the error; ErrExists where the name was taken meanwhile. An
	// ambiguous answer (a timeout that may have been a success) is cleared up
	// before Commit returns. The one exception is ErrUncertain: the place stayed
	// out of reach, or would not take back what it should not have stored. The
	// object may then be there, now or a little later, and only looking shows it.
	Commit(ctx context.Context) (Object, error)

	// Abort leaves nothing. After Commit or another Abort it does nothing and
	// returns nil, so that it can be deferred. It works after the context of
	// Create has ended.
	Abort() error
}

// Object describes a stored object.
type Object struct {
	Name    string
	Size    int64     // bytes, as stored
	ModTime time.Time // by the place's own clock
	// LockedUntil is when a retention ends; zero where there is none or where
	// the call does not say. Stat and Commit say it, List may not.
	LockedUntil time.Time
}

// Abilities are what a place can promise; false is the weaker promise.
type Abilities struct {
	// ExclusiveCreate: of two writers racing for one name exactly one wins.
	// Without it only a single writer is safe.
	ExclusiveCreate bool
	// Notes are sentences for the user about what the place lacks, what
	// follows and what to do. Empty when nothing is lacking.
	Notes []string
}

// ValidName refuses names that some place could not store or would store
// elsewhere: empty, absolute, with an empty, "." or ".." element, an element
// that starts with a dot, or bytes other than a-z A-Z 0-9 . _ - and /.
func ValidName(name string) error {
	for element := range strings.SplitSeq(name, "/") {
		if element == "" || element[0] == '.' {
			return fmt.Errorf("object name %q: the element %q is not allowed", name, element)
		}
	}
	for i := range len(name) {
		if c := name[i]; !allowed(c) {
			return fmt.Errorf("object name %q: byte %q is not allowed", name, c)
		}
	}
	if len(name) > 512 {
		return fmt.Errorf("object name %q: longer than 512 bytes", name)
	}
	return nil
}

func allowed(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("._-/", c) >= 0
}

// Put stores data under name in one go: all of it, or nothing and an error.
func Put(ctx context.Context, s Sink, name string, data []byte, opts CreateOptions) (Object, error) {
	w, err := s.Create(ctx, name, opts)
	if err != nil {
		return Object{}, err
	}
	defer w.Abort() //nolint:errcheck // a no-op after Commit; after an error in Write that error is the one to report
	if _, err := w.Write(data); err != nil {
		return Object{}, err
	}
	return w.Commit(ctx)
}

// SmallFile is far more than a file that people write has, in bytes: a
// configuration, a plan, certificates.
const SmallFile = 4 << 20

// ReadFile is os.ReadFile for a file of at most limit bytes, whatever its size says:
// a device, or a file that grows, ends somewhere as well. A larger one is
// ErrTooLarge.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s: %w: more than %d bytes", path, ErrTooLarge, limit)
	}
	return data, nil
}

// ReadSecret is the first line of a file, without the line's end: a password or
// a URL. An empty one is an error.
func ReadSecret(path string) (string, error) {
	data, err := ReadFile(path, SmallFile)
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(data), "\n")
	if line = strings.TrimSuffix(line, "\r"); line == "" {
		return "", fmt.Errorf("the first line of %s is empty: write the secret there", path)
	}
	return line, nil
}

// Get reads a whole object of at most limit bytes; a larger one is ErrTooLarge, and
// no more of it is asked for, so that a damaged or unsigned object cannot exhaust
// memory.
func Get(ctx context.Context, s Sink, name string, limit int64) ([]byte, error) {
	r, err := s.Open(ctx, name, 0, limit+1)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err := errors.Join(err, r.Close()); err != nil {
		return nil, fmt.Errorf("read %s in %s: %w", name, s, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("read %s in %s: %w: more than %d bytes", name, s, ErrTooLarge, limit)
	}
	return data, nil
}
