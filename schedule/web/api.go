// Package web is what an agent says and is asked over HTTP, on one port: the
// status page, health, metrics, and a small JSON API (docs/api.md has every
// route). It promises:
//
//  1. Beyond loopback nothing is served in plain text, unless that is asked for
//     by name.
//  2. A page of another site can neither read nor start anything here: on
//     loopback the Host header is checked (DNS rebinding), and no answer may be
//     read across origins. Jobs are started over a unix socket, by root and this
//     process's own user, and each once in a while.
//  3. Certificates and keys are read again at each handshake: a rotation needs no
//     restart, and one that is half done breaks nothing. Client CAs and the deny
//     file are read again at each request, and nobody is let in without them.
//  4. A client that is slow, or sends much, holds nothing for long.
package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay"
)

// What Options.Trigger fails with, so that a client hears whose turn it is. It
// wraps one of them; any other error counts as the agent's own failure.
var (
	// ErrUnknownJob: there is no job of that name. Answered 404.
	ErrUnknownJob = errors.New("no such job")
	// ErrRefused: the job does not run here or not now, such as while it runs
	// already. Answered 409.
	ErrRefused = errors.New("refused")
	// ErrArguments: the body asks for what the job does not know. Answered 400.
	ErrArguments = errors.New("wrong arguments")
)

// Options are what the API needs of the agent. Status and Trigger are called by
// several goroutines at once.
type Options struct {
	// Status is what the agent knows now.
	Status func() *Status
	// Trigger starts a job outside its schedule, and names the slot of the run. It is
	// called for requests that came over ListenSocket alone. It doesn't wait for it. args is a JSON object, {} where none was sent. See the
	// errors above for those that a client can do something about.
	Trigger func(ctx context.Context, job string, args json.RawMessage) (slot string, err error)
	// Run looks up a run, however it stands; nil and no error where there is none.
	Run func(ctx context.Context, job, slot string) (*job.Run, error)
	// Metrics answers /metrics; nil means that there are none.
	Metrics http.Handler
	// Logger hears of every job that is started; nil is silent.
	Logger *slog.Logger
}

// api answers requests.
type api struct {
	Options
	now func() time.Time

	starting sync.Mutex
	started  map[string]time.Time // when a job was last started here
}

// New makes the handler of all routes.
func New(o Options) http.Handler {
	return newAPI(o, time.Now)
}

func newAPI(o Options, now func() time.Time) http.Handler {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	a := &api{Options: o, now: now, started: map[string]time.Time{}}
	mux := http.NewServeMux()
	a.servePage(mux)

	mux.HandleFunc("GET /healthz", healthz)
	mux.HandleFunc("GET /readyz", a.readyz)
	if o.Metrics != nil {
		mux.Handle("GET /metrics", o.Metrics)
	}

	for _, r := range []struct {
		method, path string
		answer       http.HandlerFunc
	}{
		{http.MethodGet, "/api/v1/status", a.status},
		{http.MethodGet, "/api/v1/backups", a.backups},
		{http.MethodGet, "/api/v1/jobs", a.jobs},
		{http.MethodPost, "/api/v1/jobs/{job}", a.trigger},
		{http.MethodGet, "/api/v1/jobs/{job}/{slot}", a.run},
	} {
		mux.HandleFunc(r.method+" "+r.path, r.answer)
		mux.HandleFunc(r.path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Allow", r.method)
			refuse(w, http.StatusMethodNotAllowed, "this is for "+r.method+" only")
		})
	}
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, "there is no "+r.Method+" "+r.URL.Path+": docs/api.md lists what there is")
	})
	return guard(mux)
}

// guard keeps pages of other sites away from h, see the package's second
// promise.
func guard(h http.Handler) http.Handler {
	sameOrigin := http.NewCrossOriginProtection()
	sameOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusForbidden, "refused: the request comes from a page of another site")
	}))
	h = sameOrigin.Handler(h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		// A script of yesterday's version must not meet today's page, nor a cache
		// keep names of members.
		header.Set("Cache-Control", "no-store")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		if overLoopback(r) && !local(r.Host) {
			refuse(w, http.StatusMisdirectedRequest, "refused: over loopback this agent answers to localhost, 127.0.0.1 and [::1] only, not to the name in the request's Host header")
			return
		}
		h.ServeHTTP(w, r)
	})
}

// overLoopback says that r came in on a loopback address: from this host, and
// perhaps from its browser. Where that is not known it is taken for one.
func overLoopback(r *http.Request) bool {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return true
	}
	at, err := netip.ParseAddrPort(addr.String())
	return err != nil || at.Addr().Unmap().IsLoopback()
}

// local says that a Host header names this host without the help of any DNS. A
// site that made its own name resolve to 127.0.0.1 is still called by that name.
func local(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// answer sends v as JSON.
func answer(w http.ResponseWriter, code int, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		code, body = http.StatusInternalServerError, []byte(`{"error": "the answer cannot be written as JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n')) // the client has gone
}

// refuse says why not.
func refuse(w http.ResponseWriter, code int, why string) {
	answer(w, code, struct {
		Error string `json:"error"`
	}{why})
}

// oneLine keeps what others wrote from looking like lines of ours.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}

func (a *api) status(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, a.Status()) }

// Backups is the answer of /api/v1/backups: the part of the status that says
// what is stored, and what can be restored.
type Backups struct {
	Listed    time.Time             `json:"listed,omitzero"`
	Error     string                `json:"error,omitempty"`
	Backups   []Backup              `json:"backups"`
	Ranges    []walreplay.Range     `json:"ranges"`
	Timelines []repository.Timeline `json:"timelines"`
	Timeline  repository.TimelineID `json:"timeline,omitzero"`
}

func (a *api) backups(w http.ResponseWriter, _ *http.Request) {
	r := a.Status().Repository
	answer(w, http.StatusOK, Backups{r.Listed, r.Error, r.Backups, r.Ranges, r.Timelines, r.Timeline})
}

// Jobs is the answer of /api/v1/jobs.
type Jobs struct {
	Jobs []job.Status `json:"jobs"`
}

func (a *api) jobs(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, Jobs{a.Status().Jobs})
}

// leastInterval lies between two starts of a job that are asked for.
const leastInterval = 10 * time.Second

// bodyLimit bounds what a request may send.
const bodyLimit = 64 << 10

// States of a run.
const (
	Pending   = "pending" // asked for here, and not begun yet
	Running   = "running"
	Succeeded = "succeeded"
	Failed    = "failed"
)

// Run is the answer about one run of a job.
type Run struct {
	Job   string `json:"job"`
	Slot  string `json:"slot"`
	State string `json:"state"` // pending, running, succeeded, failed
	// Run is what is known of it; nil while it is pending.
	Run *job.Run `json:"run,omitempty"`
}

func (a *api) trigger(w http.ResponseWriter, r *http.Request) {
	job := r.PathValue("job")
	if _, ok := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr); !ok {
		refuse(w, http.StatusForbidden, "this port is read-only: jobs are started over the unix socket of listen.socket, by root and by the agent's own user")
		return
	}
	args, code, err := arguments(w, r)
	if err != nil {
		refuse(w, code, err.Error())
		return
	}
	// Two requests at once would both be in time.
	a.starting.Lock()
	defer a.starting.Unlock()
	if wait := a.started[job].Add(leastInterval).Sub(a.now()); wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
		refuse(w, http.StatusTooManyRequests, fmt.Sprintf("%s was asked for less than %s ago: try again in %s", job, leastInterval, wait.Round(time.Second)))
		return
	}
	slot, err := a.Trigger(r.Context(), job, args)
	if err != nil {
		refuse(w, codeOf(err), err.Error())
		return
	}
	a.started[job] = a.now() // of jobs that there are: Trigger knows them
	a.Logger.Info("job started through the API", slog.String("job", job), slog.String("slot", slot))
	w.Header().Set("Location", "/api/v1/jobs/"+job+"/"+slot)
	answer(w, http.StatusAccepted, Run{Job: job, Slot: slot, State: Pending})
}

// arguments reads the body: a JSON object, or nothing. The content type is one
// that a form or a script of another site cannot send unasked.
func arguments(w http.ResponseWriter, r *http.Request) (json.RawMessage, int, error) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return nil, http.StatusUnsupportedMediaType, errors.New("a job is started by a request with Content-Type: application/json")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyLimit))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("the body is larger than %d bytes", bodyLimit)
	case err != nil:
		return nil, http.StatusBadRequest, fmt.Errorf("the body cannot be read: %w", err)
	}
	if strings.TrimSpace(string(body)) == "" {
		return json.RawMessage("{}"), 0, nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(body, &object); err != nil || object == nil {
		return nil, http.StatusBadRequest, errors.New(`the body is not a JSON object, such as {}`)
	}
	return body, 0, nil
}

func codeOf(err error) int {
	switch {
	case errors.Is(err, ErrUnknownJob):
		return http.StatusNotFound
	case errors.Is(err, ErrRefused):
		return http.StatusConflict
	case errors.Is(err, ErrArguments):
		return http.StatusBadRequest
	default:
		return http.StatusInternalServerError
	}
}

func (a *api) run(w http.ResponseWriter, r *http.Request) {
	job, slot := r.PathValue("job"), r.PathValue("slot")
	run, err := a.Run(r.Context(), job, slot)
	if err != nil {
		refuse(w, codeOf(err), err.Error())
		return
	}
	got := Run{Job: job, Slot: slot, Run: run}
	switch {
	case run == nil:
		refuse(w, http.StatusNotFound, fmt.Sprintf("no run of job %q with slot %q is known: GET /api/v1/jobs shows the newest", job, slot))
		return
	case run.Started.IsZero():
		got.State, got.Run = Pending, nil
	case run.Finished.IsZero():
		got.State = Running
	case run.OK:
		got.State = Succeeded
	default:
		got.State = Failed
	}
	answer(w, http.StatusOK, got)
}

// healthz says that the process answers. It looks at nothing else: an agent
// that is restarted because the repository is away helps nobody.
func healthz(w http.ResponseWriter, _ *http.Request) {
	text(w, http.StatusOK)
	fmt.Fprintln(w, "ok")
}

// readyz reports whether what is promised holds, and otherwise why not: one
// critical problem a line, with what to do.
func (a *api) readyz(w http.ResponseWriter, _ *http.Request) {
	st := a.Status()
	if st.Repository.Listed.IsZero() && len(st.Problems) == 0 {
		text(w, http.StatusServiceUnavailable)
		fmt.Fprintln(w, "starting: the cluster and the repository have not been looked at yet")
		return
	}
	if ready, _ := st.Ready(); ready {
		text(w, http.StatusOK)
		fmt.Fprintln(w, "ok")
		return
	}
	text(w, http.StatusServiceUnavailable)
	for _, p := range st.Problems {
		if p.Severity != Critical {
			continue
		}
		line := p.Kind + ": " + p.Text
		if p.Next != "" {
			line += " Next: " + p.Next
		}
		fmt.Fprintln(w, oneLine(line))
	}
}

func text(w http.ResponseWriter, code int) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
}
