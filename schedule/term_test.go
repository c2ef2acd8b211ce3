package schedule

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/requorum/requorum/schedule/web"
	"github.com/requorum/requorum/sinks"
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

// Promise 3, where the repository does not decide between two writers: the one that
// the configuration names works, the others say why they wait, and write nothing.
func TestPromise3OneWriter(t *testing.T) {
	for name, c := range map[string]struct{ writer, text string }{
		"nobody is named":  {"", ""},
		"this one":         {"v1", ""},
		"another one":      {"v2", "repository.writer names agent v2"},
		"nobody, excluded": {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sink := memory()
				var s sinks.Sink = shared{sink}
				if name == "nobody, excluded" {
					s = sink
				}
				text := verifier
				if c.writer != "" {
					text = strings.Replace(verifier, "repository: {", "repository: {writer: "+c.writer+", ", 1)
				}
				session := termOn(t, text, s)
				running(t, session, func() {
					time.Sleep(3 * time.Hour)
					st := session.describe(time.Now())
					refused := name == "nobody is named"
					if (st.Waiting != "") != (c.text != "") || !strings.Contains(st.Waiting, c.text) {
						t.Errorf("waiting %q", st.Waiting)
					}
					problem := ""
					for _, p := range st.Problems {
						if p.Kind == web.KindRepository {
							problem = p.Text
						}
					}
					if strings.Contains(problem, "repository.writer") != refused {
						t.Errorf("the problem %q", problem)
					}
					_, err := session.trigger(t.Context(), jobPrune, "", nil)
					if works := c.writer == "v1" || name == "nobody, excluded"; (err == nil) != works || err != nil && !errors.Is(err, web.ErrRefused) {
						t.Errorf("a job: %v", err)
					} else if claims := count(t, sink, "claims/"); (claims > 0) != works {
						t.Errorf("%d claims", claims)
					}
				})
			})
		})
	}
}

// The archive of an agent that is not the writer stands by, also while it is not
// known yet whether the repository decides.
func TestArchiveOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := strings.Replace(beside, "repository: {", "repository: {writer: m2, ", 1)
		sink := sinktest.NewFaulty(sinktest.NewMemory(), sinktest.Fail(sinktest.Open, 1, errors.New("away")))
		session := termOn(t, text, shared{sink})
		answer := make(chan bool, 1)
		go func() { answer <- session.mayNotWrite(t.Context()) }()
		time.Sleep(time.Minute)
		select {
		case may := <-answer:
			t.Fatalf("it is reported before it is known: %v", may)
		default:
		}
		must(t, session.openRepository(t.Context()))
		sink.AllFired(t)
		if !<-answer {
			t.Error("two would write")
		}
		session = termOn(t, text, memory())
		must(t, session.openRepository(t.Context()))
		if session.mayNotWrite(t.Context()) {
			t.Error("with conditional puts all archive, and one writes")
		}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if !termOn(t, text, shared{sink}).mayNotWrite(ctx) {
			t.Error("at the end it would write")
		}
	})
}

// Promises 1 and 5: the repository is away at the start and in the middle, a job is
// under way, and the end comes within the grace time all the same.
func TestPromise5EndsWithinGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := sinktest.NewFaulty(sinktest.NewMemory(), sinktest.Fail(sinktest.Open, 1, errors.New("away")), sinktest.Fail(sinktest.Open, 2, errors.New("away")))
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
			if _, err := session.trigger(t.Context(), jobPrune, "", nil); err != nil {
				t.Error(err)
			}
			time.Sleep(10 * time.Minute)
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

// What the agent costs while nothing happens.
func TestIdleRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := memory()
		s := newShelf(t, sink)
		s.full(timelineA, time.Now(), false)
		text := strings.Replace(verifier, "divergence: {run: off}", "divergence: {run: off}, merge: {run: off}, checksum: {run: off}, structure: {run: off}, prune: {run: off}", 1)
		session := termOn(t, text, sink)
		running(t, session, func() {
			time.Sleep(time.Hour)
			lists, opens := sink.Calls(sinktest.List), sink.Calls(sinktest.Open)
			time.Sleep(24 * time.Hour)
			lists, opens = sink.Calls(sinktest.List)-lists, sink.Calls(sinktest.Open)-opens
			t.Logf("%d listings and %d reads in an idle day", lists, opens)
			if lists > 4000 || opens > 600 || lists == 0 {
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
