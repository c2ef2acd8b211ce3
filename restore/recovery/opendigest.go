package recovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/requorum/requorum/restore/recovery/digest"
	"github.com/requorum/requorum/restore/recovery/join"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// DigestError says that a digest is not what WriteDigest wrote: it was cut off,
// altered, or is of another format. Err is digest.ErrInvalid, a
// *digest.FormatError, or why it could not be read.
type DigestError struct {
	Name string // of the member
	Err  error
}

func (e *DigestError) Error() string {
	next := ""
	if errors.Is(e.Err, digest.ErrInvalid) {
		next = ": fetch it again from the member's host"
	}
	return fmt.Sprintf("the digest of %s: %v%s", e.Name, e.Err, next)
}

func (e *DigestError) Unwrap() error { return e.Err }

// openedDigest is a digest while it is read.
type openedDigest struct {
	name   string
	reader *digest.Reader
	closer io.Closer
	chain  raftlog.Sum // of the whole log; known once it was read
}

// openDigest reads the first part. The second is read when logs are compared, and
// only then is it known whether the first is what was written.
func (y *survey) openDigest(s Digest) (*memberDir, error) {
	y.req.progress("digest of "+s.Name, 0, 0)
	from, err := s.Open()
	if err != nil {
		return nil, &DigestError{s.Name, err}
	}
	o := &openedDigest{name: s.Name, closer: from}
	y.digests = append(y.digests, o)
	var head digestHead
	if o.reader, err = digest.NewReader(from, &head); err != nil {
		return nil, &DigestError{s.Name, err}
	}
	if err := head.check(); err != nil {
		return nil, &DigestError{s.Name, fmt.Errorf("%w: %w", digest.ErrInvalid, err)}
	}
	m := &head.Remains
	m.Name = s.Name
	for i := range m.Databases {
		m.Databases[i].facts = head.Facts[i]
	}
	d := &memberDir{Survivor: Survivor{Name: s.Name, DataDir: m.DataDir, WALDir: m.WALDir}, remains: m, digest: o, missing: head.Missing.error()}
	if m.Log != nil {
		d.entries = o.entries
		return d, nil
	}
	for _, err := range o.entries(context.Background()) {
		if err == nil {
			err = &DigestError{s.Name, fmt.Errorf("%w: it has entries of a log that could not be read", digest.ErrInvalid)}
		}
		return nil, err
	}
	return d, nil
}

// entries yields what the member's own log would, and ends as it did.
func (o *openedDigest) entries(ctx context.Context) iter.Seq2[join.Entry, error] {
	return func(yield func(join.Entry, error) bool) {
		for e, err := range o.reader.Entries() {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			if err != nil {
				yield(join.Entry{}, &DigestError{o.name, err})
				return
			}
			if !yield(e, nil) {
				return
			}
		}
		var end digestEnd
		if err := o.reader.End(&end); err != nil {
			yield(join.Entry{}, &DigestError{o.name, err})
			return
		}
		o.chain = end.Chain
		if err := end.Error.error(); err != nil {
			yield(join.Entry{}, err)
		}
	}
}

// broken is the error of a digest that is not what was written, among those that
// logs ended with.
func broken(errs []error) error {
	for _, err := range errs {
		var bad *DigestError
		if errors.As(err, &bad) {
			return err
		}
	}
	return nil
}

func (y *survey) close() error {
	var all []error
	for _, o := range y.digests {
		if err := o.closer.Close(); err != nil {
			all = append(all, &DigestError{o.name, err})
		}
	}
	return errors.Join(all...)
}
