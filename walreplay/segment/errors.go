package segment

import (
	"errors"
	"fmt"

	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

// MissingError says that the archived log does not hold entries that were
// asked for.
type MissingError struct {
	Timeline    repository.TimelineID
	First, Last uint64 // the entries that are not there, or cannot be joined to those before them
	Err         error  // why, where more is known; may be nil
}

func (e *MissingError) Error() string {
	text := fmt.Sprintf("entries %d to %d of timeline %s are not in the archived log", e.First, e.Last, e.Timeline)
	if e.First == e.Last {
		text = fmt.Sprintf("entry %d of timeline %s is not in the archived log", e.First, e.Timeline)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *MissingError) Unwrap() error { return e.Err }

// ForkError says that two segments of one timeline hold different histories.
// Which of them the cluster served, their bytes cannot show.
type ForkError struct {
	Timeline repository.TimelineID
	Index    uint64    // the first one at which they are known to differ
	Objects  [2]string // the segments
	Err      error     // how they differ
}

func (e *ForkError) Error() string {
	return fmt.Sprintf("timeline %s holds two histories: %s and %s differ at index %d: %v; restore to a point before it, or move the one that is wrong out of the repository",
		e.Timeline, e.Objects[0], e.Objects[1], e.Index, e.Err)
}

func (e *ForkError) Unwrap() error { return e.Err }

// damaged says where the damage is.
func damaged(repo *repository.Repository, name string, offset int64, err error) error {
	return &snapshot.DamagedError{Object: name + " in " + repo.String(), Offset: offset, Err: err}
}

// bodyError makes what the codec says of a body what it is of the segment.
func bodyError(repo *repository.Repository, name string, err error) error {
	var corrupt *codec.CorruptError
	if !errors.As(err, &corrupt) {
		return fmt.Errorf("%s in %s: %w", name, repo, err)
	}
	if corrupt.Offset < 0 {
		return damaged(repo, name, -1, corrupt.Err)
	}
	return damaged(repo, name, HeaderSize+corrupt.Offset, corrupt.Err)
}
