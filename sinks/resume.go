package sinks

import (
	"context"
	"errors"
	"io"
)

// resumingReader goes on reading where a connection broke. It gives up when
// nothing came for as long as the policy allows.
//
// It trusts that a name keeps its content, which sinks promise. An object that
// was deleted and written anew between two attempts would be spliced: hashes
// are there to find that.
type resumingReader struct {
	ctx    context.Context
	sink   *retrying
	name   string
	offset int64         // of the next byte
	left   int64         // bytes still to come; negative: to the end
	body   io.ReadCloser // nil between a break and the next attempt
	broken error         // why the last body ended early
	cut    error         // the last to say, at this offset, that there is more
	failed error         // what ended it for good
}

func (r *resumingReader) Read(p []byte) (int, error) {
	switch {
	case r.failed != nil:
		return 0, r.failed
	case len(p) == 0:
		return 0, nil
	case r.body != nil:
		n, err := r.read(p)
		if r.body != nil || err != nil {
			return n, err
		}
		r.sink.report("read", r.name, r.broken, 0)
		if n > 0 {
			return n, nil
		}
	case r.left == 0:
		return 0, io.EOF
	}
	n, err := attempt(r.ctx, r.sink, "read", r.name, func() (int, error) { return r.reopen(p) })
	r.failed = err
	if n == 0 && err == nil {
		return 0, io.EOF
	}
	return n, err
}

// reopen opens the object at the offset reached and reads on.
func (r *resumingReader) reopen(p []byte) (int, error) {
	body, err := r.sink.Sink.Open(r.ctx, r.name, r.offset, r.left)
	if err != nil {
		return 0, err
	}
	r.body = body
	n := 0
	for n == 0 && err == nil && r.body != nil { // a reader may return nothing
		n, err = r.read(p)
	}
	switch {
	case n == 0 && errors.Is(err, io.EOF) && r.cut != nil:
		// A body before said that there is more, this one that there is not:
		// believing it would turn a truncated object into a whole one.
		return 0, finalError{r.cut}
	case n == 0 && r.body == nil:
		return 0, r.broken
	case r.body == nil:
		r.sink.report("read", r.name, r.broken, 0)
	}
	if errors.Is(err, io.EOF) {
		err = nil // not an error to attempt; Read and the next Read tell
	}
	return n, err
}

// read reads from the body. A break that may pass closes the body and is kept
// in broken instead of being returned.
func (r *resumingReader) read(p []byte) (int, error) {
	n, err := r.body.Read(p)
	r.offset += int64(n)
	if n > 0 {
		r.cut = nil
	}
	if r.left > 0 {
		r.left -= int64(n)
	}
	if err == nil || err == io.EOF || !Temporary(err) {
		return n, err
	}
	r.broken = err
	if errors.Is(err, io.ErrUnexpectedEOF) {
		r.cut = err
	}
	r.body.Close() // it is broken already, and was only read
	r.body = nil
	if r.left == 0 {
		return n, io.EOF // it broke behind the last byte asked for
	}
	return n, nil
}

// Close closes the body that is open, if one is.
func (r *resumingReader) Close() error {
	if r.body == nil {
		return nil
	}
	return r.body.Close()
}

// finalError is an error that looked temporary and has proved not to be.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// Temporary overrules what it wraps.
func (e finalError) Temporary() bool { return false }
