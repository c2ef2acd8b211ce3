package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	if index := f.log.Overwritten(); index > 0 {
		return s.dropHole(fmt.Errorf("a recorded gap cannot be filled: %s overwrote entry %d meanwhile", s.id, index))
	}
	// All of it lies before the archive's end, which this log holds as well: it
	// is committed. But where there is more to read, what overwrote it may come.
	through := f.log.Last()
	if f.log.Full() {
		through = min(through, f.log.Recorded())
	}
	if first := f.log.First(); first > 0 {
		if first > f.next {
			return s.dropHole(nil) // this log has the hole too
		}
		f.queue.add(f.log.Release(min(through, f.hole.Last+1)), s.advanced)
		if f.queue.empty() && f.log.Full() {
			return s.dropHole(fmt.Errorf("a recorded gap cannot be filled: the log of %s does not tell what of entry %d on is committed", s.id, f.next))
		}
		if !f.queue.empty() {
			f.next = f.queue.last() + 1
		}
	}
	done := f.next > f.hole.Last+1
	if !done && f.queue.bytes < maxCut {
		return nil
	}
	h, object, err := segment.Encode(ctx, s.timeline, f.before, f.before == raftlog.Sum{}, segment.Batch{Entries: f.run()}, s.meta(0), s.encoding())
	if err != nil {
		return s.dropHole(fmt.Errorf("a recorded gap cannot be filled: %w", err))
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
			case isDamage(o.err):
				return s.dropHole(o.err)
			}
			return s.unreachable(o.err)
		}
	})
	return nil
}

// run is what the next segment holds. The entry behind the hole is not left to
// one of its own: its name is that of the segment behind the hole.
func (f *filler) run() []raftlog.Entry {
	run := f.queue.run(maxCut)
	if n := len(run); n > 1 && run[n-1].Index == f.hole.Last {
		run = run[:n-1]
	}
	return run
}

// prepareFill looks how much of the hole is still there, and whether this
// member's log covers it. A fill that was broken off is gone on with.
func (s *session) prepareFill(ctx context.Context) {
	hole := s.holes[0]
	s.do(ctx, putLimit, func(ctx context.Context) func() error {
		next, before, err := s.filled(ctx, hole)
		return func() error {
			if err != nil {
				return s.unreachable(err)
			}
			if next > hole.Last {
				return s.dropHole(nil)
			}
			log, err := s.open(next)
			if err != nil {
				return s.dropHole(err)
			}
			s.fill = &filler{hole: hole, before: before, log: log, next: next}
			return nil
		}
	})
}

// filled is the first entry of a hole that is still missing, and the chain's
// value before it, zero where that is not known. Of the segments it reads only
// the headers of those in the hole and next to it.
func (s *session) filled(ctx context.Context, hole repository.GapName) (next uint64, before raftlog.Sum, err error) {
	next = hole.First
	all, err := s.repo.Segments(ctx, s.timeline)
	if err != nil {
		return 0, before, err
	}
	slices.SortStableFunc(all, func(a, b repository.Segment) int { return cmp.Compare(a.First, b.First) })
	for _, n := range beside(all, hole) {
		h, err := segment.ReadHeader(ctx, s.repo.Sink(), n.String())
		switch {
		case errors.Is(err, sinks.ErrNotFound), isDamage(err):
		case err != nil:
			return 0, before, err
		case h.FirstIndex <= next && h.LastIndex+1 >= next:
			next, before = h.LastIndex+1, h.After
		}
	}
	return next, before, nil
}

// beside are those of some segments, ordered by first index, which may hold
// entries of a hole or the one before it: names of level 0 don't tell where a
// segment ends.
func beside(all []repository.Segment, hole repository.GapName) []repository.Segment {
	var found []repository.Segment
	small := -1 // the last one of level 0 that begins before the hole
	for i, n := range all {
		switch {
		case n.First > hole.Last:
		case n.Level == 0 && n.First < hole.First:
			small = i
		case n.First >= hole.First, n.Last+1 >= hole.First:
			found = append(found, n)
		}
	}
	if small >= 0 {
		found = slices.Insert(found, 0, all[small])
	}
	return found
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
