package archive

import (
	"context"
	"errors"
	"time"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// cut is a segment that was cut, whole in memory.
type cut struct {
	header segment.Header
	object []byte
	oldest time.Time // when its first entry came
}

// cutDue tells that a segment is to be cut: its first entry is Interval old, or
// there are Size bytes.
func (s *session) cutDue(now time.Time) bool {
	return !s.queue.empty() && (s.queue.bytes >= s.Size || now.Sub(s.queue.oldest()) >= s.Interval || s.once && s.queue.last() >= s.target)
}

// cutNext makes a segment of the queue's beginning, which stays in the queue.
// After a lull in putting it is larger than Size: one request then carries what
// several would.
func (s *session) cutNext(ctx context.Context, anchor bool) (*cut, error) {
	b, revision := s.queue.batch(maxCut)
	before := s.tip.sum
	if anchor {
		before = raftlog.Sum{}
	}
	h, object, err := segment.Encode(ctx, s.timeline, before, anchor, b, s.meta(revision), s.encoding())
	if err != nil {
		return nil, err
	}
	return &cut{h, object, s.queue.oldest()}, nil
}

func (s *session) meta(revision int64) segment.Meta {
	return segment.Meta{Revision: revision, Member: snapshot.ID(s.id.MemberID), Cut: s.Now().Round(0)}
}

func (s *session) encoding() segment.Options {
	return segment.Options{Codec: s.Codec, Tool: s.Tool}
}

// keep moves what is committed to the spool, where the repository does not take
// it in time.
func (s *session) keep(ctx context.Context, now time.Time) error {
	s.bound(now)
	stuck := s.busy != nil && now.Sub(s.busySince) > s.spoolAfter()
	if s.away.IsZero() && !stuck && len(s.lane) == 0 || s.holed() || s.timeline.N == 0 {
		return nil
	}
	if now.Before(s.roomAt) {
		return nil
	}
	for !s.queue.empty() && (now.Sub(s.queue.oldest()) > s.spoolAfter() || s.queue.bytes >= max(2*s.Size, maxCut/2)) {
		if s.holed() {
			return nil
		}
		if kept, err := s.spoolNext(ctx); err != nil || !kept {
			return err
		}
	}
	return nil
}

// spoolNext moves the next segment to the spool, unless that is full. A segment
// whose put is under way goes there byte for byte, so that it does not matter
// what becomes of the put.
func (s *session) spoolNext(ctx context.Context) (bool, error) {
	c := s.flying
	if c == nil || c.header.FirstIndex != s.nextIndex() {
		var err error
		if c, err = s.cutNext(ctx, !s.joined); err != nil {
			return false, err
		}
	}
	if s.spool.bytes+s.log.Pinned()+c.header.Size() > s.SpoolLimit {
		s.boundReached() // what is not released stays in the member's log, for as long as it does
		if !s.unbound {
			return false, nil
		}
	}
	if err := s.spool.add(c.header, c.object); err != nil {
		return false, s.kept(err)
	}
	s.crowded = false
	if len(s.lane) == 0 {
		s.laneSince = c.oldest
	}
	s.lane = append(s.lane, c.header)
	s.tip, s.joined, s.fresh = endOf(c.header), true, false
	s.queue.drop(c.header.LastIndex)
	if !s.away.IsZero() {
		s.role = Spooling
	}
	return true, nil
}

// How long a spool that was full is shown, unless it is found full again. What is
// written in any case, the position, is written more often than emptyFor.
const (
	fullFor  = time.Minute
	emptyFor = savePositionEvery + 5*time.Second
)

// bound keeps the spool and the pinned files below their limit. What is let go
// of is lost here; another member's archiver may hold it.
func (s *session) bound(now time.Time) {
	used := s.spool.bytes + s.log.Pinned()
	if used <= s.SpoolLimit {
		// Not found full for a while: a short one where it is empty and not needed.
		idle := used == 0 && s.away.IsZero() && s.busy == nil
		if full := now.Sub(s.fullAt); full > fullFor || idle && full > emptyFor {
			s.a.alarms.clear(AlarmSpoolFull)
		}
		return
	}
	s.boundReached()
	if s.log.Pinned() > 0 && s.log.DropPins() {
		s.a.failed(errors.New("WAL files that the member had purged before they were archived had to be let go of: the spool's bound is reached; what was in them is lost unless another member's archiver holds it"))
	}
}

func (s *session) boundReached() {
	s.spoolFull("the spool " + s.SpoolDir + " is full: what the member purges from now on is lost, unless another member's archiver holds it; raise the limit, or bring the repository back")
}

func (s *session) spoolFull(text string) {
	s.fullAt = time.Now()
	s.a.alarms.raise(AlarmSpoolFull, text)
}
