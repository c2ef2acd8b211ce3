package sinks

import (
	"context"
	"errors"
	"io"
)

// MarkTemporary marks err as one that may pass by itself, so that Temporary is
// true of it and of everything that wraps it. A backend marks what its
// provider calls throttling, unavailable or a broken connection. nil stays nil.
func MarkTemporary(err error) error {
	if err == nil {
		return nil
	}
	return temporaryError{err}
}

type temporaryError struct{ error }

func (e temporaryError) Unwrap() error { return e.error }

// Temporary is the mark.
func (e temporaryError) Temporary() bool { return true }

// Temporary says whether the same call may succeed a little later. The
// outermost error with a method Temporary() bool decides; without one, a
// stream that was cut short is temporary and everything else is not. The end
// of the caller's own context is never temporary, though
// context.DeadlineExceeded claims to be.
func Temporary(err error) bool {
	var told interface{ Temporary() bool }
	if errors.As(err, &told) && told != any(context.DeadlineExceeded) {
		return told.Temporary()
	}
	return errors.Is(err, io.ErrUnexpectedEOF)
}
