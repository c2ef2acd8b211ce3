package archive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay/segment"
)

// lookDue tells that it is time to look for the next segment: by a follower
// that has something for it, and by a writer after a put that failed. Nobody
// looks while nothing is new.
func (s *session) lookDue(now time.Time) bool {
	if now.Before(s.lookAt) {
		return false
	}
	return s.mustLook || (s.role != Writer || s.holed()) && len(s.lane) == 0 && !s.queue.empty()
}

// look reads the header of the segment that comes next, if it is there: one
// small GET. Nothing is listed.
func (s *session) look(ctx context.Context, now time.Time) {
	name := repository.SegmentName{Timeline: s.timeline, First: s.end.index + 1}.String()
	s.do(ctx, lookLimit, func(ctx context.Context) func() error {
		h, err := segment.ReadHeader(ctx, s.repo.Sink(), name)
		return func() error {
			switch {
			case errors.Is(err, sinks.ErrNotFound):
				s.lookAgain(now)
				s.mustLook = false
				s.reachable()
				return nil
			case isDamage(err):
				// Others pass it by, and go on behind it.
				s.pass(name, s.end.index+1, err)
				s.lookAgain(now)
				s.whenEndIsKnown(ctx, func() error { return nil })
				return nil
			case err != nil:
				return s.unreachable(err)
			}
			s.reachable()
			s.know(h)
			s.mustLook = false
			return s.meet(h)
		}
	})
}

// meet holds a segment that another archiver stored against this member's log.
// The chain over the member's own entries, from the header's value before them
// on, ends with the header's value after them, or the histories differ.
func (s *session) meet(h segment.Header) error {
	s.ahead = nil
	sum, whole := s.queue.sum(h.Before, h.FirstIndex, h.LastIndex)
	switch {
	case whole && sum == h.After:
		return s.moveEnd(h)
	case whole:
		return s.forked(fmt.Sprintf("%s has committed other entries than those archived in %s", s.id, h.Name()))
	case len(s.lane) > 0 && same(s.lane[0], h):
		return s.moveEnd(h)
	case len(s.lane) > 0:
		return errAgain // spooled ones are compared with the log on disk
	case h.FirstIndex != s.end.index+1 && s.end.index > 0:
		return errAgain
	case s.queue.last() < h.LastIndex && (s.queue.empty() || s.queue.first() <= h.FirstIndex):
		s.ahead = &h // this member's log is not there yet
		return s.waitFor(h.LastIndex)
	case h.Anchor || h.Before == s.end.sum:
		// The log here begins later. The archive goes on by itself.
		if err := s.moveEnd(h); err != nil {
			return err
		}
		s.joined = false
		return nil
	}
	return errAgain
}

// waiting is for a log that has to grow.
type waiting struct {
	ahead, last uint64 // what is waited for, and where the log ends
	since       time.Time
}

// waitFor begins anew where the log has not grown for a takeover time: a quorum
// is asked then whether it ever will. It may be that of another branch.
func (s *session) waitFor(ahead uint64) error {
	last := max(s.readTo, s.released, s.queue.last())
	if w := s.waiting; w.ahead != ahead || w.last != last {
		s.waiting = waiting{ahead, last, time.Now()}
	} else if time.Since(w.since) > s.takeover() {
		return errAgain
	}
	return nil
}

// forked begins anew: choosing the timeline finds that the log contradicts this
// one, and where.
func (s *session) forked(why string) error {
	s.a.alarms.raise(AlarmTimeline, why)
	return errAgain
}
