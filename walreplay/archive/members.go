package archive

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/requorum/requorum/store"
)

// members asks a real cluster.
type members struct {
	client *store.Client
	mu     sync.Mutex
	found  *store.MemberStatus // where the member answered last
}

// Status implements Cluster.
func (m *members) Status(ctx context.Context, want Identity) (store.MemberStatus, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.found != nil {
		status, err := m.client.Status(ctx, *m.found)
		if err != nil {
			m.found = nil // somebody else may answer there now: look for it anew
		}
		return status, err
	}
	survey, err := m.client.Survey(ctx)
	if err != nil {
		return store.MemberStatus{}, err
	}
	var other *IdentityError
	var failed error
	for _, s := range survey.Members {
		switch answer := (Identity{s.ClusterID, s.MemberID}); {
		case s.Err != nil:
			failed = s.Err
		case answer == want:
			m.found = &s
			return s, nil
		case other == nil || answer.ClusterID != want.ClusterID:
			other = &IdentityError{Log: want, Answer: answer, Endpoint: s.Endpoint}
		}
	}
	// An endpoint that does not answer may be the member's, unless the others are
	// of another cluster.
	if other != nil && (failed == nil || other.Answer.ClusterID != want.ClusterID) {
		return store.MemberStatus{}, other
	}
	return store.MemberStatus{}, fmt.Errorf("%s does not answer: %w", want, failed)
}

// Reached implements Cluster. It takes the furthest of the members' answers
// after the barrier: a member that got a leader's snapshot tells its applied
// index and term wrong until it applied another entry (3.4 to 3.7 set them by
// entries only).
func (m *members) Reached(ctx context.Context, want Identity) (Reach, error) {
	survey, err := m.client.Survey(ctx)
	if err != nil {
		return Reach{}, err
	}
	if survey.ClusterID != want.ClusterID {
		return Reach{}, &IdentityError{Log: want, Answer: Identity{survey.ClusterID, survey.Members[0].MemberID}, Endpoint: survey.Members[0].Endpoint}
	}
	barrier, err := m.client.Barrier(ctx, survey)
	if err != nil {
		return Reach{}, err
	}
	reach := Reach{Index: barrier.Index, Term: barrier.Term}
	after, err := m.client.Survey(ctx)
	if err != nil {
		return Reach{}, err
	}
	for _, s := range after.Members {
		if s.Err == nil {
			reach.Index, reach.Term = max(reach.Index, s.AppliedIndex), max(reach.Term, s.RaftTerm)
		}
	}
	for _, i := range after.Membership {
		reach.Members = append(reach.Members, i.Name)
	}
	slices.Sort(reach.Members)
	return reach, nil
}

// Hash implements Cluster.
func (m *members) Hash(ctx context.Context, member store.MemberStatus) (store.HashKV, error) {
	return m.client.HashKV(ctx, member, 0)
}
