package heartbeat

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/requorum/requorum/schedule/status"
)

// beat runs a heartbeat in fake time.
func beat(t *testing.T, test func(*service, *agent, *Heartbeat)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, a := &service{}, newAgent()
		h, err := New(s.options(), a.get)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- h.Run(ctx) }()
		test(s, a, h)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("it ends with %v", err)
		}
	})
}

// wait lets fake time pass, and what was due then happen.
func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Promise 1: a start, then a ping each minute, with a short body.
func TestHeartbeat(t *testing.T) {
	beat(t, func(s *service, a *agent, h *Heartbeat) {
		a.problems(warning("client.crt expires in 3 days"))
		wait(3*time.Minute + time.Second)
		wantPaths(t, s, "/start,,,,")
		all := s.all()
		if d := all[3].at.Sub(all[2].at); d != time.Minute {
			t.Errorf("%s between two pings", d)
		}
		if body := all[1].body; body != "m1, requorum 1.2.3\nnothing older than 3 s would be lost\nwarning: client.crt expires in 3 days" {
			t.Errorf("body %q", body)
		}
		if p, there := h.Problem(); there {
			t.Errorf("a problem although all is delivered: %v", p)
		}
	})
}

// Promise 1: a failure is told at once, and then once an hour; no success until
// it is over, and then at once.
func TestHeartbeatFails(t *testing.T) {
	beat(t, func(s *service, a *agent, _ *Heartbeat) {
		wait(90 * time.Second) // start, success at 0 and at 60
		a.problems(critical("the repository is away"))
		wait(5 * time.Second)
		wantPaths(t, s, "/start,,,/fail")
		if body := s.all()[3].body; body != "m1: the repository is away" {
			t.Errorf("body %q", body)
		}
		wait(2 * time.Hour)
		wantPaths(t, s, "/start,,,/fail,/fail,/fail")
		a.problems()
		wait(5 * time.Second)
		wantPaths(t, s, "/start,,,/fail,/fail,/fail,")
	})
}

// Promise 1: who stands by, waits or hangs sends nothing.
func TestHeartbeatOfTheWriterAlone(t *testing.T) {
	for name, change := range map[string]func(*agent){
		"stands by":          func(a *agent) { a.status.Writer = false },
		"waits":              func(a *agent) { a.status.Writer, a.status.Waiting = false, "m2 is the named writer" },
		"has not looked yet": func(a *agent) { a.status.Repository.Listed = time.Time{} },
		"archives, and has no role yet": func(a *agent) {
			a.status.Writer, a.status.Archive = false, nil
		},
		"waits, no archive": func(a *agent) {
			a.status.Writer, a.status.Archive, a.status.Waiting = false, nil, "m2 is the named writer"
		},
		"hangs": func(a *agent) { a.frozen, a.status.Time = true, time.Now().Add(-time.Hour) },
		"fails, stands by": func(a *agent) {
			a.status.Writer, a.status.Problems = false, []status.Problem{critical("x")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, a := &service{}, newAgent()
				a.change(change)
				h, err := New(s.options(), a.get)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				if err := h.Run(ctx); err != nil {
					t.Error(err)
				}
				wantPaths(t, s, "")
			})
		})
	}
}

// An agent that hangs later falls silent, and one that becomes the writer again
// says so.
func TestHeartbeatFallsSilent(t *testing.T) {
	beat(t, func(s *service, a *agent, _ *Heartbeat) {
		wait(time.Second)
		a.change(func(a *agent) { a.frozen = true })
		wait(10 * time.Minute)
		before := s.paths()
		wait(time.Hour)
		wantPaths(t, s, before)
		a.change(func(a *agent) { a.frozen, a.status.Writer = false, false })
		wait(time.Minute)
		wantPaths(t, s, before)
		a.change(func(a *agent) { a.status.Writer = true })
		wait(time.Minute)
		if !strings.HasPrefix(s.paths(), before+",/start,") {
			t.Errorf("pings %q after %q", s.paths(), before)
		}
	})
}

// Who takes over anew tells of a failure anew.
func TestHeartbeatFailsAnew(t *testing.T) {
	beat(t, func(s *service, a *agent, _ *Heartbeat) {
		a.problems(critical("x"))
		wait(10 * time.Second)
		a.change(func(a *agent) { a.status.Writer = false })
		wait(time.Minute)
		a.change(func(a *agent) { a.status.Writer = true })
		wait(10 * time.Second)
		if got := s.paths(); !strings.HasSuffix(got, "/start,/fail") || strings.Count(got, "/start") != 2 {
			t.Errorf("pings %q", got)
		}
	})
}

// Without an archive there is no writer: the agent pings like one.
func TestHeartbeatOfSnapshotsOnly(t *testing.T) {
	beat(t, func(s *service, a *agent, _ *Heartbeat) {
		a.change(func(a *agent) { a.status.Archives, a.status.Archive, a.status.Writer = false, nil, false })
		wait(time.Second)
		wantPaths(t, s, "/start,")
	})
}

// A ping that fails is tried again, and is a problem until one arrives.
func TestHeartbeatNotDelivered(t *testing.T) {
	beat(t, func(s *service, _ *agent, h *Heartbeat) {
		wait(time.Second)
		s.set(func(string, string) (int, error) { return http.StatusBadGateway, nil })
		wait(2 * time.Minute)
		p, there := h.Problem()
		if !there || p.Kind != status.KindHeartbeat || p.Severity != status.Warning || !strings.Contains(p.Text, "502") || p.Next == "" {
			t.Errorf("problem %v, %+v", there, p)
		}
		if n := len(s.all()); n < 3+2 || n > 20 {
			t.Errorf("%d requests in two minutes", n)
		}
		s.set(nil)
		wait(time.Minute)
		if p, there := h.Problem(); there {
			t.Errorf("still a problem: %+v", p)
		}
	})
}

// A single run: start, and the exit status with its text, also when it was ended.
func TestHeartbeatOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		h, err := New(s.options(), newAgent().get)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		exit := h.Once(ctx, func(context.Context) (int, string) {
			cancel()
			return 3, "damaged" + strings.Repeat("é", 1000)
		})
		wantPaths(t, s, "/start,/3")
		body := s.all()[1].body
		if exit != 3 || len(body) > bodyLimit || !strings.HasPrefix(body, "damaged") || !strings.HasSuffix(body, "…") {
			t.Errorf("status %d, %d bytes %q", exit, len(body), body)
		}
	})
}
