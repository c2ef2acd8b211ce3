package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Barrier is a point that every write acknowledged before Barrier was called
// lies at or before. What is read from a member that has applied it misses no
// such write.
type Barrier struct {
	// Index is the raft index that Member had applied after a quorum confirmed
	// it, Term the term of the last entry applied by then. A snapshot that holds the
	// barrier has a consistent_index of at least Index.
	Index, Term uint64
	// Revision is of the key-value store. Alone it misses writes of leases and
	// of users.
	Revision int64
	Member   MemberStatus // that gave it, as it was then
}

// ErrNoBarrier says that no member could prove that it is up to date. It is
// wrapped in a *BarrierError.
var ErrNoBarrier = errors.New("no member can prove that it is up to date")

// BarrierError says for each voter why it gave no barrier.
type BarrierError struct {
	Failures []error
}

func (e *BarrierError) Error() string {
	if len(e.Failures) == 0 {
		return ErrNoBarrier.Error() + ": no voting member answers; name more endpoints"
	}
	var reasons []string
	for _, err := range e.Failures {
		reasons = append(reasons, err.Error())
	}
	return ErrNoBarrier.Error() + " (has the cluster lost its quorum, or are these members cut off from it?): " + strings.Join(reasons, "; ")
}

// Unwrap lets errors.Is find ErrNoBarrier and each member's failure.
func (e *BarrierError) Unwrap() []error { return append([]error{ErrNoBarrier}, e.Failures...) }

// Barrier asks all voters of the survey at once and takes the first that a
// quorum confirms, within CommandTimeout. A member that is cut off from its
// quorum cannot give one; its failure is in the *BarrierError when none can.
func (c *Client) Barrier(ctx context.Context, survey Survey) (Barrier, error) {
	bounded, cancel := context.WithTimeout(ctx, c.config.CommandTimeout)
	defer cancel()
	type answer struct {
		barrier Barrier
		err     error
	}
	answers := make(chan answer, len(survey.Members))
	asked := 0
	failures := []error{}
	for _, m := range survey.Members {
		switch {
		case m.Err != nil:
			failures = append(failures, m.Err)
		case m.IsLearner: // cannot confirm anything with a quorum
		case m.Outvoted(survey.Members): // its revision is not the cluster's
			failures = append(failures, fmt.Errorf("%s: its revision %d differs from that of most members at raft index %d", m, m.Revision, m.AppliedIndex))
		default:
			asked++
			go func() {
				b, err := c.barrierFrom(bounded, m)
				answers <- answer{b, err}
			}()
		}
	}
	for range asked {
		a := <-answers
		if a.err == nil {
			return a.barrier, nil
		}
		failures = append(failures, fmt.Errorf("%s: %w", a.barrier.Member, a.err))
	}
	if err := ctx.Err(); err != nil {
		return Barrier{}, fmt.Errorf("barrier: %w", context.Cause(ctx))
	}
	return Barrier{}, &BarrierError{Failures: failures}
}

func (c *Client) barrierFrom(ctx context.Context, m MemberStatus) (Barrier, error) {
	b := Barrier{Member: m}
	var header *pb.ResponseHeader
	err := c.ask(ctx, m, "asking the quorum to confirm that it is up to date", func(ctx context.Context, e *endpoint) (_ *pb.ResponseHeader, err error) {
		// It waits until the member has applied what the quorum's commit index was when the
		// call arrived. With authentication on any user may make it.
		resp, err := e.cluster.MemberList(ctx, &pb.MemberListRequest{Linearizable: true})
		header = resp.GetHeader()
		return header, err
	})
	if err != nil {
		return b, err
	}
	now, err := c.Status(ctx, m)
	if err != nil {
		return b, err
	}
	b.Member = now
	b.Index, b.Term, b.Revision = now.AppliedIndex, now.RaftTerm, max(now.Revision, header.GetRevision())
	return b, nil
}

// FarBehind is how many entries a member may lack at the barrier and still be
// asked before one that lacks none. A healthy follower lags by what is in
// flight, some hundreds at most; 5000 is what etcd itself keeps for a slow
// follower before it sends a whole snapshot.
const FarBehind = 5000

// Candidates are the members to read a snapshot from, best first: a learner,
// then a follower, then the leader, since serving a snapshot costs the member
// and the leader has the most to do. Members that are far behind the barrier,
// see no leader, or are outvoted come last. Members that did not answer, and those that
// a CORRUPT alarm is about, are left out; NOSPACE does not matter for reading.
func (c *Client) Candidates(survey Survey, barrier Barrier) []MemberStatus {
	var list []MemberStatus
	for _, m := range survey.Members {
		if m.Err == nil && !m.suspect() {
			list = append(list, m)
		}
	}
	slices.SortStableFunc(list, func(a, b MemberStatus) int {
		return cmp.Or(
			cmp.Compare(lagging(a, barrier, list), lagging(b, barrier, list)),
			cmp.Compare(role(a), role(b)),
			cmp.Compare(b.AppliedIndex, a.AppliedIndex),
		)
	})
	return list
}

// Outvoted reports whether most of the members at its raft index have another revision: the
// member has diverged.
func (m MemberStatus) Outvoted(all []MemberStatus) bool {
	have := map[int64]int{}
	for _, o := range all {
		if o.Err == nil && o.AppliedIndex == m.AppliedIndex {
			have[o.Revision]++
		}
	}
	for _, n := range have {
		if n > have[m.Revision] {
			return true
		}
	}
	return false
}

func lagging(m MemberStatus, barrier Barrier, all []MemberStatus) int {
	switch {
	case m.Outvoted(all):
		return 2
	case m.AppliedIndex+FarBehind < barrier.Index, m.Leader == 0 && m.AppliedIndex < barrier.Index:
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
