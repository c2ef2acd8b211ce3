package archive

import (
	"context"
	"errors"
	"slices"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// filler closes a recorded gap with what this member's log holds: from the
// first entry that is missing to the first one of the segment behind the hole,
// that one included. It proves the join by being equal.
type filler struct {
	hole   repository.GapName
	before raftlog.Sum // the chain's value before the hole; zero where it is not known
	log    Log
	queue  queue
	next   uint64
}

// fillNext does the next step of filling the first hole.
func (s *session) fillNext(ctx context.Context) error {
	if !s.joined {
		return nil // only a log that was compared with the archive may fill it
	}
	if s.fill == nil {
		s.prepareFill(ctx)
		return nil
	}
	f := s.fill
	if err := f.log.Poll(ctx); err != nil {
		return s.dropHole(err)
	}
	// All of it lies before the archive's end, which this log holds as well: it
	// is committed.
	if first := f.log.First(); first > 0 {
		if first > f.next {
			return s.dropHole(nil) // this log has the hole too
		}
		f.queue.add(f.log.Release(min(f.log.Last(), f.hole.Last+1)), s.advanced)
		if !f.queue.empty() {
			f.next = f.queue.last() + 1
		}
	}
	done := f.next > f.hole.Last+1
	if !done && f.queue.bytes < maxCut {
		return nil
	}
	h, object, err := segment.Encode(ctx, s.timeline, f.before, f.before == raftlog.Sum{}, segment.Batch{Entries: f.queue.run(maxCut)}, s.meta(0), s.encoding())
	if err != nil {
		return err
	}
	s.do(ctx, putLimit, func(ctx context.Context) func() error {
		o := putAndSee(ctx, s.repo.Sink(), h, object)
		return func() error {
			switch {
			case o.stored || o.winner != nil && same(*o.winner, h):
				s.reachable()
				f.before = h.After
				f.queue.drop(h.LastIndex)
				if h.LastIndex > f.hole.Last {
					return s.dropHole(nil)
				}
				return nil
			case o.winner != nil:
				return s.dropHole(nil) // another one fills it
			}
			return s.unreachable(o.err)
		}
	})
	return nil
}

// prepareFill looks whether the hole is still there, and whether this member's
// log covers it.
func (s *session) prepareFill(ctx context.Context) {
	hole := s.holes[0]
	s.do(ctx, putLimit, func(ctx context.Context) func() error {
		name := repository.SegmentName{Timeline: s.timeline, First: hole.First}.String()
		_, err := s.repo.Sink().Stat(ctx, name)
		if !errors.Is(err, sinks.ErrNotFound) {
			return func() error {
				if err != nil {
					return s.unreachable(err)
				}
				return s.dropHole(nil)
			}
		}
		before := raftlog.Sum{}
		archived, err := segment.OpenLog(ctx, s.repo, s.timeline)
		covered := false
		if err == nil {
			for _, h := range archived.Headers() {
				if h.LastIndex+1 == hole.First {
					before = h.After
				}
				covered = covered || h.FirstIndex <= hole.First && hole.Last <= h.LastIndex
			}
		}
		return func() error {
			if err != nil {
				return s.unreachable(err)
			}
			if covered {
				return s.dropHole(nil)
			}
			log, err := s.open(hole.First)
			if err != nil {
				return s.dropHole(err)
			}
			s.fill = &filler{hole: hole, before: before, log: log, next: hole.First}
			return nil
		}
	})
}

// dropHole is done with the first hole, filled or not. Why it could not be
// filled is no news: the gap is on record.
func (s *session) dropHole(why error) error {
	if past := (*overtaken)(nil); errors.As(why, &past) {
		why = nil
	}
	if why != nil {
		s.a.failed(why)
	}
	s.holes = slices.Delete(s.holes, 0, 1)
	if s.fill == nil {
		return nil
	}
	err := s.fill.log.Close()
	s.fill = nil
	return err
}
