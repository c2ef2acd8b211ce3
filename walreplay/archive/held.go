package archive

import (
	"context"
	"errors"
	"fmt"

	"github.com/requorum/requorum/sinks/repository"
)

// held is the furthest entry of a timeline that a member's log held, and that
// was known to be committed.
type held struct {
	Timeline repository.TimelineID `json:"timeline"`
	Index    uint64                `json:"index"`
}

func (h *held) note(t repository.TimelineID, index uint64) {
	if t.N == 0 || index == 0 {
		return
	}
	if h.Timeline != t {
		*h = held{Timeline: t}
	}
	h.Index = max(h.Index, index)
}

// findLost looks whether the log still holds what it held before this process:
// a member never drops what was committed.
func (s *session) findLost(ctx context.Context) error {
	before := s.position.Held
	if before.Index == 0 {
		return nil
	}
	log, err := s.open(before.Index)
	if past := (*overtaken)(nil); errors.As(err, &past) {
		return nil // it begins later
	}
	if err != nil {
		return err
	}
	err = log.Poll(ctx)
	if past := (*overtaken)(nil); errors.As(err, &past) {
		return log.Close()
	}
	if err == nil && log.Last() < before.Index {
		s.lost = before
	}
	return errors.Join(err, log.Close())
}

// tellLost raises the alarm where the cluster's history is the one in which the
// log held more. It ends when the log is there again.
func (s *session) tellLost(t repository.TimelineID) {
	if s.lost.Index == 0 || s.lost.Timeline != t {
		return
	}
	s.rolledBack = max(s.rolledBack, s.lost.Index)
	s.a.alarms.raise(AlarmRolledBack, fmt.Sprintf("the log of %s ends before entry %d, which it held before: its disk or machine was set back; the cluster is not, and the log is followed from where it stands", s.id, s.lost.Index))
}
