package archive

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"github.com/requorum/requorum/sinks/repository"
)

// roomAgain is how soon a segment is spooled again on a disk that was full: it
// is cut anew each time.
const roomAgain = 5 * time.Second

// isFull tells that a disk, or a quota on it, is used up.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// kept notes how a write to the spool's folder ended. Want of space is an alarm,
// and no error: what is not spooled stays in memory, and in the member's files, as
// far as the bound; what is spooled already is stored without any space.
func (s *session) kept(err error) error {
	if !isFull(err) {
		return err
	}
	s.crowded, s.roomAt = true, time.Now().Add(roomAgain)
	s.spoolFull(s.noRoom(err))
	return nil
}

func (s *session) noRoom(err error) string {
	return fmt.Sprintf("the disk of the spool %s is full: make room there, or choose another folder (--spool-dir, archive.spool-dir); until then what the repository does not take waits in memory and in the member's own files, and what the member purges may be lost: %v", s.SpoolDir, err)
}

// openSpool opens the spool, which takes a little space the first time only.
func (s *session) openSpool(ctx context.Context) (*spool, error) {
	place, err := s.place(filepath.Join(s.SpoolDir, "objects"))
	if err != nil {
		err = fmt.Errorf("spool: %w", err)
	} else {
		var p *spool
		if p, err = openSpool(ctx, place, s.Now()); err == nil {
			return p, nil
		}
	}
	if isFull(err) {
		s.spoolFull(s.noRoom(err))
		return nil, s.tell(err)
	}
	return nil, err
}

// goOn uses a repository that is back without looking anew where to begin: the
// spool has no room for what is in memory, which would go with the session. It
// ends when all that is stored.
func (s *session) goOn(repo *repository.Repository) {
	s.repo, s.goneOn = repo, true
	s.reachable()
	s.mustLook, s.lookAt, s.listed = true, time.Time{}, false
	if len(s.lane) == 0 {
		s.role = Follower // until it is known that nobody else writes
	}
}
