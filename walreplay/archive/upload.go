package archive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/segment"
)

// outcome of a put.
type outcome struct {
	stored bool
	winner *segment.Header // what is there under the name instead
	err    error
}

// putAndSee puts a segment, and finds out what became of it. The conditional put
// decides between writers: where the name is taken, the winner's header is
// read. A failure may have been a success: what is there is read before anything
// is decided.
func putAndSee(ctx context.Context, sink sinks.Sink, h segment.Header, object []byte) outcome {
	err := segment.Put(ctx, sink, h, object)
	if err == nil {
		return outcome{stored: true}
	}
	// The time for the put may be over; to look takes its own.
	look, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookLimit)
	defer cancel()
	found, errLook := readWhole(look, sink, h.Name())
	switch {
	case errLook == nil:
		return outcome{winner: &found}
	case errors.Is(errLook, sinks.ErrNotFound):
		return outcome{err: err}
	default:
		return outcome{err: fmt.Errorf("%w; and what is there cannot be told: %w", err, errLook)}
	}
}

// readWhole reads the header of a segment that is as long as that says. One that
// was cut short would seem to hold what nobody can read.
func readWhole(ctx context.Context, sink sinks.Sink, name string) (segment.Header, error) {
	h, err := segment.ReadHeader(ctx, sink, name)
	if err != nil {
		return h, err
	}
	o, err := sink.Stat(ctx, name)
	if err == nil && o.Size != h.Size() {
		err = &snapshot.DamagedError{Object: fmt.Sprintf("%s in %s", name, sink), Offset: -1, Err: fmt.Errorf("it has %d bytes, its header says %d", o.Size, h.Size())}
	}
	return h, err
}

// same tells that two headers are of the same bytes.
func same(a, b segment.Header) bool {
	return a.FirstIndex == b.FirstIndex && a.LastIndex == b.LastIndex && a.Before == b.Before && a.After == b.After &&
		a.Member == b.Member && a.Object.StoredSHA256 == b.Object.StoredSHA256
}

// put cuts a segment and puts it. It is given up putLimit later, and then cut
// anew, after a look at where the archive stands.
func (s *session) put(ctx context.Context, anchor bool) error {
	if !s.joined && !anchor && !s.fresh {
		return nil
	}
	c, err := s.cutNext(ctx, anchor || !s.joined)
	if err != nil {
		return err
	}
	h, object, err := s.named(c.header, c.object)
	if err != nil {
		return err
	}
	s.flying = c
	s.do(ctx, putLimit, func(ctx context.Context) func() error {
		o := putAndSee(ctx, s.repo.Sink(), h, object)
		return func() error { return s.putDone(h, o) }
	})
	return nil
}

func (s *session) putDone(h segment.Header, o outcome) error {
	switch {
	case o.stored || o.winner != nil && same(*o.winner, h):
		s.a.update(func(st *State) { st.Segments, st.Bytes = st.Segments+1, st.Bytes+h.Size() })
		s.taken()
		s.know(h)
		s.wrote()
		before := s.end.index
		if err := s.moveEnd(h); err != nil || !h.Anchor {
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
		return s.meet(*o.winner)
	}
	s.crossing = nil
	if isDamage(o.err) && h.Level == 0 {
		s.pass(h.Name(), h.FirstIndex, o.err)
		return nil
	}
	return s.refused(o.err)
}

// confirmAlone lists once after an anchor was stored. Archivers whose logs
// begin at different indexes begin at different names, and no conditional put
// decides between them: who then finds another one's segment follows. The later
// one does, at least.
func (s *session) confirmAlone(before uint64, mine segment.Header) {
	s.do(context.Background(), putLimit, func(ctx context.Context) func() error {
		all, err := s.repo.Segments(ctx, s.timeline)
		return func() error {
			if err != nil {
				return errors.Join(errAgain, s.unreachable(err))
			}
			for _, o := range all {
				if o.Level == 0 && o.First > before && o.First != mine.FirstIndex {
					s.a.yields = true
					return errAgain
				}
			}
			return nil
		}
	})
}

// know spares the next look through the archive a request for a header.
func (s *session) know(h segment.Header) {
	if s.a.cover != nil {
		s.a.cover.Know(h)
	}
}

// wrote: who has stored a segment goes on writing.
func (s *session) wrote() { s.role = Writer }

// moveEnd notes that the archive ends with h now.
func (s *session) moveEnd(h segment.Header) error {
	s.advanced = time.Now()
	if s.a.refusal.wait > 0 {
		s.taken() // what another one puts is taken, at least
	}
	if h.Anchor {
		s.searchAt = time.Time{} // what is before it may be missing
	}
	if h.Anchor && s.crossing != nil {
		gap := *s.crossing
		s.crossing = nil
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
	for len(s.lane) > 0 && s.lane[0].LastIndex <= s.end.index {
		s.lane = s.lane[1:]
		s.laneSince = time.Now()
	}
	if h.Anchor && s.spool.passed(s.timeline, s.end.index) {
		s.failure = errAgain // it may hold what is missing before h
	} else if err := s.spool.removeThrough(s.timeline, s.end.index); err != nil {
		return err
	}
	if s.tip.index <= s.end.index {
		s.tip, s.joined, s.fresh = s.end, true, false
		s.queue.drop(s.end.index)
	}
	if s.goneOn && len(s.lane) == 0 && s.queue.empty() {
		s.failure = errAgain
	}
	s.position.End = h
	return s.savePosition(false)
}

// savePositionEvery bounds the writing. An older position is as good: what is
// between is compared with the archive.
const savePositionEvery = 10 * time.Second

func (s *session) savePosition(now bool) error {
	if !now && time.Since(s.saved) < savePositionEvery {
		return nil
	}
	s.saved = time.Now()
	s.position.Held.note(s.timeline, s.released)
	err := s.position.write(s.SpoolDir)
	if s.a.unsaved = nil; isFull(err) {
		unsaved := s.position
		s.a.unsaved = &unsaved
	}
	return s.kept(err)
}
