package archive

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/walreplay/walfile"
)

// Identity is of a member, and of its cluster.
type Identity = walfile.Identity

// Cluster answers what the files do not show. None of it proposes anything: a
// proposal would itself be an entry to archive, for ever.
type Cluster interface {
	// Status asks the member; an *IdentityError where somebody else answers.
	Status(ctx context.Context, want Identity) (client.MemberStatus, error)
	// Reached is what the cluster had applied at least when it was called, as a
	// quorum confirmed: the furthest index and the latest term.
	Reached(ctx context.Context, want Identity) (Reach, error)
}

// Reach is a point that the cluster has reached.
type Reach struct {
	Index, Term uint64
	Members     []string // names
}

// IdentityError says that a log and the answers are of different members.
type IdentityError struct {
	Log, Answer Identity
	Endpoint    string
}

func (e *IdentityError) Error() string {
	return fmt.Sprintf("the log is of %s, and %s answers as %s: give the data directory and the client URL of the same member, and no load balancer's", e.Log, e.Endpoint, e.Answer)
}

// checkIdentity refuses the answer of another member.
func checkIdentity(i Identity, answer client.MemberStatus) error {
	if got := (Identity{ClusterID: answer.ClusterID, MemberID: answer.MemberID}); got != i {
		return &IdentityError{Log: i, Answer: got, Endpoint: answer.Endpoint}
	}
	return nil
}

// members asks a real cluster.
type members struct {
	client *client.Client
	mu     sync.Mutex
	found  *client.MemberStatus // where the member answered last
}

// Status implements Cluster.
func (m *members) Status(ctx context.Context, want Identity) (client.MemberStatus, error) {
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
		return client.MemberStatus{}, err
	}
	var other *IdentityError
	var failed error
	for _, s := range survey.Members {
		switch answer := (Identity{ClusterID: s.ClusterID, MemberID: s.MemberID}); {
		case s.Err != nil && answer == want:
			return client.MemberStatus{}, s.Err
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
		return client.MemberStatus{}, other
	}
	return client.MemberStatus{}, fmt.Errorf("%s does not answer: %w", want, failed)
}

// Reached implements Cluster. It takes the furthest of the members' answers
// after the barrier: a member that got a leader's snapshot reports its applied
// index and term wrong until it applied another entry (3.5 to 3.7 set them by
// entries only).
func (m *members) Reached(ctx context.Context, want Identity) (Reach, error) {
	survey, err := m.client.Survey(ctx)
	if err != nil {
		return Reach{}, err
	}
	if survey.ClusterID != want.ClusterID {
		return Reach{}, &IdentityError{Log: want, Answer: Identity{ClusterID: survey.ClusterID, MemberID: survey.Members[0].MemberID}, Endpoint: survey.Members[0].Endpoint}
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
