package snapshot

import (
	"errors"
	"fmt"
	"strings"
)

// Errors that a caller may want to tell apart.
var (
	// ErrNoBackup says that no backup matches what was asked for.
	ErrNoBackup = errors.New("no such backup")
	// ErrNewerFormat says that a newer version of requorum wrote it.
	ErrNewerFormat = errors.New("it was written by a newer version of requorum")
	// ErrStale says that a member's snapshot does not hold what the cluster
	// had committed before: the member is behind or cut off.
	ErrStale = errors.New("the snapshot is older than what the cluster had committed")
	// ErrIncomplete says that some repositories have the backup and some do
	// not. The command line ends with exit code 5 on it.
	ErrIncomplete = errors.New("the backup is not in all repositories")
	// ErrTaken says that another attempt has made the backup of that ID already:
	// nothing was stored, or nothing is left of what was.
	ErrTaken = errors.New("another attempt has made this backup already")
)

// MemberFailure is why a member was not, or not successfully, read.
type MemberFailure struct {
	Endpoint string
	Member   string // name or ID, where known
	Err      error
}

// NoMemberError says that no member could be read, and why for each.
type NoMemberError struct {
	Failures []MemberFailure
}

func (e *NoMemberError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "no member gave a snapshot (%d tried)", len(e.Failures))
	for _, f := range e.Failures {
		fmt.Fprintf(&b, "\n  %s", f.Endpoint)
		if f.Member != "" {
			fmt.Fprintf(&b, " (%s)", f.Member)
		}
		fmt.Fprintf(&b, ": %v", f.Err)
	}
	return b.String()
}

// Unwrap gives errors.Is and errors.As the members' own errors.
func (e *NoMemberError) Unwrap() []error {
	var all []error
	for _, f := range e.Failures {
		all = append(all, f.Err)
	}
	return all
}
