package web

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/schedule/job"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func known() *Status {
	return &Status{
		Time: noon, Agent: "etcd-1", Repository: Repository{Listed: noon},
		Jobs: []job.Status{{
			Name:        "full",
			Running:     &job.Run{Slot: "now", Started: noon, Done: 1, Total: 2},
			Last:        &job.Run{Slot: "bad", Finished: noon, Text: "no"},
			LastSuccess: &job.Run{Slot: "good", Finished: noon, OK: true},
			LastFailure: &job.Run{Slot: "bad", Finished: noon, Text: "no"},
		}},
	}
}

func statusOf(st *Status) func() *Status { return func() *Status { return st } }

// newHandler is New without metrics.
func newHandler(st *Status) http.Handler { return New(statusOf(st), http.NotFoundHandler()) }

// ask sends a request with headers as "Name: value" lines.
func ask(t *testing.T, h http.Handler, method, path string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, path, nil)
	r.Host = "localhost:2390"
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestHealthAndReadiness(t *testing.T) {
	bad := known()
	bad.Problems = []Problem{
		{Kind: "late", Severity: Warning, Text: "soon"},
		{Kind: "gap", Severity: Critical, Text: "12 entries are missing.\nready: ok", Next: "Take a full snapshot."},
		{Kind: "verify", Severity: Critical, Text: "damaged."},
	}
	warned := known()
	warned.Problems = bad.Problems[:1]
	for _, c := range []struct {
		name string
		st   *Status
		code int
		says string
	}{
		{"nothing listed yet", &Status{}, 503, "starting: the cluster and the repository have not been looked at yet\n"},
		{"in order", known(), 200, "ok\n"},
		{"a warning", warned, 200, "ok\n"},
		{"critical", bad, 503, "gap: 12 entries are missing. ready: ok Next: Take a full snapshot.\nverify: damaged.\n"},
	} {
		h := newHandler(c.st)
		if w := ask(t, h, "GET", "/readyz"); w.Code != c.code || w.Body.String() != c.says {
			t.Errorf("%s: %d %q, want %d %q", c.name, w.Code, w.Body, c.code, c.says)
		}
		// That something is wrong is no reason to restart the agent.
		if w := ask(t, h, "GET", "/healthz"); w.Code != 200 || w.Body.String() != "ok\n" {
			t.Errorf("%s: healthz %d %q", c.name, w.Code, w.Body)
		}
	}
}

func TestReading(t *testing.T) {
	h := New(statusOf(known()), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "up 1") }))
	for path, want := range map[string]string{
		"/api/v1/status":  `"agent": "etcd-1"`,
		"/api/v1/jobs":    `"slot": "good"`,
		"/api/v1/backups": `"backups":`,
		"/metrics":        "up 1",
		"/":               "<!doctype html>",
		"/refresh.js":     "fetch(",
	} {
		w := ask(t, h, "GET", path)
		if w.Code != 200 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
		if strings.HasPrefix(path, "/api/") && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s: not JSON: %s", path, w.Body)
		}
		for _, name := range []string{"Content-Security-Policy", "X-Content-Type-Options", "Cross-Origin-Resource-Policy"} {
			if w.Header().Get(name) == "" {
				t.Errorf("%s: no %s", path, name)
			}
		}
		if w.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s may be read across origins", path)
		}
	}
	if w := ask(t, h, "GET", "/api/v1/nothing"); w.Code != 404 || !strings.Contains(w.Body.String(), "docs/api.md") {
		t.Errorf("unknown route: %d %s", w.Code, w.Body)
	}
	for _, method := range []string{"DELETE", "POST"} {
		for _, path := range []string{"/api/v1/status", "/api/v1/jobs", "/api/v1/backups", "/api/v1/jobs/full"} {
			w := ask(t, h, method, path)
			if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET" || !strings.Contains(w.Body.String(), "requorum backup") {
				t.Errorf("%s %s: %d %v %s", method, path, w.Code, w.Header(), w.Body)
			}
		}
	}
}

// TestNoOtherSite (promise 2): a page of another site, also one whose name
// resolves to 127.0.0.1, reads nothing.
func TestNoOtherSite(t *testing.T) {
	h := newHandler(known())
	for _, host := range []string{"localhost", "localhost:2390", "LOCALHOST.:1", "127.0.0.1:2390", "127.0.0.9", "[::1]:2390", "[::1]", "[::ffff:127.0.0.1]:1"} {
		if w := ask(t, h, "GET", "/api/v1/status", "Host: "+host); w.Code != 200 {
			t.Errorf("Host %s: %d", host, w.Code)
		}
	}
	for _, host := range []string{"evil.example", "evil.example:2390", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1:2390", "", "localhost:2390:evil"} {
		for _, path := range []string{"/", "/api/v1/status", "/metrics", "/readyz"} {
			if w := ask(t, h, "GET", path, "Host: "+host); w.Code != http.StatusMisdirectedRequest || strings.Contains(w.Body.String(), "etcd-1") {
				t.Errorf("Host %q, %s: %d", host, path, w.Code)
			}
		}
	}
}

// TestHostBeyondLoopback: there any name may be ours.
func TestHostBeyondLoopback(t *testing.T) {
	h := newHandler(known())
	r := httptest.NewRequest(http.MethodGet, "/api/v1/status", nil)
	r.Host = "etcd-1.example:2390"
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 2390}))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func read(t *testing.T, r *http.Response) string {
	t.Helper()
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return string(body)
}
