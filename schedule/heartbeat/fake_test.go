package heartbeat

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/requorum/requorum/schedule/status"
	"github.com/requorum/requorum/walreplay/archive"
)

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

func down(string, string) (int, error) { return 0, errors.New("down") }

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

func (s *service) options() Options {
	return Options{URL: "https://ping.example/secret?token=hidden", Client: &http.Client{Transport: s}}
}

// agent is an agent whose Status a test changes.
type agent struct {
	mu     sync.Mutex
	status status.Status
	frozen bool
}

func newAgent() *agent {
	return &agent{status: status.Status{
		Agent: "m1", Tool: "requorum 1.2.3", Time: time.Now(), Archives: true, Writer: true, Archive: &archive.State{},
		Cluster: status.Cluster{ID: "00000000000000aa"}, Repository: status.Repository{ID: "f00d", Listed: time.Now()},
		RPO: status.RPO{Text: "nothing older than 3 s would be lost"},
	}}
}

func (a *agent) get() *status.Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.frozen {
		a.status.Time = time.Now()
	}
	s := a.status
	return &s
}

func (a *agent) change(f func(*agent)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f(a)
}

func (a *agent) problems(problems ...status.Problem) {
	a.change(func(a *agent) { a.status.Problems = problems })
}

func critical(text string) status.Problem {
	return status.Problem{Kind: status.KindRepository, Severity: status.Critical, Text: text}
}

func warning(text string) status.Problem {
	return status.Problem{Kind: status.KindCertificate, Severity: status.Warning, Text: text}
}

func wantPaths(t *testing.T, s *service, want string) {
	t.Helper()
	if got := s.paths(); got != want {
		t.Errorf("pings %q, want %q", got, want)
	}
}
