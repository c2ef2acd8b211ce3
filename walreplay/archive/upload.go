package archive

import (
	"context"
	"errors"
	"fmt"
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

// same reports that two headers are of the same bytes.
func same(a, b segment.Header) bool {
	return a.FirstIndex == b.FirstIndex && a.LastIndex == b.LastIndex && a.Before == b.Before && a.After == b.After &&
		a.Member == b.Member && a.Object.StoredSHA256 == b.Object.StoredSHA256
}

// put cuts a segment and puts it. It is given up putLimit later, and then cut
// anew, after a look at where the archive stands.
func (s *session) put(ctx context.Context) error {
	c, err := s.cutNext(ctx)
	if err != nil {
		return err
	}
	h, object, err := s.named(c.header, c.object)
	if err != nil {
		return err
	}
	s.inFlight = c
	s.do(ctx, putLimit, func(ctx context.Context) func() error {
		o := putAndCheck(ctx, s.repo, h, object)
		return func() error { return s.putDone(h, o) }
	})
	return nil
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

// cut is a segment that was cut, whole in memory.
type cut struct {
	header segment.Header
	object []byte
	oldest time.Time // when its first entry came
}

// cutDue reports that a segment is to be cut: its first entry is Interval old, or
// there are Size bytes.
func (b *outbox) cutDue(now time.Time) bool {
	return !b.queue.empty() && (b.queue.bytes >= b.Size || now.Sub(b.queue.oldest()) >= b.Interval || b.once && b.queue.last() >= b.target)
}

// cutNext makes a segment of the queue's beginning, which stays in the queue.
// After a lull in putting it is larger than Size: one request then carries what
// several would. Where nothing shows that it follows what is captured, a chain begins.
func (s *session) cutNext(ctx context.Context) (*cut, error) {
	b, revision := s.queue.batch(MaxSize)
	chainStart := !s.joined || s.queue.first() > s.nextIndex()
	before := s.captured.sum
	meta := segment.Meta{Revision: revision, Member: snapshot.ID(s.id.MemberID), Cut: s.Now().Round(0)}
	switch {
	case chainStart:
		before = raftlog.Sum{} // and by its name it goes on from nothing
	case s.queue.first() == s.nextIndex():
		meta.Previous = s.captured.first
	}
	h, object, err := segment.Encode(ctx, s.timeline, before, chainStart, b, meta, segment.Options{Codec: s.Codec, Tool: s.Tool})
	if err != nil {
		return nil, err
	}
	return &cut{h, object, s.queue.oldest()}, nil
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

// named gives a segment another name where that of level 0 is of a damaged one.
func (b *outbox) named(h segment.Header, object []byte) (segment.Header, []byte, error) {
	if h.Level > 0 || h.FirstIndex != b.skipped {
		return h, object, nil
	}
	return segment.Rename(h, object, 1, h.Previous)
}
