package archive

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// ended waits for an archiver that ends by itself, and wants it to name another
// member.
func (a *running) ended(t *testing.T) {
	t.Helper()
	var err error
	select {
	case err = <-a.done:
		a.once.Do(func() {})
	case <-time.After(time.Minute):
		t.Fatalf("it goes on: %+v", a.State())
	}
	var wrong *IdentityError
	if !errors.As(err, &wrong) {
		t.Fatalf("got %v, want an *IdentityError", err)
	}
}

// Design, What is committed: a cluster restored with the same names and token has
// members of the same IDs. The cluster's ID alone tells then, in every answer.
func TestPromise6OnlyTheClusterDiffers(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.start(0)
		r.load(5)
		r.waitArchived(a, 20, 5*time.Second)
		r.cluster.mu.Lock()
		r.cluster.members[0].answers.ClusterID++
		r.cluster.mu.Unlock()
		r.cluster.commit(3, "x")
		a.ended(t)
		if got := a.State(); got.Archived > 20 {
			t.Errorf("archived to %d on another cluster's word", got.Archived)
		}
	})
}

// A client that finds out by itself that the endpoints are another member's ends
// the archiver, at its start and later: that is no member that does not answer.
func TestPromise1ClientRefuses(t *testing.T) {
	for _, later := range []bool{false, true} {
		t.Run(fmt.Sprintf("later=%t", later), func(t *testing.T) {
			inFakeTime(t, 1, func(t *testing.T, r *rig) {
				m := r.cluster.members[0]
				refuse := func() {
					r.cluster.mu.Lock()
					defer r.cluster.mu.Unlock()
					m.refuses = &IdentityError{Log: m.id, Answer: Identity{testCluster, 9}, Endpoint: "http://balancer"}
				}
				if !later {
					refuse()
				}
				r.cluster.commit(5, "x")
				m.recorded = 5
				a := r.start(0)
				if later {
					r.waitArchived(a, 5, 5*time.Second)
					refuse()
				}
				a.ended(t)
				if n := len(r.names()); !later && n > 1 {
					t.Errorf("%v were stored", r.names())
				}
			})
		})
	}
}
