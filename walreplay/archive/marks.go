package archive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// markEvery is how close marks of changes stand: `--at` cannot be more exact.
const markEvery = 200 * time.Millisecond

// addMarks keeps the live observations that agreed. Entries that were not
// released on one's word, because the log was read late, get none.
func (s *session) addMarks(agreed []observation) {
	for _, o := range agreed {
		before := s.seen
		s.seen = &o
		if before != nil && o.index > before.index {
			s.addStill(*before)
		}
		if o.late || o.index == s.marked.index || o.took > longestAnswer || o.time.Sub(s.marked.time).Abs() < markEvery {
			continue
		}
		// An entry that is durable already is not in any segment to come.
		if o.index <= s.captured.index || len(s.queue.marks) >= hintLimit {
			continue
		}
		s.marked = o
		s.queue.marks = append(s.queue.marks, o.mark())
	}
	s.addHint(agreed)
}

// addStill keeps the last observation before the index moved on: on a quiet
// cluster it says when the next entry was not there yet. Its entry may be
// durable already; the mark then goes with the one behind it.
func (s *session) addStill(o observation) {
	if o.late || o.took > longestAnswer || o.index < s.captured.index || len(s.queue.marks) >= hintLimit || o.time.Sub(s.marked.time).Abs() < markEvery {
		return
	}
	s.queue.marks = append(s.queue.marks, o.mark())
}

// addHint: the revision of an answer was read before its index, or a little
// after it (3.4), and is that of an entry being applied at most. The index of
// the next answer bounds it.
func (s *session) addHint(agreed []observation) {
	for _, o := range agreed {
		if before := s.hinted; before.revision > 0 && len(s.queue.hints) < hintLimit {
			h := hint{before.revision, o.index + 1}
			if o.index == before.index {
				h.index = o.index
			}
			if n := len(s.queue.hints); n == 0 || s.queue.hints[n-1].revision < h.revision {
				s.queue.hints = append(s.queue.hints, h)
			} else if s.queue.hints[n-1].revision == h.revision && h.index < s.queue.hints[n-1].index {
				s.queue.hints[n-1] = h
			}
		}
		s.hinted = o
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

// writeAlive stores a mark of its own, in the spool where the repository does
// not take it.
func (s *session) writeAlive(ctx context.Context, m raftlog.Mark, stamp *segment.CheckpointHash) {
	s.alive = time.Now()
	s.do(ctx, lookLimit, func(ctx context.Context) func() error {
		err := segment.WriteMark(ctx, s.repo, s.timeline, m, stamp)
		return func() error {
			if err != nil {
				return errors.Join(s.putFailed(err), s.spoolAlive(m, stamp))
			}
			s.putSucceeded()
			return nil
		}
	})
}

// spooledMarks bounds the marks of a repository that is away for a day.
const spooledMarks = 1440

func (s *session) spoolAlive(m raftlog.Mark, stamp *segment.CheckpointHash) error {
	s.alive = time.Now()
	if len(s.spool.marks) >= spooledMarks {
		return nil
	}
	return s.spoolWritten(s.spool.addMark(s.timeline, m, stamp))
}

// checkpointHashDue reports that a follower is to be asked for a hash: it is frozen for a
// moment, and a leader would freeze the cluster.
func (s *session) checkpointHashDue(now time.Time) bool {
	return s.CheckpointHash > 0 && s.seen != nil && !s.seen.late && s.status.Leader != 0 && !s.status.IsLeader && !s.status.IsLearner && now.Sub(s.checkpointHashed) >= s.CheckpointHash
}

// takeCheckpointHash writes an alive mark with a live HashKV.
func (s *session) takeCheckpointHash(ctx context.Context) {
	s.checkpointHashed = time.Now()
	status, m := s.status, s.seen.mark()
	s.do(ctx, putLimit, func(ctx context.Context) func() error {
		hash, err := s.cluster.Hash(ctx, status)
		return func() error {
			if err == nil {
				m.Time = s.Now()
				s.writeAlive(context.Background(), m, &segment.CheckpointHash{Hash: hash.Hash, HashRevision: hash.HashRevision, CompactedRevision: hash.CompactRevision})
			} else {
				s.a.failed(fmt.Errorf("no checkpoint hash: %w", err))
			}
			return nil
		}
	})
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
