package walfile

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// CorruptError says that a log is damaged, and not only at its torn end.
type CorruptError struct {
	Dir, Segment string // Segment is a file's name
	Offset       int64  // of the first byte that cannot be read, in that file
	Err          error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("the write-ahead log is damaged: %s at byte %d: %v; what is before that is good: take the rest from another member's log or from the archive",
		filepath.Join(e.Dir, e.Segment), e.Offset, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// ErrPurged says that entries are no longer in the log: etcd deletes old files.
// The error itself is a *PurgedError.
var ErrPurged = errors.New("purged from the write-ahead log")

// PurgedError is ErrPurged with the indexes.
type PurgedError struct {
	Want  uint64 // the first index that is missing
	First uint64 // the first one that is there behind it; 0 where there is none
}

func (e *PurgedError) Error() string {
	if e.First == 0 {
		return fmt.Sprintf("raft index %d and what follows it: %v", e.Want, ErrPurged)
	}
	return fmt.Sprintf("raft index %d: %v, which now begins with %d; another member's log may have it, or take a full snapshot", e.Want, ErrPurged, e.First)
}

// Is makes it an ErrPurged.
func (e *PurgedError) Is(target error) bool { return target == ErrPurged }

// GapError says that the member never had some entries: a leader sent it a
// snapshot in their place. Entries before the gap that nothing recorded as
// committed count as missing: the snapshot may have replaced them.
type GapError struct {
	After uint64 // the last index before the gap
	Next  uint64 // the first one behind it
}

func (e *GapError) Error() string {
	return fmt.Sprintf("the log has no entries between raft index %d and %d: a leader's snapshot came in their place; another member's log may have them, or take a full snapshot", e.After, e.Next)
}

// ErrNewer says that a newer etcd than this package knows wrote the log. The
// error itself is a *NewerError.
var ErrNewer = errors.New("written by an etcd that is newer than this requorum knows")

// NewerError is ErrNewer with what was found.
type NewerError struct {
	Version string // that the log names; empty where it names none
	What    string // that is not known
}

func (e *NewerError) Error() string {
	version := "a later version than " + knownRelease()
	if e.Version != "" {
		version = "version " + e.Version
	}
	return fmt.Sprintf("%s: %v: %s; use a newer requorum", e.What, ErrNewer, version)
}

// Is makes it an ErrNewer.
func (e *NewerError) Is(target error) bool { return target == ErrNewer }

// ErrReplaced says that another log took the place of the one that was being
// read: the member was wiped, restored or rolled back. Open the directory anew.
var ErrReplaced = errors.New("another log took the place of the one that was being read: was the member wiped, restored or rolled back? Open its directory anew")

// ErrNoLog says that a directory holds no write-ahead log.
var ErrNoLog = errors.New("no write-ahead log (files like 0000000000000000-0000000000000000.wal) in the directory; give the data directory's member/wal, or the one of --wal-dir")

// withRight adds to an error of opening what to do where the right is missing:
// etcd's files can be read by its own user alone.
func withRight(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: run this as etcd's own user, or with CAP_DAC_READ_SEARCH (see docs/archive.md)", err)
	}
	return err
}
