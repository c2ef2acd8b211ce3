package recovery

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/snapshot"
)

// Promise 3: a host that goes away at each step, one after the other in the same
// run: each time the command fails and says where, and the next one goes on without
// asking again, to the same end as without. From the start of the members on it does so once
// the others serve.
func TestHostGoesAwayAtEachStep(t *testing.T) {
	if testing.Short() {
		t.Skip("TestHostGone has a host that is gone; this takes a recovery more")
	}
	t.Parallel()
	s, want := deadSite(t, 3)
	victim := s.hosts[1]
	e := &heard{t: t}
	for _, phase := range []Phase{PhaseQuiesce, PhaseFence, PhaseSetAside, PhaseRebuild, PhaseStart, PhaseResume} {
		fired := false
		e.begun = func(p Phase, host string) {
			if p == phase && host == victim.name && !fired {
				fired = true
				victim.end()
			}
		}
		req := s.request(e)
		req.lateTimeout = time.Millisecond
		r, err := Run(t.Context(), req)
		if !fired {
			t.Fatalf("%s: the host did not go away: %v", phase, err)
		}
		var failed *HostsError
		if phase == PhaseStart || phase == PhaseResume { // the others serve
			if r == nil || !errors.As(err, new(snapshot.IncompleteError)) || len(r.Incomplete) == 0 {
				t.Fatalf("%s: %+v, %v", phase, r, err)
			}
		} else if !errors.As(err, &failed) || failed.Phase != phase || failed.Errs[victim.name] == nil || len(failed.Errs) != 1 {
			t.Fatalf("%s: %v", phase, err)
		}
		victim.control(t)
	}
	e.begun = nil
	r, err := Run(t.Context(), s.request(e))
	if err != nil || len(e.questions) != 1 || !r.Continued || len(r.Incomplete) > 0 {
		t.Fatalf("%+v, %v, asked %d times", r, err, len(e.questions))
	}
	s.check(t, want, s.hosts...)
	// What was done is not done again.
	for _, step := range []string{"survey m1", "set-aside m1", "rebuild m1", "rebuild m2", "prove "} {
		n := 0
		for _, done := range e.steps {
			if done == step {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%q was done %d times", step, n)
		}
	}
}

// Promise 3: an undo puts back what was, from wherever the run got to; and the next
// recovery is a new run.
func TestUndoFromTheMiddle(t *testing.T) {
	t.Parallel()
	s := newSite(t, "3.6", 3)
	want := s.fill(t, "a", 20)
	old := s.clusterID(t, s.hosts[0])
	e := &heard{t: t}
	for i, phase := range []Phase{PhaseFence, PhaseSetAside, PhaseRebuild, PhaseProve} {
		s.again(t)
		ctx, cancel := context.WithCancel(t.Context())
		fired := false
		e.begun = func(p Phase, _ string) {
			if p == phase {
				fired = true
				cancel()
			}
		}
		_, err := Run(ctx, s.request(e))
		if cancel(); !fired || err == nil {
			t.Fatalf("%s: ended %t, %v", phase, fired, err)
		}
		e.begun = nil
		u, err := Undo(t.Context(), s.request(e))
		require.NoError(t, err, phase)
		if len(e.questions) != 2*i+2 || e.questions[2*i+1].Type != "" {
			t.Errorf("%s: asked %+v", phase, e.questions)
		}
		for i, h := range s.hosts { // where nothing was set aside yet, they are as they were: stopped
			if !u.Hosts[i].Started {
				if phase == PhaseProve {
					t.Errorf("%s: %+v", phase, u)
				}
				h.run(t)
			}
		}
		s.waitReady(t, s.hosts...)
		s.check(t, want, s.hosts...)
		if now := s.clusterID(t, s.hosts[1]); now != old {
			t.Errorf("%s: cluster %x after the undo, was %x", phase, now, old)
		}
	}
}
