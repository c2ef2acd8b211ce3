package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// FarBehind is how many entries a member may lack at the barrier and still be
// asked before one that lacks none. A healthy follower lags by what is in
// flight, some hundreds at most; 5000 is what etcd itself keeps for a slow
// follower before it sends a whole snapshot.
const FarBehind = 5000

// Candidates are the members to read a snapshot from, best first: a learner,
// then a follower, then the leader, since serving a snapshot costs the member
// and the leader has the most to do. Members that are far behind the barrier,
// or see no leader, come last. Members that did not answer, and those that a
// CORRUPT alarm is about, are left out; NOSPACE does not matter for reading.
func (c *Client) Candidates(survey Survey, barrier Barrier) []MemberStatus {
	var list []MemberStatus
	for _, m := range survey.Members {
		refuses := m.IsLearner && before35(m.Version) // a learner of 3.4 serves no snapshot
		if m.Err == nil && !m.suspect() && !refuses {
			list = append(list, m)
		}
	}
	slices.SortStableFunc(list, func(a, b MemberStatus) int {
		return cmp.Or(
			cmp.Compare(lagging(a, barrier), lagging(b, barrier)),
			cmp.Compare(role(a), role(b)),
			cmp.Compare(b.AppliedIndex, a.AppliedIndex),
		)
	})
	return list
}

func lagging(m MemberStatus, barrier Barrier) int {
	if m.AppliedIndex+FarBehind < barrier.Index || m.Leader == 0 && m.AppliedIndex < barrier.Index {
		return 1
	}
	return 0
}

func role(m MemberStatus) int {
	switch {
	case m.IsLearner:
		return 0
	case !m.IsLeader:
		return 1
	default:
		return 2
	}
}

// WaitApplied waits until the member has applied the barrier, at most
// CatchUpTimeout; ErrBehind when it has not by then, or does not say in time.
func (c *Client) WaitApplied(ctx context.Context, member MemberStatus, barrier Barrier) error {
	bounded, cancel := context.WithTimeout(ctx, c.config.CatchUpTimeout)
	defer cancel()
	var last MemberStatus
	for pause := 5 * time.Millisecond; bounded.Err() == nil; pause = min(2*pause, 250*time.Millisecond) {
		now, err := c.Status(bounded, member)
		switch {
		case errors.Is(err, ErrTimeout) || bounded.Err() != nil:
			cancel() // the transport may notice the deadline before the context does
		case err != nil:
			return fmt.Errorf("%s: waiting until it has applied index %d: %w", member, barrier.Index, err)
		case now.AppliedIndex >= barrier.Index && now.Revision >= barrier.Revision:
			return nil
		default:
			last = now
		}
		select {
		case <-bounded.Done():
		case <-time.After(pause):
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: waiting until it has applied index %d: %w", member, barrier.Index, context.Cause(ctx))
	}
	return fmt.Errorf("%s: %w: it was last seen at index %d, revision %d, and the cluster was at %d, %d when asked; it is cut off or too slow, use another member",
		member, ErrBehind, last.AppliedIndex, last.Revision, barrier.Index, barrier.Revision)
}
