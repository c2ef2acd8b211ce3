package heartbeat

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/requorum/requorum/schedule/status"
)

func hook(t *testing.T, test func(*service, *agent, *Webhook)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, a := &service{}, newAgent()
		w, err := NewWebhook(s.options(), a.get)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		test(s, a, w)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("it ends with %v", err)
		}
	})
}

// events are those that arrived.
func events(t *testing.T, s *service) (events []Event) {
	t.Helper()
	for _, r := range s.all() {
		if !r.ok {
			continue
		}
		var e Event
		if err := json.Unmarshal([]byte(r.body), &e); err != nil {
			t.Fatalf("%q: %v", r.body, err)
		}
		events = append(events, e)
	}
	return events
}

func words(events []Event) string {
	var all []string
	for _, e := range events {
		all = append(all, fmt.Sprintf("%d %s %s", e.Sequence, e.Event, e.Kind))
	}
	return strings.Join(all, ", ")
}

func wantEvents(t *testing.T, s *service, want string) {
	t.Helper()
	if got := words(events(t, s)); got != want {
		t.Errorf("events %q, want %q", got, want)
	}
}

// Failure and recovery of one problem: one event each, whatever numbers are in
// its text, with one key.
func TestWebhook(t *testing.T) {
	hook(t, func(s *service, a *agent, _ *Webhook) {
		wait(time.Minute)
		wantEvents(t, s, "")
		for i := range 20 {
			a.problems(critical(fmt.Sprintf("nothing is stored for %s (%d segments wait)", time.Duration(i)*31*time.Second, i)))
			wait(31 * time.Second)
		}
		wantEvents(t, s, "1 failure repository-away")
		a.problems()
		wait(time.Minute)
		wantEvents(t, s, "1 failure repository-away, 2 recovery repository-away")
		got := events(t, s)
		if got[0].Key != got[1].Key || len(got[0].Key) != 16 || got[0].Ready || !got[1].Ready || got[0].Agent != "m1" || got[0].Repo != "f00d" || got[0].Cluster != "00000000000000aa" {
			t.Errorf("%+v", got)
		}
	})
}

// The key is the same when the IDs become known in between, and for another agent.
func TestWebhookKey(t *testing.T) {
	var keys []string
	for _, name := range []string{"m1", "m2"} {
		hook(t, func(s *service, a *agent, _ *Webhook) {
			a.change(func(a *agent) {
				a.status.Agent, a.status.Cluster.ID, a.status.Repository.ID, a.status.Repository.URL = name, "", "", "s3://backups/etcd"
				a.status.Problems = []status.Problem{critical("one")}
			})
			wait(time.Minute)
			a.change(func(a *agent) {
				a.status.Cluster.ID, a.status.Repository.ID, a.status.Problems = "00000000000000aa", "f00d", nil
			})
			wait(time.Minute)
			for _, e := range events(t, s) {
				keys = append(keys, e.Key)
			}
		})
	}
	if len(keys) != 4 || keys[0] != keys[1] || keys[0] != keys[2] || keys[0] != keys[3] {
		t.Errorf("keys %v", keys)
	}
}

// What comes and goes is one problem; what becomes critical is told again; two
// of one kind are two.
func TestWebhookEdges(t *testing.T) {
	hook(t, func(s *service, a *agent, _ *Webhook) {
		for range 10 {
			a.problems(warning("/a.crt expires"))
			wait(10 * time.Second)
			a.problems()
			wait(10 * time.Second)
		}
		wantEvents(t, s, "1 failure certificate")
		worse := warning("/a.crt expires")
		worse.Severity = status.Critical
		a.problems(worse, warning("/b.crt expires"))
		wait(time.Minute)
		wantEvents(t, s, "1 failure certificate, 2 failure certificate, 3 failure certificate")
		if e := events(t, s); e[1].Key != e[0].Key || e[2].Key == e[0].Key {
			t.Errorf("keys %s, %s, %s", e[0].Key, e[1].Key, e[2].Key)
		}
		a.problems(worse)
		wait(time.Minute)
		if e := events(t, s); len(e) != 4 || e[3].Event != Recovery || e[3].Key != e[2].Key || e[3].Ready {
			t.Errorf("events %q", words(e))
		}
	})
}

// Promise 2: the receiver away for half an hour; then all arrives, in order.
func TestWebhookInOrder(t *testing.T) {
	hook(t, func(s *service, a *agent, w *Webhook) {
		s.set(down)
		a.problems(critical("one"))
		wait(5 * time.Minute)
		a.problems(critical("two"))
		wait(25 * time.Minute)
		p, there := w.Problem()
		if !there {
			t.Error("nothing arrives, and that is no problem")
		}
		for _, secret := range []string{"ping.example", "secret", "hidden"} {
			if strings.Contains(p.Text, secret) {
				t.Errorf("%q is in %q", secret, p.Text)
			}
		}
		if n := len(s.all()); n < 10 || n > 60 {
			t.Errorf("%d attempts in half an hour", n)
		}
		s.set(nil)
		wait(2 * time.Minute)
		e := events(t, s)
		if words(e) != "1 failure repository-away, 2 failure repository-away, 3 recovery repository-away" || e[2].Text != "one" {
			t.Errorf("events %q", words(e))
		}
		if p, there := w.Problem(); there {
			t.Errorf("still a problem: %+v", p)
		}
	})
}

// Promise 2: dropped after an hour, or beyond the bound, or where it is refused,
// with a problem that stays until something arrives.
func TestWebhookDrops(t *testing.T) {
	t.Run("old", func(t *testing.T) {
		hook(t, func(s *service, a *agent, w *Webhook) {
			s.set(down)
			a.problems(critical("one"))
			wait(2 * time.Hour)
			p, there := w.Problem()
			if !there || !strings.Contains(p.Text, "dropped: 1") {
				t.Errorf("%v, %+v", there, p)
			}
			s.set(nil)
			a.problems(critical("one"), warning("two"))
			wait(2 * time.Minute)
			wantEvents(t, s, "2 failure certificate")
		})
	})
	t.Run("many", func(t *testing.T) {
		hook(t, func(s *service, a *agent, w *Webhook) {
			s.set(down)
			var many []status.Problem
			for i := range eventLimit + 7 {
				many = append(many, warning(fmt.Sprintf("file-%d is odd", i)))
			}
			a.problems(many...)
			wait(time.Minute)
			if p, _ := w.Problem(); !strings.Contains(p.Text, "dropped: 7") {
				t.Errorf("%+v", p)
			}
			s.set(nil)
			wait(2 * time.Minute)
			if e := events(t, s); len(e) != eventLimit || e[0].Sequence != 8 {
				t.Errorf("%d events, the first is %d", len(e), e[0].Sequence)
			}
		})
	})
	t.Run("refused", func(t *testing.T) {
		hook(t, func(s *service, a *agent, w *Webhook) {
			s.set(func(_, body string) (int, error) {
				if strings.Contains(body, "poison") {
					return http.StatusUnprocessableEntity, nil
				}
				return http.StatusOK, nil
			})
			a.problems(critical("poison"))
			wait(time.Minute)
			if p, there := w.Problem(); !there || !strings.Contains(p.Text, "422") {
				t.Errorf("%v, %+v", there, p)
			}
			a.problems(critical("poison"), warning("two"))
			wait(time.Minute)
			wantEvents(t, s, "2 failure certificate")
			if len(s.all()) != 2 {
				t.Errorf("%d requests: one that is refused is sent once", len(s.all()))
			}
		})
	})
}

// The webhook does not tell that it cannot be told, but that pings do not arrive.
func TestWebhookOfItself(t *testing.T) {
	hook(t, func(s *service, a *agent, w *Webhook) {
		s.set(down)
		a.problems(critical("one"))
		wait(time.Minute)
		own, there := w.Problem()
		if !there {
			t.Fatal("no problem")
		}
		ping := trouble{what: "the heartbeat", logger: slog.New(slog.DiscardHandler)}
		ping.failed("x")
		other, _ := ping.problem()
		a.problems(critical("one"), own, other)
		wait(time.Minute)
		s.set(nil)
		wait(2 * time.Minute)
		wantEvents(t, s, "1 failure repository-away, 2 failure heartbeat")
	})
}

// The end takes a moment for what is still to be told, and no more.
func TestWebhookEnds(t *testing.T) {
	var s *service
	hook(t, func(service *service, a *agent, _ *Webhook) {
		s = service
		wait(time.Second)
		a.problems(critical("one"))
	})
	wantEvents(t, s, "1 failure repository-away")

	synctest.Test(t, func(t *testing.T) {
		a := newAgent()
		a.problems(critical("one"))
		// A receiver that never answers.
		o := Options{URL: "https://ping.example/secret", Client: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})}}
		w, err := NewWebhook(o, a.get)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > time.Minute+lastWords {
			t.Errorf("it ends after %s", took)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Texts that are one problem, and texts that are not.
func TestPattern(t *testing.T) {
	for _, same := range [][2]string{
		{"63 s behind", "2 minutes behind"}, {"59 minutes", "1 hour 3 minutes"}, {"(12 KiB of 2 GiB)", "(1 MiB of 2 GiB)"},
		{"since 2026-11-21T10:00:00Z, 3 of 5", "since 2026-11-22T10:00:00Z, 4 of 5"}, {"1m3s late", "59s late"},
	} {
		if pattern(same[0]) != pattern(same[1]) {
			t.Errorf("%q and %q are told apart: %q, %q", same[0], same[1], pattern(same[0]), pattern(same[1]))
		}
	}
	for _, other := range [][2]string{{"m1 is away", "m2 is away"}, {"/a1.crt expires in 3 days", "/a2.crt expires in 3 days"}, {"a", "b"}} {
		if pattern(other[0]) == pattern(other[1]) {
			t.Errorf("%q and %q are one", other[0], other[1])
		}
	}
}

// The JSON document, as docs/json.md has it.
func TestEventJSON(t *testing.T) {
	at := time.Date(2026, time.November, 21, 10, 0, 0, 0, time.UTC)
	got, err := json.Marshal(Event{
		Event: Failure, Sequence: 7, Time: at, Agent: "m1", Cluster: "00000000000000aa", Repo: "f00d", Key: "0123456789abcdef",
		Kind: status.KindRepository, Severity: status.Critical, Since: at, Text: "t", Next: "n", Until: at,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"event":"failure","sequence":7,"time":"2026-11-21T10:00:00Z","agent":"m1","cluster_id":"00000000000000aa","repository_id":"f00d","key":"0123456789abcdef","kind":"repository-away","severity":"critical","since":"2026-11-21T10:00:00Z","text":"t","next":"n","ready":false,"recoverable_until":"2026-11-21T10:00:00Z"}`
	if !bytes.Equal(got, []byte(want)) {
		t.Errorf("%s", got)
	}
}
