package engine

import (
	"errors"
	"fmt"
)

// ErrNewer says that an entry was written by an etcd that is newer than what
// this version of requorum knows.
var ErrNewer = errors.New("an etcd newer than this requorum knows must have written it: use a newer requorum")

// ErrClosed says that the engine was closed or rolled back already.
var ErrClosed = errors.New("the replay was ended: open the database again")

// OrderError says that an entry is not the one after the entry applied last.
type OrderError struct {
	Applied uint64 // the index applied last
	Index   uint64 // that of the entry
}

func (e *OrderError) Error() string {
	return fmt.Sprintf("entry %d cannot follow entry %d: the log has a hole or repeats itself; begin with entry %d", e.Index, e.Applied, e.Applied+1)
}

// EntryError says that an entry cannot be applied.
type EntryError struct {
	Index uint64
	Kind  string // as Kind gives it
	Err   error
}

func (e *EntryError) Error() string {
	return fmt.Sprintf("entry %d (%s) cannot be applied: %v", e.Index, e.Kind, e.Err)
}

func (e *EntryError) Unwrap() error { return e.Err }

// PastError says that a database is already past what a run is to stop at: an
// older one is needed.
type PastError struct {
	What string // "index" or "revision"
	Have uint64
	Want uint64
}

func (e *PastError) Error() string {
	return fmt.Sprintf("the database is at %s %d, past %d: begin with an older one", e.What, e.Have, e.Want)
}
