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
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// outcome of a put.
type outcome struct {
	stored bool
	winner *segment.Header // what is there under the name instead
	err    error
}

// is reports that h is there, stored by this put or by an earlier one.
func (o outcome) is(h segment.Header) bool {
	return o.stored || o.winner != nil && same(*o.winner, h)
}

// putAndCheck puts a segment, and finds out what became of it. The conditional put
// decides between writers: where the name is taken, the winner's header is
// read. A failure may have been a success: what is there is read before anything
// is decided.
func putAndCheck(ctx context.Context, repo *repository.Repository, h segment.Header, object []byte) outcome {
	err := segment.Put(ctx, repo, h, object)
	if err == nil {
		return outcome{stored: true}
	}
	// The time for the put may be over; to look takes its own.
	look, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookLimit)
	defer cancel()
	found, errLook := readWhole(look, repo, h.Name())
	switch {
	case errLook == nil:
		return outcome{winner: &found}
	case errors.Is(errLook, sinks.ErrNotFound):
		return outcome{err: err}
	default:
		return outcome{err: fmt.Errorf("%w; and what is there is not known: %w", err, errLook)}
	}
}

// readWhole reads the header of a segment that is as long as that says. One that
// was cut short would seem to hold what nobody can read.
func readWhole(ctx context.Context, repo *repository.Repository, name string) (segment.Header, error) {
	h, err := segment.ReadHeader(ctx, repo, name)
	if err != nil {
		return h, err
	}
	o, err := repo.Sink().Stat(ctx, name)
	if err == nil && o.Size != h.Size() {
		err = &snapshot.DamagedError{Object: fmt.Sprintf("%s in %s", name, repo), Offset: -1, Err: fmt.Errorf("it has %d bytes, its header says %d", o.Size, h.Size())}
	}
	return h, err
}

// same reports that two segments hold the same entries of one chain, read from one member.
// Their bytes differ: a segment is encoded again for each put, and encryption is random.
func same(a, b segment.Header) bool {
	return a.FirstIndex == b.FirstIndex && a.LastIndex == b.LastIndex && a.Before == b.Before && a.After == b.After && a.Member == b.Member
}

// put cuts a segment and puts it. It is given up putLimit later, and then cut
// anew, after a look at where the archive stands.
func (s *session) put(ctx context.Context) {
	c, level := s.cutNext(), 0
	if c.first() == s.skipped {
		level = 1
	}
	s.upload(ctx, c, level)
	s.inFlight = c
}

// upload starts to put a segment.
func (s *session) upload(ctx context.Context, c *cut, level int) {
	s.do(ctx, putLimit, func(ctx context.Context) func() error {
		h, o, err := s.store(ctx, c, level)
		return func() error {
			spooled := c.spooled != "" && o.is(h)
			if err == nil && spooled {
				err = s.spool.remove(c.spooled)
			}
			if err == nil {
				err = s.putDone(h, o)
			}
			if spooled && h.Level > 0 && !s.backlog() && s.log.Pinned() == 0 {
				// Another writer's names are others, so that both could go on for
				// good: who does is found out anew.
				s.failure = errAgain
			}
			return err
		}
	})
}

// store encodes a segment and puts it.
func (l *link) store(ctx context.Context, c *cut, level int) (segment.Header, outcome, error) {
	h, object, err := segment.Encode(ctx, c.timeline, c.before, c.chainStart, c.batch, c.meta, segment.Options{Codec: l.Codec, Tool: l.Tool, Level: level})
	if err != nil {
		return h, outcome{}, err
	}
	return h, putAndCheck(ctx, l.repo, h, object), nil
}

func (s *session) putDone(h segment.Header, o outcome) error {
	switch {
	case o.is(h):
		s.uploaded(h)
		s.role = Writer // who has stored a segment goes on writing
		before := s.end.index
		if err := s.moveEnd(h); err != nil || !h.ChainStart {
			return err
		}
		s.confirmAlone(before, h)
		return nil
	case o.winner != nil:
		// Another one writes. For Once both do.
		s.reachable()
		s.crossing = nil
		// One of this member's own is an earlier put that landed late.
		if s.mustLook = s.once; !s.once && uint64(o.winner.Member) != s.id.MemberID {
			s.role = Follower
		}
		return s.compare(*o.winner)
	}
	s.crossing = nil
	if snapshot.IsDamaged(o.err) && h.Level == 0 {
		s.skipDamaged(h.Name(), h.FirstIndex, o.err)
		return nil
	}
	return s.putFailed(o.err)
}

// confirmAlone lists once after a chain start was stored. Archivers whose logs
// begin at different indexes, and those that go on without a break, have other names,
// and no conditional put decides between them: who then finds another one's segment
// follows. The later one does, at least.
func (s *session) confirmAlone(before uint64, mine segment.Header) {
	s.do(context.Background(), putLimit, func(ctx context.Context) func() error {
		behind, err := s.repo.SmallSegments(ctx, s.timeline, before+1)
		return func() error {
			if err != nil {
				return errors.Join(errAgain, s.unreachable(err))
			}
			for _, o := range behind {
				if o.String() != mine.Name() && (o.First != mine.FirstIndex || o.First != s.skipped) {
					s.a.yields = true
					return errAgain
				}
			}
			return nil
		}
	})
}

// uploaded counts a segment that was stored.
func (l *link) uploaded(h segment.Header) {
	l.a.update(func(st *State) { st.Segments, st.Bytes = st.Segments+1, st.Bytes+h.Size() })
	l.putSucceeded()
	l.a.log.Know(h)
}

// moveEnd notes that the archive ends with h now.
func (s *session) moveEnd(h segment.Header) error {
	s.advanced = time.Now()
	if s.a.refusal.wait > 0 {
		s.putSucceeded() // what another one puts is taken, at least
	}
	behindGap := h.ChainStart || s.end.index > 0 && h.FirstIndex > s.end.index+1
	if behindGap {
		s.searchAt = time.Time{} // what is before it may be missing
	}
	if s.crossing != nil {
		gap := *s.crossing
		s.crossing, s.otherChain = nil, false
		s.recordGap(gap)
	}
	if s.fresh && s.branched != nil {
		s.branched.First = h.FirstIndex
		s.recordGap(*s.branched)
		s.branched = nil
	}
	revision := max(s.end.revision, h.Revision)
	s.end = endOf(h)
	s.end.revision = revision
	s.stored = h.LastIndex
	s.gapSince = time.Time{}
	s.spooledSince = time.Now()
	if first := s.spool.of(s.timeline); behindGap && len(first) > 0 && first[0].FirstIndex < h.FirstIndex {
		s.failure = errAgain // it may hold what is missing before h
	} else if err := s.spool.removeThrough(s.timeline, s.end.index); err != nil {
		return err
	}
	if s.captured.index <= s.end.index {
		s.captured, s.joined, s.fresh, s.otherChain = s.end, true, false, false
		s.queue.drop(s.end.index)
	}
	if s.resumed && !s.backlog() && s.queue.empty() {
		s.failure = errAgain
	}
	s.position.End = h
	return s.savePosition(false)
}

// savePositionEvery bounds the writing. An older position is as good: what is
// between is compared with the archive.
const savePositionEvery = 10 * time.Second

func (f *folder) savePosition(now bool) error {
	if !now && time.Since(f.saved) < savePositionEvery {
		return nil
	}
	f.saved = time.Now()
	err := f.position.write(f.SpoolDir)
	if f.a.unsaved = nil; isFull(err) {
		unsaved := f.position
		f.a.unsaved = &unsaved
	}
	return f.spoolWritten(err)
}

// cut is the content of a segment. It is encoded when it is put, or spooled: where that is,
// its name and its encryption differ.
type cut struct {
	timeline   repository.TimelineID
	before     raftlog.Sum
	chainStart bool
	batch      segment.Batch
	meta       segment.Meta
	oldest     time.Time // when its first entry came
	spooled    string    // its name in the spool; empty if it comes from the queue
}

func (c *cut) first() uint64 { return c.batch.Entries[0].Index }

// behind leaves out what the archive holds, which ends inside of the segment, in its chain.
func (c *cut) behind(end point) {
	c.batch.Entries = c.batch.Entries[end.index+1-c.first():]
	c.batch.Marks = slices.DeleteFunc(c.batch.Marks, func(m raftlog.Mark) bool { return m.Index < end.index })
	c.before, c.chainStart, c.meta.Previous = end.sum, false, end.first
}

// cutDue reports that a segment is to be cut: its first entry is Interval old, or
// there are Size bytes.
func (b *outbox) cutDue(now time.Time) bool {
	return !b.queue.empty() && (b.queue.bytes >= b.Size || now.Sub(b.queue.oldest()) >= b.Interval || b.once && b.queue.last() >= b.target)
}

// cutNext makes a segment of the queue's beginning, which stays in the queue.
// After a lull in putting it is larger than Size: one request then carries what
// several would. Where nothing shows that it follows what is captured, a chain begins.
func (s *session) cutNext() *cut {
	b, revision := s.queue.batch(MaxSize)
	meta := segment.Meta{Revision: revision, Member: snapshot.ID(s.id.MemberID), Cut: s.Now().Round(0)}
	c := &cut{timeline: s.timeline, chainStart: !s.joined || s.queue.first() > s.nextIndex(), batch: b, meta: meta, oldest: s.queue.oldest()}
	if !c.chainStart { // else by its name it continues nothing
		c.before = s.captured.sum
		if s.queue.first() == s.nextIndex() {
			c.meta.Previous = s.captured.first
		}
	}
	return c
}

// skipDamaged notes that what lies under the next name of level 0 is damaged, and will
// stay so: what it held is stored beside it, as a segment of level 1, whose name
// is another.
func (s *session) skipDamaged(name string, first uint64, err error) {
	s.reachable()
	s.skipped, s.mustLook = first, false
	if errors.Is(err, repository.ErrUnsigned) {
		s.a.alarms.raise(AlarmForeign, fmt.Sprintf("the name of a segment is taken by what nobody trusted wrote, and the segment is stored under another one: %v", err))
		return
	}
	s.a.failed(err)
	s.a.alarms.raise(AlarmDamaged, fmt.Sprintf("%s is damaged: what it held is archived anew from the members' logs, under another name: %v", name, err))
}
