package archive

import (
	"context"
	"errors"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/segment"
)

// drain stores the first spooled segment, byte for byte. Where another archiver
// stored the same entries meanwhile, the session begins anew: the member's log
// is compared with the archive, and what it covers is dropped; what is beyond
// is cut anew.
func (s *session) drain(ctx context.Context) error {
	h := s.lane[0]
	if !s.listed && s.Now().Sub(h.Cut).Abs() > putLimit {
		// Its name may have been freed since: what was archived there is listed
		// elsewhere.
		s.whenEndIsKnown(ctx, func() error {
			s.listed = true
			return nil
		})
		return nil
	}
	object, err := s.spool.get(h)
	var damage *snapshot.DamagedError
	if errors.As(err, &damage) {
		s.a.failed(err)
		if err := s.spool.remove(h.Name()); err != nil {
			return err
		}
		return errAgain // the member's log may still hold it
	}
	if err != nil {
		return err
	}
	put := h
	if s.overlaps {
		// Its name at level 0 may be that of a segment that ends sooner. What is
		// beyond is nowhere else any more.
		s.overlaps = false
		if put, object, err = segment.Relabel(h, object, 1); err != nil {
			return err
		}
	}
	s.do(ctx, putLimit, func(ctx context.Context) func() error {
		o := putAndSee(ctx, s.repo.Sink(), put, object)
		return func() error {
			switch {
			case o.stored || o.winner != nil && same(*o.winner, h):
				s.a.update(func(st *State) { st.Segments, st.Bytes = st.Segments+1, st.Bytes+h.Size() })
				s.taken()
				s.know(put)
				s.wrote()
				return errors.Join(s.spool.remove(h.Name()), s.moveEnd(h))
			case o.winner != nil:
				s.reachable()
				return errAgain
			}
			if isDamage(o.err) && put.Level == 0 {
				s.overlaps = true // stored under another name
				s.pass(h.Name(), h.FirstIndex, o.err)
				return nil
			}
			s.overlaps = put.Level > 0
			return s.refused(o.err)
		}
	})
	return nil
}

// whileWaiting does what need not wait for a member that does not answer: what
// was spooled, and continues the archive by the chain, is stored.
func (s *session) whileWaiting(ctx context.Context, id repository.TimelineID) error {
	if time.Now().Before(s.retryAt) {
		return nil
	}
	if s.repo == nil {
		limited, cancel := context.WithTimeout(ctx, putLimit)
		defer cancel()
		if _, err := s.probe(limited, id); err != nil {
			return s.unreachable(err)
		}
		return errAgain
	}
	lane := s.spool.lane(id, s.archived.LastIndex, s.archived.After)
	if s.archived.Entries == 0 {
		lane = s.spool.firstLane(id)
	}
	if s.failing.IsZero() || len(lane) == 0 {
		return nil
	}
	h := lane[0]
	object, err := s.spool.get(h)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, putLimit)
	defer cancel()
	switch o := putAndSee(limited, s.repo.Sink(), h, object); {
	case o.stored || o.winner != nil && same(*o.winner, h):
		s.archived, s.end, s.timeline = h, endOf(h), id
		s.taken()
		return s.spool.remove(h.Name())
	case o.winner != nil:
		return errAgain
	default:
		return s.refused(o.err)
	}
}

// drainMark stores a spooled mark.
func (s *session) drainMark(ctx context.Context) {
	first := s.spool.marks[0] // others may be added meanwhile
	s.do(ctx, lookLimit, func(ctx context.Context) func() error {
		err := s.spool.moveMark(ctx, s.repo, first)
		return func() error {
			if err != nil {
				return s.refused(err)
			}
			s.spool.marks = s.spool.marks[1:]
			s.taken()
			return nil
		}
	})
}
