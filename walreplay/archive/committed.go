package archive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/walfile"
)

const (
	// askIdle is how often the member is asked while its log does not grow.
	askIdle = 500 * time.Millisecond
	// stalledAfter is how long the log may lack what the member has applied. A
	// member that applies before it saves is late by a moment.
	stalledAfter = 10 * time.Second
	// answerLimit bounds one answer.
	answerLimit = 10 * time.Second
)

// openAt opens the member's log at an index. Where that is purged the first Poll says
// so, and the next one goes on behind it.
func (s *session) openAt(from uint64) error {
	if err := s.closeLog(); err != nil {
		return err
	}
	log, err := s.open(from)
	if err != nil {
		return s.unreadable(err)
	}
	s.log = log
	return nil
}

// ask starts a Status request where an answer could release something, or none
// was had for a while.
func (s *session) ask(ctx context.Context, now time.Time) {
	if s.asking || !s.rel.wantsMore() {
		return
	}
	every := s.Poll
	if s.log.Last() == 0 && !s.unmarked() {
		every = askIdle
	}
	if now.Sub(s.asked) < every {
		return
	}
	s.asking, s.asked = true, now
	answers, id := s.answers, s.id
	go func() {
		ctx, cancel := context.WithTimeout(ctx, answerLimit)
		defer cancel()
		status, err := s.cluster.Status(ctx, id)
		answers <- answer{status, s.Now(), time.Since(now), err}
	}()
}

// unmarked reports that entries wait to be stored and no observation of the last
// one is kept yet: the log itself may have shown that they are committed.
func (s *session) unmarked() bool { return !s.queue.empty() && s.marked.index < s.queue.last() }

// answered takes one answer. That of another member is an error: everything
// else would be archived on its word.
func (s *session) answered(a answer) error {
	s.asking = false
	if a.err != nil {
		var other *IdentityError
		if errors.As(a.err, &other) {
			return a.err
		}
		if s.failing.IsZero() {
			s.failing = time.Now()
		}
		s.why = a.err
		s.a.failed(a.err)
		return nil
	}
	if err := checkIdentity(s.id, a.status); err != nil {
		return err
	}
	s.failing = time.Time{}
	s.status, s.applied = a.status, a.status.AppliedIndex
	o := observe(a.status, a.at, a.took)
	s.rel.add(o)
	s.confirm(o, a)
	return nil
}

// confirm moves the time until which all that was acknowledged is applied. What
// was committed when the member was asked may have been acknowledged by another
// one, so that answer counts once the member has applied it: now, or later.
func (s *session) confirm(o observation, a answer) {
	asked, committed := a.at.Add(-a.took), a.status.RaftIndex
	switch {
	case o.late:
		s.committedAt = time.Time{}
	case committed <= s.applied:
		s.confirmed, s.committedAt = asked, time.Time{}
	case s.committedAt.IsZero():
		s.committed, s.committedAt = committed, asked
	case s.committed <= s.applied:
		s.confirmed = s.committedAt
		s.committed, s.committedAt = committed, asked
	}
}

// read reads the log on, and moves what is known to be committed to the queue.
func (s *session) read(ctx context.Context, now time.Time) error {
	if s.queue.bytes > queueLimit {
		// Nothing is released until there is room. The log is polled all the same,
		// so that it keeps what is purged.
		return s.poll(ctx)
	}
	entries, agreed, err := s.advance(ctx)
	if err != nil {
		return err
	}
	for len(entries) > 0 && entries[0].Index < s.nextIndex() {
		entries = entries[1:]
	}
	s.queue.add(entries, now)
	s.addMarks(agreed)
	return nil
}

// advance polls the log, and gives what became known to be committed.
func (s *session) advance(ctx context.Context) ([]raftlog.Entry, []observation, error) {
	if err := s.poll(ctx); err != nil {
		return nil, nil, err
	}
	s.readTo = max(s.readTo, s.log.Last())
	through, agreed := s.rel.match(s.log)
	var entries []raftlog.Entry
	if first := s.log.First(); first > 0 && through >= first {
		entries = s.log.Release(through)
	}
	if n := len(entries); n > 0 {
		s.released = max(s.released, entries[n-1].Index)
	}
	if s.rolledBack > 0 && s.released >= s.rolledBack {
		s.rolledBack = 0
		s.a.alarms.clear(AlarmRolledBack)
	}
	return entries, agreed, nil
}

func (s *session) poll(ctx context.Context) error {
	err := s.log.Poll(ctx)
	if walfile.IsHole(err) {
		s.a.failed(fmt.Errorf("the log of %s: %w", s.id, err))
		return nil // what is committed before the gap is released first
	}
	if errors.Is(err, walfile.ErrReplaced) {
		err = fmt.Errorf("%w: %w", errAgain, err)
	}
	if err != nil {
		return s.unreadable(fmt.Errorf("the log of %s: %w", s.id, err))
	}
	if !s.log.Full() {
		s.a.alarms.clear(AlarmLog)
	}
	if index := s.log.Overwritten(); index > 0 {
		// It was committed, and is not what the member has now.
		s.a.alarms.raise(AlarmTimeline, fmt.Sprintf("%s overwrote entry %d, which it had committed: its history restarted", s.id, index))
		return errAgain
	}
	return nil
}

// readCommitted does the same outside of the loop of run: it asks, waits for
// the answer, and reads.
func (s *session) readCommitted(ctx context.Context) ([]raftlog.Entry, error) {
	now := time.Now()
	s.ask(ctx, now)
	if s.asking {
		select {
		case a := <-s.answers:
			if err := s.answered(a); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	entries, _, err := s.advance(ctx)
	s.watch(now)
	return entries, err
}

// observation is one Status answer.
type observation struct {
	index, term uint64
	revision    int64
	time        time.Time // when it came, by the host's clock
	asked       time.Time // by the monotonic clock
	took        time.Duration
	member      uint64
	late        bool // the member is cut off, or far behind what is committed: the time is not that of the entry
}

// lateEntries is how far behind a member may be whose answers show the time.
const lateEntries = 1000

func observe(s client.MemberStatus, now time.Time, took time.Duration) observation {
	return observation{index: s.AppliedIndex, term: s.RaftTerm, revision: s.Revision, time: now, asked: time.Now(), took: took, member: s.MemberID,
		late: s.Leader == 0 || s.RaftIndex > s.AppliedIndex+lateEntries}
}

// longestAnswer is how long an answer may take and still show a time.
const longestAnswer = time.Second

// mark is what the observation says about time.
func (o observation) mark() raftlog.Mark {
	return raftlog.Mark{Index: o.index, Term: o.term, Time: o.time, Member: o.member, Revision: o.revision}
}

// releaser reports what of a log is committed.
//
// One Status answer holds an applied index A and a term T. etcd 3.5 to 3.7 read
// A first and T after it; and while an entry is applied they set the index
// first, the term after it. So T is the term of A, or of a later entry, or, for
// a moment, of the entry before A.
//
// Entries are released when the log, read on until it holds A, holds it with
// exactly the term T (later records overwrite earlier ones at the same index: a
// member may apply before it saves). What T shows then:
//
//   - T is of A: the log up to A is the committed one, by raft's log matching.
//   - T is of a later entry: then no log holds A with T. The leader of T had the
//     committed entry A, of a lower term, before it made any.
//   - T is of the entry before A: what the log holds at A may be a refused entry
//     of the leader of T. But that leader made the entry before A, which is
//     committed, and its log up to there is the one at hand.
//
// So all before A is committed, always; and A itself when the next answer shows
// that the moment is over: a later A, or the same A and T once more.
type releaser struct {
	pending []observation // oldest first, until the log holds their entries
	last    observation   // the last one that agreed
	dropped int           // observations that did not
}

// answersLimit is how many observations wait for the log. Asking on would not make
// it faster.
const answersLimit = 2

func (r *releaser) wantsMore() bool { return len(r.pending) < answersLimit }

func (r *releaser) add(o observation) {
	if o.index == 0 { // it has started, and applied nothing yet
		return
	}
	r.pending = append(r.pending, o)
}

// match gives the index up to which the log is committed, 0 where nothing new
// is known, and the observations that agreed.
//
// Recorded is raft's own record of the commit index in the same file, and may
// be trusted: wal.Save of 3.5 to 3.7 writes a batch's entries before the hard
// state that commits them, so what was read before the record, overwrites
// resolved, is the log that was committed. It lags behind (a record of the
// commit index alone is not flushed), so it never replaces Status; but it
// bounds the memory while years of log are read, before any answer fits. Where
// a leader's snapshot came between, the Log shows a gap, and nothing from
// before it is released on the word of a record behind it.
func (r *releaser) match(log Log) (through uint64, agreed []observation) {
	last := log.Last()
	through = min(log.Recorded(), last)
	for len(r.pending) > 0 {
		o := r.pending[0]
		term, known := log.Term(o.index)
		if !known && o.index > last {
			break // read on
		}
		r.pending = r.pending[1:]
		if known && term == o.term {
			sure := o.index - 1
			if r.last.index == o.index && r.last.term == o.term {
				sure = o.index
			}
			through = max(through, sure)
			r.last = o
			agreed = append(agreed, o)
		} else if known {
			r.dropped++
		}
	}
	return through, agreed
}
