package archive

import (
	"context"
	"errors"
	"time"

	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// markEvery is how close marks of changes stand: `--at` cannot be more exact.
const markEvery = 200 * time.Millisecond

// addMarks keeps the live observations that agreed. Entries that were not
// released on one's word, because the log was read late, get none.
func (b *outbox) addMarks(agreed []observation) {
	for _, o := range agreed {
		before := b.seen
		b.seen = &o
		if before != nil && o.index > before.index {
			b.addStill(*before)
		}
		if o.late || o.index == b.marked.index || o.took > longestAnswer || o.time.Sub(b.marked.time).Abs() < markEvery {
			continue
		}
		// An entry that is durable already is not in any segment to come.
		if o.index <= b.captured.index || len(b.queue.marks) >= hintLimit {
			continue
		}
		b.marked = o
		b.queue.marks = append(b.queue.marks, o.mark())
	}
	b.addHint(agreed)
}

// addStill keeps the last observation before the index moved on: on a quiet
// cluster it says when the next entry was not there yet. Its entry may be
// durable already; the mark then goes with the one behind it.
func (b *outbox) addStill(o observation) {
	if o.late || o.took > longestAnswer || o.index < b.captured.index || len(b.queue.marks) >= hintLimit || o.time.Sub(b.marked.time).Abs() < markEvery {
		return
	}
	b.queue.marks = append(b.queue.marks, o.mark())
}

// addHint: the revision of an answer was read before its index, and is that of an entry being applied at most. The index of
// the next answer bounds it.
func (b *outbox) addHint(agreed []observation) {
	for _, o := range agreed {
		if before := b.hinted; before.revision > 0 && len(b.queue.hints) < hintLimit {
			h := hint{before.revision, o.index + 1}
			if o.index == before.index {
				h.index = o.index
			}
			if n := len(b.queue.hints); n == 0 || b.queue.hints[n-1].revision < h.revision {
				b.queue.hints = append(b.queue.hints, h)
			} else if b.queue.hints[n-1].revision == h.revision && h.index < b.queue.hints[n-1].index {
				b.queue.hints[n-1] = h
			}
		}
		b.hinted = o
	}
}

// aliveDue reports that nothing was archived for a while, since nothing happened.
// Every archiver writes its own mark: none can know, without listing, that
// another still does. A member without a leader does not know that nothing
// happened.
func (s *session) aliveDue(now time.Time) bool {
	return s.seen != nil && !s.seen.late && s.status.Leader != 0 && s.queue.empty() && !s.backlog() && s.seen.index <= s.captured.index &&
		now.Sub(s.seen.asked) < s.Alive && now.Sub(s.advanced) >= s.Alive && now.Sub(s.alive) >= s.Alive
}

// signEvery is after how many of Config.Alive a mark is written though the cluster is not
// quiet: it is the only sign of life of an archiver that follows.
const signEvery = 5

// signDue reports that such a mark can be written: of what was applied a moment ago, and
// is archived by now.
func (s *session) signDue(now time.Time) bool {
	if now.Sub(s.alive) < signEvery*s.Alive {
		return false
	}
	if o := s.seen; s.sign == nil && o != nil && !o.late && o.took <= longestAnswer && s.status.Leader != 0 && now.Sub(o.asked) < s.Alive {
		s.sign = o
	}
	return s.sign != nil && s.sign.index <= s.captured.index && !s.backlog()
}

// writeAlive stores a mark of its own, in the spool where the repository does
// not take it.
func (s *session) writeAlive(ctx context.Context, m raftlog.Mark) {
	s.alive, s.sign = time.Now(), nil
	mark := segment.Heartbeat{Timeline: s.timeline, Mark: m}
	if s.About != nil {
		mark.Agent = s.About()
	}
	s.do(ctx, lookLimit, func(ctx context.Context) func() error {
		err := mark.Write(ctx, s.repo)
		return func() error {
			if err != nil {
				return errors.Join(s.putFailed(err), s.spoolAlive(m))
			}
			s.putSucceeded()
			return nil
		}
	})
}

// spooledMarks bounds the marks of a repository that is away for a day.
const spooledMarks = 1440

func (s *session) spoolAlive(m raftlog.Mark) error {
	s.alive = time.Now()
	if len(s.spool.marks) >= spooledMarks {
		return nil
	}
	return s.spoolWritten(s.spool.addMark(s.timeline, m))
}

// drainMark stores a spooled mark.
func (s *session) drainMark(ctx context.Context) {
	first := s.spool.marks[0] // others may be added meanwhile
	s.do(ctx, lookLimit, func(ctx context.Context) func() error {
		err := s.spool.moveMark(ctx, s.repo, first)
		return func() error {
			if err != nil {
				return s.putFailed(err)
			}
			s.spool.marks = s.spool.marks[1:]
			s.putSucceeded()
			return nil
		}
	})
}
