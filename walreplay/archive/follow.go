package archive

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/segment"
)

// lookDue reports that it is time to look for the next segment: by a follower
// that has something for it, and by a writer after a put that failed. Nobody
// looks while nothing is new.
func (s *session) lookDue(now time.Time) bool {
	if now.Before(s.lookAt) {
		return false
	}
	return s.mustLook || (s.role != Writer || s.beyondGap()) && !s.backlog() && !s.queue.empty()
}

// lookAgain is when the next segment is looked for.
func (l *link) lookAgain(now time.Time) { l.lookAt = now.Add(max(l.Interval, l.Poll)) }

// look reads the header of the segment that comes next, if it is there: one
// small GET. Nothing is listed.
func (s *session) look(ctx context.Context, now time.Time) {
	name := repository.SegmentName{Timeline: s.timeline, First: s.end.index + 1, Previous: s.end.first}.String()
	s.do(ctx, lookLimit, func(ctx context.Context) func() error {
		h, err := segment.ReadHeader(ctx, s.repo, name)
		return func() error {
			switch {
			case errors.Is(err, sinks.ErrNotFound):
				s.lookAgain(now)
				s.mustLook = false
				s.reachable()
				return nil
			case snapshot.IsDamaged(err):
				// Others pass it by, and go on behind it.
				s.skipDamaged(name, s.end.index+1, err)
				s.lookAgain(now)
				s.whenEndIsKnown(ctx, func() error { return nil })
				return nil
			case err != nil:
				return s.unreachable(err)
			}
			s.reachable()
			s.a.log.Know(h)
			s.mustLook = false
			return s.compare(h)
		}
	})
}

// compare holds a segment that another archiver stored against this member's log.
// The chain over the member's own entries, from the header's value before them
// on, ends with the header's value after them, or the histories differ.
func (s *session) compare(h segment.Header) error {
	s.ahead = nil
	sum, whole := s.queue.sum(h.Before, h.FirstIndex, h.LastIndex)
	switch {
	case whole && sum == h.After:
		return s.moveEnd(h)
	case whole:
		// Choosing the timeline finds that the log contradicts this one, and where.
		s.a.alarms.raise(AlarmTimeline, fmt.Sprintf("%s has committed other entries than those archived in %s", s.id, h.Name()))
		return errAgain
	case s.backlog() && slices.ContainsFunc(s.spool.of(s.timeline), func(mine segment.Header) bool { return same(mine, h) }):
		return s.moveEnd(h)
	case s.backlog():
		return errAgain // spooled ones are compared with the log on disk
	case h.FirstIndex != s.end.index+1 && s.end.index > 0:
		return errAgain
	case s.queue.last() < h.LastIndex && (s.queue.empty() || s.queue.first() <= h.FirstIndex):
		s.ahead = &h // this member's log is not there yet
		return s.waitFor(h.LastIndex)
	case h.ChainStart || h.Before == s.end.sum:
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

func (m *memberLog) takeover() time.Duration { return m.takeoverOf(m.id.MemberID) }

// late reports that the writer is: something is to be archived for several
// intervals, and nobody did, by this host's monotonic clock alone.
func (s *session) late(now time.Time) bool {
	if s.queue.empty() {
		return false
	}
	since := s.queue.oldest()
	if s.advanced.After(since) {
		since = s.advanced
	}
	return now.Sub(since) > s.takeover()
}

// whenEndIsKnown lists, and goes on with then when the archive ends where it
// was thought to.
func (s *session) whenEndIsKnown(ctx context.Context, then func() error) {
	s.do(ctx, putLimit, func(ctx context.Context) func() error {
		h, found, err := segment.Newest(ctx, s.repo, s.timeline)
		return func() error {
			if err != nil {
				return s.unreachable(err)
			}
			s.reachable()
			switch {
			case !found || h.LastIndex <= s.end.index:
				return then()
			case h.FirstIndex == s.end.index+1:
				return s.compare(h)
			}
			return errAgain
		}
	})
}
