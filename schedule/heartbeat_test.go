package schedule

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/schedule/web"
	"github.com/requorum/requorum/store/yamlfile"
	"github.com/requorum/requorum/walreplay/archive"
)

// beat runs a heartbeat in fake time.
func beat(t *testing.T, test func(*service, *pinged, *heartbeat)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, a := &service{}, newPinged()
		h := s.heartbeat(t, a)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			time.Sleep(time.Nanosecond) // of fake time: until the test has said how things are
			h.run(ctx)
			close(done)
		}()
		test(s, a, h)
		cancel()
		<-done
	})
}

// pass lets fake time pass, and what was due then happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Promise 1: a start, then a ping each minute, with a short body.
func TestHeartbeat(t *testing.T) {
	beat(t, func(s *service, a *pinged, h *heartbeat) {
		a.problems(warning("client.crt expires in 3 days"))
		pass(3*time.Minute + time.Second)
		wantPaths(t, s, "/start,,,,")
		all := s.all()
		if d := all[3].at.Sub(all[2].at); d != time.Minute {
			t.Errorf("%s between two pings", d)
		}
		if body := all[1].body; body != "m1, requorum 1.2.3\nnothing older than 3 s would be lost\nwarning: client.crt expires in 3 days" {
			t.Errorf("body %q", body)
		}
		if p, there := h.problem(); there {
			t.Errorf("a problem although all is delivered: %v", p)
		}
	})
}

// Promise 1: a failure is reported at once, and then once an hour; no success until
// it is over, and then at once.
func TestHeartbeatFails(t *testing.T) {
	beat(t, func(s *service, a *pinged, _ *heartbeat) {
		pass(90 * time.Second) // start, success at 0 and at 60
		a.problems(critical("the repository is away"))
		pass(5 * time.Second)
		wantPaths(t, s, "/start,,,/fail")
		if body := s.all()[3].body; body != "m1: the repository is away" {
			t.Errorf("body %q", body)
		}
		pass(2 * time.Hour)
		wantPaths(t, s, "/start,,,/fail,/fail,/fail")
		a.problems()
		pass(5 * time.Second)
		wantPaths(t, s, "/start,,,/fail,/fail,/fail,")
	})
}

// Promise 1: an agent that stands by or hangs sends nothing.
func TestHeartbeatOfTheWriterAlone(t *testing.T) {
	for name, change := range map[string]func(*pinged){
		"stands by":          func(a *pinged) { a.status.Writer = false },
		"has not looked yet": func(a *pinged) { a.status.Repository.Listed = time.Time{} },
		"archives, and has no role yet": func(a *pinged) {
			a.status.Writer, a.status.Archive = false, nil
		},
		"hangs": func(a *pinged) { a.frozen, a.status.Time = true, time.Now().Add(-time.Hour) },
		"fails, stands by": func(a *pinged) {
			a.status.Writer, a.status.Problems = false, []web.Problem{critical("x")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, a := &service{}, newPinged()
				a.change(change)
				h := s.heartbeat(t, a)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				h.run(ctx)
				wantPaths(t, s, "")
			})
		})
	}
}

// An agent that hangs later falls silent, and one that becomes the writer again
// says so.
func TestHeartbeatFallsSilent(t *testing.T) {
	beat(t, func(s *service, a *pinged, _ *heartbeat) {
		pass(time.Second)
		a.change(func(a *pinged) { a.frozen = true })
		pass(10 * time.Minute)
		before := s.paths()
		pass(time.Hour)
		wantPaths(t, s, before)
		a.change(func(a *pinged) { a.frozen, a.status.Writer = false, false })
		pass(time.Minute)
		wantPaths(t, s, before)
		a.change(func(a *pinged) { a.status.Writer = true })
		pass(time.Minute)
		if !strings.HasPrefix(s.paths(), before+",/start,") {
			t.Errorf("pings %q after %q", s.paths(), before)
		}
	})
}

// Who takes over anew reports a failure anew.
func TestHeartbeatFailsAnew(t *testing.T) {
	beat(t, func(s *service, a *pinged, _ *heartbeat) {
		a.problems(critical("x"))
		pass(10 * time.Second)
		a.change(func(a *pinged) { a.status.Writer = false })
		pass(time.Minute)
		a.change(func(a *pinged) { a.status.Writer = true })
		pass(10 * time.Second)
		if got := s.paths(); !strings.HasSuffix(got, "/start,/fail") || strings.Count(got, "/start") != 2 {
			t.Errorf("pings %q", got)
		}
	})
}

// Without an archive there is no writer: the agent pings like one.
func TestHeartbeatOfSnapshotsOnly(t *testing.T) {
	beat(t, func(s *service, a *pinged, _ *heartbeat) {
		a.change(func(a *pinged) { a.status.Archives, a.status.Archive, a.status.Writer = false, nil, false })
		pass(time.Second)
		wantPaths(t, s, "/start,")
	})
}

// A ping that fails is tried again, and is a problem until one arrives.
func TestHeartbeatNotDelivered(t *testing.T) {
	beat(t, func(s *service, _ *pinged, h *heartbeat) {
		pass(time.Second)
		s.set(func(string, string) (int, error) { return http.StatusBadGateway, nil })
		pass(2 * time.Minute)
		p, there := h.problem()
		if !there || p.Kind != web.KindHeartbeat || p.Severity != web.Warning || !strings.Contains(p.Text, "502") || p.Next == "" {
			t.Errorf("problem %v, %+v", there, p)
		}
		if n := len(s.all()); n < 3+2 || n > 20 {
			t.Errorf("%d requests in two minutes", n)
		}
		s.set(nil)
		pass(time.Minute)
		if p, there := h.problem(); there {
			t.Errorf("still a problem: %+v", p)
		}
	})
}

// A body is short, and whole characters.
func TestHeartbeatIsShort(t *testing.T) {
	beat(t, func(s *service, a *pinged, _ *heartbeat) {
		a.problems(critical(strings.Repeat("é", 1000)))
		pass(time.Second)
		wantPaths(t, s, "/start,/fail")
		body := s.all()[1].body
		if len(body) > pingLimit || !strings.HasPrefix(body, "m1: ") || !strings.HasSuffix(body, "…") {
			t.Errorf("%d bytes %q", len(body), body)
		}
	})
}

// secretIn finds parts of a URL in a text.
func secretIn(text string) string {
	for _, secret := range []string{"127.0.0.1", "localhost", "hunter2", "s3cr3t", "t0ken", "nowhere.invalid", "xn--"} {
		if strings.Contains(text, secret) {
			return secret
		}
	}
	return ""
}

// withSecrets adds to a server's address what must never be shown.
func withSecrets(base string) string {
	return strings.Replace(base, "://", "://user:hunter2@", 1) + "/s3cr3t?token=t0ken"
}

// Promise 2: whatever goes wrong, neither the problem nor the log has a part of
// the URL; and each fault has a reason of its own.
func TestSecretsAreNotShown(t *testing.T) {
	serve := func(h http.HandlerFunc) string {
		server := httptest.NewServer(h)
		t.Cleanup(server.Close)
		return server.URL
	}
	tls := httptest.NewUnstartedServer(http.NotFoundHandler())
	tls.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	tls.StartTLS()
	t.Cleanup(tls.Close)
	plain := serve(func(http.ResponseWriter, *http.Request) {})

	for name, test := range map[string]struct{ url, reason string }{
		"404":     {serve(http.NotFound), "404 Not Found"},
		"slow":    {serve(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), "deadline exceeded"},
		"refused": {"http://127.0.0.1:1", "connection refused"}, // a port that was free a moment ago may be taken
		"unknown": {"http://nowhere.invalid", "lookup its host"},
		"untrust": {tls.URL, "certificate"},
		"plain":   {strings.Replace(plain, "http:", "https:", 1), "HTTP response to HTTPS client"},
		"closes":  {serve(func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }), "EOF"},
		"redirect": {serve(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/t0ken", http.StatusTemporaryRedirect)
		}), "redirects are not followed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			h := heartbeatTo(t, withSecrets(test.url), newPinged(), slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
			if name == "slow" {
				h.config.Timeout = yamlfile.Duration(100 * time.Millisecond)
			}
			if err := h.post(t.Context(), h.url, ""); err != nil { // a ping does, three times
				h.note(err.Error())
			}
			p, there := h.problem()
			if !there || !strings.Contains(p.Text, test.reason) {
				if name == "unknown" && strings.Contains(p.Text, "deadline exceeded") {
					t.Skip("SKIPPED: the name server of this machine does not answer in time")
				}
				t.Errorf("problem %v, %q: want one with %q", there, p.Text, test.reason)
			}
			if log.Len() == 0 {
				t.Error("nothing is logged")
			}
			for _, text := range []string{p.Text, p.Next, log.String()} {
				if secret := secretIn(text); secret != "" {
					t.Errorf("%q is in %q", secret, text)
				}
			}
		})
	}
}

// A real server, end to end: paths below the URL keep its query and credentials.
func TestOverHTTP(t *testing.T) {
	got := make(chan string, 4)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		body, _ := io.ReadAll(r.Body)
		got <- fmt.Sprintf("%s %s %s:%s %s %s %s", r.Method, r.URL, user, password, r.Header.Get("Content-Type"), r.UserAgent(), body)
	}))
	defer server.Close()
	a := newPinged()
	h := heartbeatTo(t, withSecrets(server.URL), a, slog.New(slog.DiscardHandler))
	h.round(t.Context(), time.Now())
	a.problems(critical("x"))
	h.round(t.Context(), time.Now())
	for _, want := range []string{
		"POST /s3cr3t/start?token=t0ken user:hunter2 text/plain; charset=utf-8 requorum m1 begins to write the archive",
		"POST /s3cr3t?token=t0ken user:hunter2 text/plain; charset=utf-8 requorum m1, requorum 1.2.3\nnothing older than 3 s would be lost",
		"POST /s3cr3t/fail?token=t0ken user:hunter2 text/plain; charset=utf-8 requorum m1: x",
	} {
		if line := <-got; line != want {
			t.Errorf("%q, want %q", line, want)
		}
	}
}

// service is a receiver in memory, for fake time.
type service struct {
	mu       sync.Mutex
	answer   func(path, body string) (int, error) // nil: 200
	received []request
}

type request struct {
	at         time.Time
	path, body string
	ok         bool
}

func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	code := http.StatusOK
	if s.answer != nil {
		code, err = s.answer(r.URL.Path, string(body))
	}
	s.received = append(s.received, request{time.Now(), r.URL.Path, string(body), err == nil && code == http.StatusOK})
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader("OK")), Request: r}, nil
}

// set changes how it answers.
func (s *service) set(answer func(path, body string) (int, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// paths are the pings received, without what they have in common.
func (s *service) paths() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var paths []string
	for _, r := range s.received {
		paths = append(paths, strings.TrimPrefix(r.path, "/secret"))
	}
	return strings.Join(paths, ",")
}

func (s *service) all() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]request(nil), s.received...)
}

func (s *service) heartbeat(t *testing.T, a *pinged) *heartbeat {
	t.Helper()
	h := heartbeatTo(t, "https://ping.example/secret?token=hidden", a, slog.New(slog.DiscardHandler))
	h.client.Transport = s
	return h
}

func heartbeatTo(t *testing.T, url string, a *pinged, logger *slog.Logger) *heartbeat {
	t.Helper()
	h, err := newHeartbeat(url, config.Default().Heartbeat, logger, a.get)
	must(t, err)
	return h
}

// pinged is an agent whose Status a test changes.
type pinged struct {
	mu     sync.Mutex
	status web.Status
	frozen bool
}

func newPinged() *pinged {
	return &pinged{status: web.Status{
		Agent: "m1", Tool: "requorum 1.2.3", Time: time.Now(), Archives: true, Writer: true, Archive: &archive.State{},
		Cluster: web.Cluster{ID: "00000000000000aa"}, Repository: web.Repository{ID: "f00d", Listed: time.Now()},
		RPO: web.RPO{Text: "nothing older than 3 s would be lost"},
	}}
}

func (a *pinged) get() *web.Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.frozen {
		a.status.Time = time.Now()
	}
	s := a.status
	return &s
}

func (a *pinged) change(f func(*pinged)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f(a)
}

func (a *pinged) problems(problems ...web.Problem) {
	a.change(func(a *pinged) { a.status.Problems = problems })
}

func critical(text string) web.Problem {
	return web.Problem{Kind: web.KindRepository, Severity: web.Critical, Text: text}
}

func warning(text string) web.Problem {
	return web.Problem{Kind: web.KindCertificate, Severity: web.Warning, Text: text}
}

func wantPaths(t *testing.T, s *service, want string) {
	t.Helper()
	if got := s.paths(); got != want {
		t.Errorf("pings %q, want %q", got, want)
	}
}
