package schedule

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/schedule/web"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
)

// shared is a repository without conditional puts.
type shared struct{ *sinktest.Faulty }

func (shared) Abilities(context.Context) (sinks.Abilities, error) { return sinks.Abilities{}, nil }

// running lets a term run, and ends it; the result is how long that took.
func running(t *testing.T, session *session, meanwhile func()) time.Duration {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); session.run(ctx) }()
	meanwhile()
	began := time.Now()
	stop()
	<-done
	return time.Since(began)
}

// Promise 3, if the repository does not decide between two writers: an agent works only if
// its configuration promises that it is alone.
func TestPromise3Lease(t *testing.T) {
	for name, c := range map[string]struct {
		lease, shared, works bool
	}{
		"lease, conditional puts":    {true, false, true},
		"lease, no conditional puts": {true, true, false},
		"no lease, conditional puts": {false, false, true},
		"neither":                    {false, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sink := memory()
				newShelf(t, sink)
				var s sinks.Sink = sink
				if c.shared {
					s = shared{sink}
				}
				text := verifier
				if !c.lease {
					text = strings.Replace(verifier, "repository: {", "repository: {lease: off, ", 1)
				}
				session := termOn(t, text, s)
				running(t, session, func() {
					time.Sleep(3 * time.Hour)
					problem := ""
					for _, p := range session.describe(time.Now()).Problems {
						if p.Kind == web.KindRepository {
							problem = p.Text
						}
					}
					if strings.Contains(problem, "repository.lease") == c.works {
						t.Errorf("the problem %q", problem)
					}
					if runs := count(t, sink, "jobs/"); (runs > 0) != c.works {
						t.Errorf("%d records of jobs", runs)
					}
				})
			})
		})
	}
}

// Promises 1 and 5: the repository is away at the start and in the middle, a job is
// under way, and the end comes within the grace time all the same.
func TestPromise5EndsWithinGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		place := sinktest.NewMemory()
		_, err := repository.Init(t.Context(), place, time.Now())
		must(t, err)
		sink := sinktest.NewFaulty(place, sinktest.Fail(sinktest.Open, 1, errors.New("away")), sinktest.Fail(sinktest.Open, 2, errors.New("away")))
		session := termOn(t, verifier, sink)
		log := &lines{}
		session.Logger = slog.New(slog.NewTextHandler(log, nil))
		took := running(t, session, func() {
			time.Sleep(time.Second)
			if s := session.describe(time.Now()); len(s.Problems) != 1 || s.Problems[0].Kind != web.KindRepository || s.Problems[0].Next == "" {
				t.Errorf("%+v", s.Problems)
			}
			time.Sleep(time.Minute)
			if s := session.describe(time.Now()); s.Repository.Listed.IsZero() || len(s.Problems) != 1 || s.Problems[0].Kind != web.KindRecoveryPoint {
				t.Errorf("it is back, and empty, which is no state to be ready in: listed %s, %+v", s.Repository.Listed, s.Problems)
			}
			sink.AllFired(t)
			// From now on nothing answers, until the context of a call ends.
			for _, op := range []sinktest.Op{sinktest.Create, sinktest.Commit, sinktest.Open, sinktest.Stat, sinktest.List, sinktest.Delete} {
				sink.Add(sinktest.Delay(op, 1, 1000*time.Hour).Always())
			}
			time.Sleep(2 * time.Hour) // the job merge is due
		})
		if took > Grace {
			t.Errorf("it took %s", took)
		}
		if n := log.count("repository cannot be reached yet"); n != 1 {
			t.Errorf("it was said %d times", n)
		}
		// Nobody writes any more.
		before := sink.Calls(sinktest.List) + sink.Calls(sinktest.Create)
		time.Sleep(24 * time.Hour)
		if after := sink.Calls(sinktest.List) + sink.Calls(sinktest.Create); after != before {
			t.Errorf("%d calls after the end", after-before)
		}
	})
}

// A verifier has nothing to store: where there is no repository, it makes none.
func TestVerifier_NoRepository_MakesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := memory()
		session := termOn(t, verifier, sink)
		running(t, session, func() {
			time.Sleep(time.Minute)
			if s := session.describe(time.Now()); len(s.Problems) != 1 || s.Problems[0].Kind != web.KindRepository {
				t.Errorf("%+v", s.Problems)
			}
			if n := count(t, sink, ""); n > 0 {
				t.Errorf("%d objects", n)
			}
		})
	})
}

// An agent that only reaches the cluster does not remember whether there was a repository: it
// makes none in place of a deleted one.
func TestAgent_NotArchiving_MakesNoRepository(t *testing.T) {
	sink := memory()
	session := termOn(t, strings.NewReplacer("member: {data-dir: /nowhere}\n", "", "archive: {spool-dir: /nowhere/spool}\n", "").Replace(beside), sink)
	require.ErrorIs(t, session.initRepository(t.Context()), repository.ErrNoRepository)
	require.Zero(t, count(t, sink, ""))
}

// What the agent costs while nothing happens.
func TestIdleRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := memory()
		s := newShelf(t, sink)
		s.full(timelineA, time.Now())
		text := strings.Replace(verifier, "divergence: {run: off}", "divergence: {run: off}, merge: {run: off}, checksum: {run: off}, structure: {run: off}, prune: {run: off}", 1)
		session := termOn(t, text, sink)
		running(t, session, func() {
			time.Sleep(time.Hour)
			lists, opens := sink.Calls(sinktest.List), sink.Calls(sinktest.Open)
			time.Sleep(24 * time.Hour)
			lists, opens = sink.Calls(sinktest.List)-lists, sink.Calls(sinktest.Open)-opens
			t.Logf("%d listings and %d reads in an idle day", lists, opens)
			if looks := 24 * 60 * 12; lists > 4000 || opens > looks+600 || lists == 0 {
				t.Errorf("%d listings and %d reads in an idle day", lists, opens)
			}
		})
	})
}

func count(t *testing.T, sink sinks.Sink, prefix string) (n int) {
	t.Helper()
	for _, err := range sink.List(t.Context(), prefix, "") {
		must(t, err)
		n++
	}
	return n
}
