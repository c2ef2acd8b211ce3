package codec

import (
	"errors"
	"fmt"
	"strings"
)

// ErrAborted is what a Writer's methods return after Abort.
var ErrAborted = errors.New("writing was aborted")

var errReaderClosed = errors.New("reader is closed")

// CorruptError says that a stored object is not what its Encoding describes.
type CorruptError struct {
	// Offset in the stored object where the damage begins, as near as can be
	// told (one frame, or one age chunk of 64 KiB); -1 when the whole is meant.
	Offset int64
	Err    error
}

func (e *CorruptError) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("stored bytes are corrupt: %v", e.Err)
	}
	return fmt.Sprintf("stored bytes are corrupt at byte %d: %v", e.Offset, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// IdentityError says that an intact object cannot be opened with the
// identities that were given.
type IdentityError struct {
	Recipients []string // of the object
	Given      int      // the number of identities
	Err        error    // age's own; nil when none was given
}

func (e *IdentityError) Error() string {
	next := "give a file with the secret key of one of them (--identity FILE)"
	to := "to " + strings.Join(e.Recipients, ", ")
	switch {
	case len(e.Recipients) == 0:
		to = "to recipients that its description does not name"
	case e.Recipients[0] == passphraseName:
		to = "with a passphrase"
		next = "give the passphrase (--passphrase-file FILE); agents, and a recovery through them, take keys only"
	}
	switch e.Given {
	case 0:
		return fmt.Sprintf("it is encrypted %s and no identity was given: %s", to, next)
	case 1:
		return fmt.Sprintf("it is encrypted %s and the identity given does not open it: %s", to, next)
	}
	return fmt.Sprintf("it is encrypted %s and none of the %d identities given opens it: %s", to, e.Given, next)
}

func (e *IdentityError) Unwrap() error { return e.Err }
