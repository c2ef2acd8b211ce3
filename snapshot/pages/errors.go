package pages

import (
	"errors"
	"fmt"
)

// Errors of Open, wrapped with what was found.
var (
	// ErrNotDatabase says that no meta page was found.
	ErrNotDatabase = errors.New("not a bbolt database")
	// ErrBigEndian says that the database was written on a big-endian machine.
	ErrBigEndian = errors.New("the database was written on a big-endian machine, which is not supported: use etcdutl on such a machine")
)

// PageError says that a page is damaged.
type PageError struct {
	Page   uint64
	Offset int64 // of the page in the file; -1 where it would be outside
	Err    error
}

func (e *PageError) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("page %d: %v", e.Page, e.Err)
	}
	return fmt.Sprintf("page %d, at byte %d: %v", e.Page, e.Offset, e.Err)
}

func (e *PageError) Unwrap() error { return e.Err }
