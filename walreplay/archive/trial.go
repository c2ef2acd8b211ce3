package archive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// verdict of comparing a member's log with the end of what is archived.
type verdict int

const (
	// equal: the log holds the last segment, entry by entry.
	equal verdict = iota
	// differs: a committed entry is another one than the archived one.
	differs
	// behind: the cluster, as a quorum confirmed, is not as far as the archive.
	behind
	// unproven: the log does not reach back far enough to compare.
	unproven
)

// trial compares a member's committed log with the last thing known of a
// timeline: a segment, or a full snapshot (an index and its term alone).
type trial struct {
	timeline repository.TimelineID
	end      segment.Header
	body     func(context.Context) ([]raftlog.Entry, error) // of the segment, where it can be read; or nil

	sum     raftlog.Sum
	want    uint64
	partial bool // entries at the beginning are missing in the log
	held    []raftlog.Entry
}

// bare tells that only an index and its term are known.
func (t *trial) bare() bool { return t.end.Entries == 0 }

// feed takes committed entries, in order; done when it is decided.
func (t *trial) feed(ctx context.Context, entries []raftlog.Entry) (v verdict, done bool) {
	for _, e := range entries {
		switch {
		case e.Index < t.end.FirstIndex:
			continue
		case e.Index > t.end.LastIndex:
			return unproven, true // it was passed over: a hole
		case e.Index != t.want:
			t.partial = true
		}
		t.want = e.Index + 1
		if t.partial {
			t.held = append(t.held, e)
		} else {
			t.sum = t.sum.Next(e)
		}
		if e.Index == t.end.LastIndex {
			return t.decide(ctx, e), true
		}
	}
	return 0, false
}

func (t *trial) decide(ctx context.Context, last raftlog.Entry) verdict {
	switch {
	case t.bare() && t.end.LastTerm == 0:
		return unproven // a snapshot of etcd 3.4, which does not keep the term
	case last.Term != t.end.LastTerm:
		return differs
	case t.bare():
		return equal
	case !t.partial && t.sum == t.end.After:
		return equal
	case !t.partial:
		return differs
	case t.body == nil:
		return unproven
	}
	archived, err := t.body(ctx)
	if err != nil {
		return unproven // no identity, or damage: it was a chance to know more
	}
	for _, e := range t.held {
		if i := e.Index - t.end.FirstIndex; i >= uint64(len(archived)) || !archived[i].Equal(e) {
			return differs
		}
	}
	return equal
}

// try reads the member's log from where the last segment begins, until it is
// decided whether this is the member's timeline. A member that lags is waited
// for.
func (s *session) try(ctx context.Context, t *trial) (verdict, error) {
	t.sum, t.want = t.end.Before, t.end.FirstIndex
	if err := s.openAt(t.end.FirstIndex); err != nil {
		return 0, err
	}
	s.rel = releaser{}
	judged := time.Now()
	for {
		entries, err := s.readCommitted(ctx)
		if err != nil {
			return 0, err
		}
		if v, done := t.feed(ctx, entries); done {
			return v, nil
		}
		if len(entries) > 0 {
			continue
		}
		// The whole log is read, and ends before the archive does.
		// Other members may tell how far the cluster is where this one does not
		// answer: one that was set back serves only once it has caught up.
		if (s.applied < t.end.LastIndex || !s.failing.IsZero()) && time.Since(judged) > s.judgeEvery() {
			judged = time.Now()
			v, err := s.judge(ctx, t)
			if v == behind || err != nil {
				return v, err
			}
		}
		if err := s.whileWaiting(ctx, t.timeline); err != nil {
			return 0, err
		}
		if err := s.pause(ctx); err != nil {
			return 0, err
		}
	}
}

// judgeEvery is how often a quorum is asked while the log lags.
func (s *session) judgeEvery() time.Duration { return s.Poll * 4 }

// judge asks the cluster, with its quorum, how far it is. Where no quorum can
// tell, nothing is decided.
func (s *session) judge(ctx context.Context, t *trial) (verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	reach, err := s.cluster.Reached(ctx, s.id)
	var other *IdentityError
	switch {
	case errors.As(err, &other):
		return 0, err
	case err != nil:
		s.a.failed(fmt.Errorf("the member's log ends before the archive, and no quorum tells how far the cluster is: %w", err))
		return equal, nil
	}
	if reach.Index < t.end.LastIndex || reach.Term < t.end.LastTerm {
		return behind, nil
	}
	s.tellLost(t.timeline)
	if uint64(t.end.Member) == s.id.MemberID && s.log.Last() < t.end.LastIndex {
		s.a.alarms.raise(AlarmRolledBack, fmt.Sprintf("%s has a log that ends at index %d, and held entry %d before: its disk or machine was set back; the cluster is not, and the log is followed from where it stands", s.id, s.readTo, t.end.LastIndex))
		s.rolledBack = t.end.LastIndex
	}
	return equal, nil
}
