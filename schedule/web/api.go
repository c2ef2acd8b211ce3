// Package web is what an agent answers over HTTP, on one port: the
// status page, health, metrics, and a small JSON API (docs/api.md has every
// route). It promises:
//
//  1. Beyond loopback nothing is served in plain text, unless that is asked for
//     by name.
//  2. It only answers: nothing can be started or changed here. A page of another site
//     can read nothing: on loopback the Host header is checked (DNS rebinding), and no
//     answer may be read across origins.
//  3. Certificates and keys are read again at each handshake: a rotation needs no
//     restart, and one that is half done breaks nothing. Client CAs and the deny
//     file are read again at each request, and nobody is let in without them.
//  4. A client that is slow, or sends much, holds nothing for long.
package web

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
	"unicode"

	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay"
)

// api answers requests.
type api struct {
	status func() *Status
}

// New makes the handler of all routes. status returns what the agent knows now, and is
// called by several goroutines at once; metrics answers /metrics.
func New(status func() *Status, metrics http.Handler) http.Handler {
	a := &api{status}
	mux := http.NewServeMux()
	a.servePage(mux)
	mux.HandleFunc("GET /healthz", healthz)
	mux.HandleFunc("GET /readyz", a.readyz)
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /api/v1/status", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, status()) })
	mux.HandleFunc("GET /api/v1/backups", a.backups)
	mux.HandleFunc("GET /api/v1/jobs", a.jobs)
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", http.MethodGet)
			refuse(w, http.StatusMethodNotAllowed, "this port is read-only: run 'requorum backup', 'requorum verify' or 'requorum prune' by hand")
			return
		}
		refuse(w, http.StatusNotFound, "there is no "+r.Method+" "+r.URL.Path+": docs/api.md lists what there is")
	})
	return guard(mux)
}

// guard keeps pages of other sites away from h, see the package's second
// promise.
func guard(h http.Handler) http.Handler {
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
	r := a.status().Repository
	answer(w, http.StatusOK, Backups{r.Listed, r.Error, r.Backups, r.Ranges, r.Timelines, r.Timeline})
}

// Jobs is the answer of /api/v1/jobs.
type Jobs struct {
	Jobs []job.Status `json:"jobs"`
}

func (a *api) jobs(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, Jobs{a.status().Jobs})
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
	st := a.status()
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
