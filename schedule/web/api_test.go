package web

import (
	"context"
	"encoding/json"
	"errors"
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

func demandDone(context.Context, string, json.RawMessage) (string, error) { return "new", nil }

// ask sends a request with headers as "Name: value" lines.
func ask(t *testing.T, h http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = "localhost:2390"
	if method == http.MethodPost { // as over the socket
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.UnixAddr{Name: "/run/x", Net: "unix"}))
	}
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

const typeJSON = "Content-Type: application/json"

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
		h := New(Options{Status: statusOf(c.st)})
		if w := ask(t, h, "GET", "/readyz", ""); w.Code != c.code || w.Body.String() != c.says {
			t.Errorf("%s: %d %q, want %d %q", c.name, w.Code, w.Body, c.code, c.says)
		}
		// That something is wrong is no reason to restart the agent.
		if w := ask(t, h, "GET", "/healthz", ""); w.Code != 200 || w.Body.String() != "ok\n" {
			t.Errorf("%s: healthz %d %q", c.name, w.Code, w.Body)
		}
	}
}

func TestReading(t *testing.T) {
	h := New(Options{Status: statusOf(known()), Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "up 1") })})
	for path, want := range map[string]string{
		"/api/v1/status":  `"agent": "etcd-1"`,
		"/api/v1/jobs":    `"slot": "good"`,
		"/api/v1/backups": `"backups":`,
		"/metrics":        "up 1",
		"/":               "<!doctype html>",
		"/refresh.js":     "fetch(",
	} {
		w := ask(t, h, "GET", path, "")
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
	if w := ask(t, h, "GET", "/api/v1/nothing", ""); w.Code != 404 || !strings.Contains(w.Body.String(), "docs/api.md") {
		t.Errorf("unknown route: %d %s", w.Code, w.Body)
	}
	for _, path := range []string{"/api/v1/status", "/api/v1/jobs", "/api/v1/backups", "/api/v1/jobs/full", "/api/v1/jobs/full/x"} {
		w := ask(t, h, "DELETE", path, "")
		if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") == "" {
			t.Errorf("DELETE %s: %d %v", path, w.Code, w.Header())
		}
	}
	h = New(Options{Status: statusOf(known())})
	if w := ask(t, h, "GET", "/metrics", ""); w.Code != 404 {
		t.Errorf("metrics without any: %d", w.Code)
	}
}

func TestDemand(t *testing.T) {
	var name, args string
	var fails error
	h := patient(Options{Status: statusOf(known()), Trigger: func(_ context.Context, j string, a json.RawMessage) (string, error) {
		name, args = j, string(a)
		return "20261121T120000Z-demand-0a1b2c", fails
	}, Run: func(_ context.Context, _, slot string) (*job.Run, error) {
		return &job.Run{Slot: slot, Agent: "etcd-1", Phase: "waiting"}, nil
	}})
	w := ask(t, h, "POST", "/api/v1/jobs/full", `{"read-back": true}`, "Content-Type: application/json; charset=utf-8")
	var got Run
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 202 || got.Slot != "20261121T120000Z-demand-0a1b2c" || got.State != Pending || name != "full" || args != `{"read-back": true}` {
		t.Fatalf("%d %s; job %q %q", w.Code, w.Body, name, args)
	}
	// It is pending until it has begun.
	w = ask(t, h, "GET", w.Header().Get("Location"), "")
	if w.Code != 200 || !strings.Contains(w.Body.String(), `"state": "pending"`) {
		t.Errorf("the run that was asked for: %d %s", w.Code, w.Body)
	}
	if w = ask(t, h, "POST", "/api/v1/jobs/full", " \n", typeJSON); w.Code != 202 || args != "{}" {
		t.Errorf("no arguments: %d %s, %q", w.Code, w.Body, args)
	}
	for code, err := range map[int]error{
		404: fmt.Errorf("backup: %w", ErrUnknownJob),
		409: fmt.Errorf("full: %w: it runs already", ErrRefused),
		400: fmt.Errorf("full: %w: read-bak", ErrArguments),
		500: errors.New("the repository is away"),
	} {
		fails = err
		if w := ask(t, h, "POST", "/api/v1/jobs/full", "{}", typeJSON); w.Code != code || !strings.Contains(w.Body.String(), err.Error()) {
			t.Errorf("%v: %d %s", err, w.Code, w.Body)
		}
	}
}

// patient is New by a clock on which each request comes long after the last.
func patient(o Options) http.Handler {
	at := noon
	return newAPI(o, func() time.Time { at = at.Add(leastInterval); return at })
}

func TestRun(t *testing.T) {
	h := New(Options{Status: statusOf(known()), Run: func(_ context.Context, _, slot string) (*job.Run, error) {
		switch slot {
		case "waits":
			return &job.Run{Slot: slot}, nil
		case "now":
			return &job.Run{Slot: slot, Started: noon}, nil
		case "good":
			return &job.Run{Slot: slot, Started: noon, Finished: noon, OK: true}, nil
		case "bad":
			return &job.Run{Slot: slot, Started: noon, Finished: noon}, nil
		case "away":
			return nil, errors.New("the repository is away")
		}
		return nil, nil
	}})
	for slot, want := range map[string]string{
		"waits": "200 pending", "now": "200 running", "good": "200 succeeded", "bad": "200 failed", "none": "404 ", "away": "500 ",
	} {
		w := ask(t, h, "GET", "/api/v1/jobs/full/"+slot, "")
		var got Run
		_ = json.Unmarshal(w.Body.Bytes(), &got)
		if s := fmt.Sprint(w.Code, " ", got.State); s != want {
			t.Errorf("%s: %s, want %s: %s", slot, s, want, w.Body)
		}
	}
}

// TestNoOtherSite (promise 2): a page of another site, also one whose name
// resolves to 127.0.0.1, reads nothing and starts nothing.
func TestNoOtherSite(t *testing.T) {
	started := 0
	h := New(Options{Status: statusOf(known()), Trigger: func(context.Context, string, json.RawMessage) (string, error) {
		started++
		return "x", nil
	}})
	for _, host := range []string{"localhost", "localhost:2390", "LOCALHOST.:1", "127.0.0.1:2390", "127.0.0.9", "[::1]:2390", "[::1]", "[::ffff:127.0.0.1]:1"} {
		if w := ask(t, h, "GET", "/api/v1/status", "", "Host: "+host); w.Code != 200 {
			t.Errorf("Host %s: %d", host, w.Code)
		}
	}
	for _, host := range []string{"evil.example", "evil.example:2390", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1:2390", "", "localhost:2390:evil"} {
		for _, path := range []string{"/", "/api/v1/status", "/metrics", "/readyz"} {
			if w := ask(t, h, "GET", path, "", "Host: "+host); w.Code != http.StatusMisdirectedRequest || strings.Contains(w.Body.String(), "etcd-1") {
				t.Errorf("Host %q, %s: %d", host, path, w.Code)
			}
		}
	}
	for name, headers := range map[string][]string{
		"a form":               {"Content-Type: application/x-www-form-urlencoded"},
		"text":                 {"Content-Type: text/plain"},
		"no type":              {},
		"cross-site":           {typeJSON, "Sec-Fetch-Site: cross-site"},
		"same-site":            {typeJSON, "Sec-Fetch-Site: same-site"},
		"another origin":       {typeJSON, "Origin: http://evil.example"},
		"another port's page":  {typeJSON, "Origin: http://localhost:9999"},
		"a rebound name":       {typeJSON, "Host: evil.example:2390", "Origin: http://evil.example:2390"},
		"a file that was sent": {typeJSON, "Origin: null"},
	} {
		if w := ask(t, h, "POST", "/api/v1/jobs/full", "{}", headers...); w.Code < 400 || started > 0 {
			t.Errorf("%s started a job: %d %s", name, w.Code, w.Body)
		}
	}
	if w := ask(t, h, "POST", "/api/v1/jobs/full", "{}", typeJSON, "Origin: http://localhost:2390"); w.Code != 202 || started != 1 {
		t.Errorf("our own page: %d %s", w.Code, w.Body)
	}
}

// TestHostBeyondLoopback: there any name may be ours.
func TestHostBeyondLoopback(t *testing.T) {
	h := New(Options{Status: statusOf(known())})
	r := httptest.NewRequest(http.MethodGet, "/api/v1/status", nil)
	r.Host = "etcd-1.example:2390"
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 2390}))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestBodies: what is not a JSON object, or large, is refused (promise 4).
func TestBodies(t *testing.T) {
	h := patient(Options{Status: statusOf(known()), Trigger: demandDone})
	for body, code := range map[string]int{
		"{}": 202, `{"a": {"b": [1]}}`: 202, "": 202,
		"null": 400, "[]": 400, `"x"`: 400, "{": 400, "{} {}": 400, "7": 400,
		`{"a": "` + strings.Repeat("x", bodyLimit) + `"}`: 413,
	} {
		if w := ask(t, h, "POST", "/api/v1/jobs/full", body, typeJSON); w.Code != code {
			t.Errorf("%.20s: %d %s, want %d", body, w.Code, w.Body, code)
		}
	}
}

func read(t *testing.T, r *http.Response) string {
	t.Helper()
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return string(body)
}

// TestLeastInterval: however often a job is asked for, it is started once in a
// while; others are not held up by it, and what was refused does not count.
func TestLeastInterval(t *testing.T) {
	at, started, refused := noon, map[string]int{}, error(nil)
	h := newAPI(Options{Status: statusOf(known()), Trigger: func(_ context.Context, job string, _ json.RawMessage) (string, error) {
		if refused == nil {
			started[job]++
		}
		return "x", refused
	}}, func() time.Time { return at })
	for range 60 { // 15 seconds
		ask(t, h, "POST", "/api/v1/jobs/full", "{}", typeJSON)
		at = at.Add(250 * time.Millisecond)
	}
	w := ask(t, h, "POST", "/api/v1/jobs/full", "{}", typeJSON)
	if started["full"] != 2 || w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "6" {
		t.Errorf("started %d times in 15 s; then %d, to be asked again after %q s", started["full"], w.Code, w.Header().Get("Retry-After"))
	}
	refused = ErrRefused
	ask(t, h, "POST", "/api/v1/jobs/prune", "{}", typeJSON)
	refused = nil
	if w := ask(t, h, "POST", "/api/v1/jobs/prune", "{}", typeJSON); w.Code != http.StatusAccepted {
		t.Errorf("another job: %d %s", w.Code, w.Body)
	}
}
