package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// filler closes a hole with what this member's log holds: from the first entry
// that is missing to the first one of the segment behind the hole, that one
// included. It proves the join by being equal. That the log goes on from the
// segment before the hole as well is compared first: what is archived behind a
// gap need not continue what is before it.
type filler struct {
	hole   *hole
	proof  *trial      // against the segment before the hole; nil where there is none, or it agreed
	before raftlog.Sum // the chain's value before the hole; zero where it is not known
	log    Log
	queue  queue
	next   uint64
	passed uint64 // the name of level 0 that begins there is of a damaged segment
}

// fillNext does the next step of filling a hole.
func (s *session) fillNext(ctx context.Context, hole *hole) error {
	if s.fill == nil {
		return s.prepareFill(ctx, hole)
	}
	f := s.fill
	var past *overtaken
	if err := f.log.Poll(ctx); errors.As(err, &past) && f.proof != nil && past.Next > 0 && past.Next < f.next {
		return nil // it begins inside of the segment before the hole
	} else if err != nil {
		return s.failFill(err)
	}
	if index := f.log.Overwritten(); index > 0 {
		return s.failFill(fmt.Errorf("a hole cannot be filled: %s overwrote entry %d meanwhile", s.id, index))
	}
	// All of it lies before the archive's end, which this log holds as well: it
	// is committed. But where there is more to read, what overwrote it may come.
	through := f.log.Last()
	if f.log.Full() {
		through = min(through, f.log.Recorded())
	}
	if first := f.log.First(); first > 0 {
		if first > f.next {
			return s.failFill(nil) // this log has the hole too
		}
		entries := f.log.Release(min(through, f.hole.Last+1))
		if len(entries) == 0 && f.log.Full() {
			return s.failFill(fmt.Errorf("a hole cannot be filled: the log of %s does not tell what of entry %d on is committed", s.id, f.next))
		}
		if v := f.prove(ctx, entries); v == differs {
			return s.failFill(fmt.Errorf("a hole cannot be filled: %s has other entries before entry %d than those archived", s.id, f.next))
		} else if v == unproven {
			return s.failFill(nil)
		}
		f.queue.add(f.missing(entries), s.advanced)
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
		return s.failFill(fmt.Errorf("a hole cannot be filled: %w", err))
	}
	if f.passed == h.FirstIndex {
		if h, object, err = segment.Relabel(h, object, 1); err != nil {
			return err
		}
	}
	s.do(ctx, putLimit, func(ctx context.Context) func() error {
		o := putAndSee(ctx, s.repo.Sink(), h, object)
		return func() error {
			switch {
			case o.stored || o.winner != nil && same(*o.winner, h):
				s.taken()
				s.know(h)
				f.before = h.After
				f.queue.drop(h.LastIndex)
				if h.LastIndex > f.hole.Last {
					if s.dropHole(f.hole); s.position.Gap != nil {
						s.searchAt = time.Time{} // it may be all that was due for
					}
					return s.endFill()
				}
				return nil
			case o.winner != nil:
				return s.failFill(nil) // another one fills it
			case isDamage(o.err) && h.Level == 0:
				f.passed = h.FirstIndex // stored under another name
				return nil
			case isDamage(o.err):
				return s.failFill(o.err)
			}
			return s.refused(o.err)
		}
	})
	return nil
}

// prove compares entries with what is archived before the hole. It is equal as
// long as nothing speaks against it.
func (f *filler) prove(ctx context.Context, entries []raftlog.Entry) verdict {
	if f.proof == nil {
		return equal
	}
	v, done := f.proof.feed(ctx, entries)
	if !done {
		return equal
	}
	f.proof = nil
	return v
}

// missing are those of some entries that belong into the hole.
func (f *filler) missing(entries []raftlog.Entry) []raftlog.Entry {
	first, _ := slices.BinarySearchFunc(entries, f.next, func(e raftlog.Entry, index uint64) int { return cmp.Compare(e.Index, index) })
	return entries[first:]
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

// prepareFill looks whether this member's log covers the hole, and how much of
// it is still there. A fill that was broken off is gone on with.
func (s *session) prepareFill(ctx context.Context, hole *hole) error {
	if may, err := s.mayFill(ctx, hole.First); err != nil || !may {
		return s.giveOver(hole, err)
	}
	s.do(ctx, putLimit, func(ctx context.Context) func() error {
		p, err := s.filled(ctx, hole.GapName)
		return func() error {
			switch {
			case err != nil:
				return s.unreachable(err)
			case p.next > hole.Last:
				s.dropHole(hole)
				return nil
			case p.before == raftlog.Sum{} && !p.anchored:
				return s.giveOver(hole, nil) // nothing would join it to what is behind
			}
			f := &filler{hole: hole, before: p.before, next: p.next}
			from := p.next
			if p.last.Entries > 0 {
				f.proof, from = s.proofOf(p.last), p.last.FirstIndex
			}
			var past *overtaken
			if f.log, err = s.open(from); errors.As(err, &past) && past.Next < p.next {
				f.log, err = s.open(past.Next) // a part of it can be compared
			}
			if err != nil {
				return s.giveOver(hole, err)
			}
			s.fill = f
			return nil
		}
	})
	return nil
}

// proofOf compares this member's log with a segment. Where the log begins inside
// of it, its entries are read, which is rare: a log holds several of the largest.
func (s *session) proofOf(h segment.Header) *trial {
	return &trial{timeline: h.Timeline, end: h, sum: h.Before, want: h.FirstIndex, body: func(ctx context.Context) ([]raftlog.Entry, error) {
		ctx, cancel := context.WithTimeout(ctx, lookLimit)
		defer cancel()
		_, b, err := segment.Read(ctx, s.repo.Sink(), h.Name(), s.Identities...)
		return b.Entries, err
	}}
}

// mayFill tells, without asking the repository, whether the log goes back far
// enough.
func (s *session) mayFill(ctx context.Context, first uint64) (bool, error) {
	log, err := s.open(first)
	if err != nil {
		return false, err
	}
	err = log.Poll(ctx)
	begin := log.First()
	return begin > 0 && begin <= first, errors.Join(err, log.Close())
}

// progress is how far a hole is filled.
type progress struct {
	next     uint64         // the first entry that is still missing
	last     segment.Header // the segment that ends before it; zero where there is none
	before   raftlog.Sum    // the chain's value before it; zero where that is not known
	anchored bool           // the chain begins anew behind the hole
}

// filled looks how far a hole is filled. Of the segments it reads only the
// headers of those in the hole and next to it.
func (s *session) filled(ctx context.Context, hole repository.GapName) (progress, error) {
	p := progress{next: hole.First}
	all, err := s.repo.Segments(ctx, s.timeline)
	if err != nil {
		return p, err
	}
	slices.SortStableFunc(all, func(a, b repository.Segment) int { return cmp.Compare(a.First, b.First) })
	for _, n := range beside(all, hole) {
		h, err := segment.ReadHeader(ctx, s.repo.Sink(), n.String())
		switch {
		case errors.Is(err, sinks.ErrNotFound), isDamage(err):
		case err != nil:
			return p, err
		case h.Size() != n.Object.Size: // cut short
		case h.FirstIndex <= p.next && h.LastIndex+1 >= p.next:
			p.next, p.last, p.before = h.LastIndex+1, h, h.After
		case h.FirstIndex == hole.Last+1:
			p.anchored = p.anchored || h.Anchor
		}
	}
	return p, nil
}

// beside are those of some segments, ordered by first index, which may hold
// entries of a hole or the one before it, or begin behind it: names of level 0 don't tell where a
// segment ends.
func beside(all []repository.Segment, hole repository.GapName) []repository.Segment {
	var found []repository.Segment
	small := -1 // the last one of level 0 that begins before the hole
	for i, n := range all {
		switch {
		case n.First > hole.Last+1:
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

// giveOver leaves a hole to the others. That the log has it too is no news.
func (s *session) giveOver(h *hole, why error) error {
	h.tried = true
	if past := (*overtaken)(nil); why != nil && !errors.As(why, &past) {
		s.a.failed(why)
	}
	return nil
}

// failFill gives up filling.
func (s *session) failFill(why error) error {
	return errors.Join(s.giveOver(s.fill.hole, why), s.endFill())
}

func (s *session) endFill() error {
	if s.fill == nil {
		return nil
	}
	err := s.fill.log.Close()
	s.fill = nil
	return err
}
