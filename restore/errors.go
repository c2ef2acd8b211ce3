package restore

import (
	"errors"
	"fmt"
)

// Errors to tell apart, wrapped with the object, the place and the next step.
var (
	// ErrExists says that a directory or file is there already and that the
	// request does not allow to set it aside.
	ErrExists = errors.New("exists already")
	// ErrInUse says that a running etcd, or another restore, holds a directory.
	ErrInUse = errors.New("is in use")
	// ErrNoSpace says that a file system has not the room that the plan needs.
	ErrNoSpace = errors.New("not enough space")
	// ErrTooOld says that the target version cannot serve the image.
	ErrTooOld = errors.New("the target version is older than the data")
	// ErrOtherImage says that a plan was made for another image.
	ErrOtherImage = errors.New("the plan was made for another image")
	// ErrCannot says that the etcdutl engine has no way to do what is asked.
	ErrCannot = errors.New("the etcdutl engine cannot do this")
)

// RequestError says that a request contradicts itself, lacks something, or asks
// for what must not be: it has to be put in other words. Nothing was changed.
type RequestError struct{ Err error }

func (e *RequestError) Error() string { return e.Err.Error() }
func (e *RequestError) Unwrap() error { return e.Err }

// badRequest is a RequestError with these words.
func badRequest(format string, args ...any) error {
	return &RequestError{fmt.Errorf(format, args...)}
}
