package archive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/requorum/requorum/walreplay/raftlog"
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

// openAt opens the member's log at an index, or behind it where it is purged.
func (s *session) openAt(from uint64) error {
	if err := s.closeLog(); err != nil {
		return err
	}
	log, err := s.open(from)
	if past := (*overtaken)(nil); errors.As(err, &past) {
		log, err = s.open(past.Next)
	}
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

// unmarked tells that entries wait to be stored and no observation of the last
// one is kept yet: the log itself may have told that they are committed.
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
	if got := (Identity{a.status.ClusterID, a.status.MemberID}); got != s.id {
		return &IdentityError{Log: s.id, Answer: got, Endpoint: a.status.Endpoint}
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
	if hole := (*overtaken)(nil); errors.As(err, &hole) {
		s.a.failed(fmt.Errorf("the log of %s: %w", s.id, err))
		return nil // what is committed before the hole is released first
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
