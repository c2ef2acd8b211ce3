package archive

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// ended is the error of an archiver that ends by itself, within a time.
func (a *running) ended(within time.Duration) error {
	a.rig.Helper()
	select {
	case err := <-a.done:
		a.once.Do(func() {})
		return err
	case <-time.After(within):
		a.rig.Fatalf("it goes on after %s: %+v", within, a.State())
		return nil
	}
}

// Promise 1: every answer's member and cluster are compared with the log's, before
// anything is stored, however much the log itself shows to be committed, and later.
// A cluster restored with the same names and token has members of the same IDs: its own
// ID alone shows it then. Who asks may find out by itself that the endpoints are another
// member's: that is no member that does not answer.
func TestPromise1AnotherMemberAnswers(t *testing.T) {
	for name, change := range map[string]func(m *fakeMember){
		"member":  func(m *fakeMember) { m.answers.MemberID = 9 },
		"cluster": func(m *fakeMember) { m.answers.ClusterID++ },
		"the client refuses": func(m *fakeMember) {
			m.answers.MemberID = 9
			m.refuses = &IdentityError{Log: m.id, Answer: m.answers, Endpoint: "http://balancer"}
		},
	} {
		for _, later := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, later=%t", name, later), func(t *testing.T) {
				inFakeTime(t, 1, func(t *testing.T, r *rig) {
					m := r.cluster.members[0]
					r.cluster.commit(5, "x")
					m.recorded = 5
					var a *running
					if later {
						a = r.start(0)
						r.waitArchived(a, 5, 5*time.Second)
					}
					r.cluster.mu.Lock()
					change(m)
					r.cluster.mu.Unlock()
					r.cluster.commit(3, "x")
					if !later {
						a = r.start(0)
					}
					err := a.ended(time.Minute)
					var wrong *IdentityError
					if !errors.As(err, &wrong) || wrong.Log != m.id || wrong.Answer != m.answers || !strings.Contains(err.Error(), wrong.Answer.String()) || !strings.Contains(err.Error(), m.id.String()) {
						t.Fatalf("got %v, want an error that names both", err)
					}
					if s := a.State(); s.Archived > 5 || s.Role != Stopped || !later && len(r.names()) > 1 {
						t.Errorf("archived to %d on another one's word, %s; %v", s.Archived, s.Role, r.names())
					}
				})
			})
		}
	}
}
