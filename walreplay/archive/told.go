package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// toldError ends a session, and an alarm of its own tells it: it is not logged
// again, nor AlarmRestarted.
type toldError struct{ err error }

func (e *toldError) Error() string { return e.err.Error() }
func (e *toldError) Unwrap() error { return e.err }

// tell logs an error whose alarm is raised.
func (s *session) tell(err error) error {
	s.a.failed(err)
	return &toldError{err}
}

// restarted tells of an error that ended a session.
func (a *Archiver) restarted(err error, s *session) {
	if told := (*toldError)(nil); errors.As(err, &told) {
		return
	}
	a.failed(err)
	switch {
	case a.calm == 0 || time.Since(s.began) > restartedFor:
		a.calm = calmAtLeast
	case s.ranWell: // which told nothing
		a.calm = min(2*a.calm, restartedFor)
	}
	a.alarms.raise(AlarmRestarted, err.Error())
}

// unreadable raises that the member's log cannot be read, unless err tells
// something else.
func (s *session) unreadable(err error) error {
	var past *overtaken
	if fatal(err) || errors.As(err, &past) || errors.Is(err, errAgain) || errors.Is(err, context.Canceled) {
		return err
	}
	next := "look whether it is the folder that a member of etcd writes its WAL to"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		next = "name the data directory of the member that runs here (--data-dir, member.data-dir) or, where its WAL is elsewhere, that folder (--wal-dir, member.wal-dir)"
	case errors.Is(err, fs.ErrPermission):
		next = "let the user that this runs as read it: the member's files are for its own user"
	}
	s.a.alarms.raise(AlarmLog, fmt.Sprintf("the member's log in %s cannot be read, and nothing is archived: %v: %s", s.WALDir, err, next))
	return s.tell(err)
}
