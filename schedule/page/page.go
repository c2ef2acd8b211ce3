package page

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the page is in the binary
	"encoding/base64"
	"html/template"
	"net/http"
	"strings"

	"github.com/requorum/requorum/schedule/status"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

//go:embed refresh.js
var refreshJS []byte

//go:embed icon.svg
var iconSVG []byte

// Paths below which the page is served: itself, and what it fetches.
const (
	Path       = "/"
	ScriptPath = "/refresh.js"
	IconPath   = "/icon.svg"
)

// Handler serves the page of what get tells at each request, its script and its
// icon. It is for GET only; any other path is not found. Where get gives nil the
// agent has only just started, and the page says so.
func Handler(get func() *status.Status) http.Handler {
	page := template.Must(template.New("page.html").Funcs(words()).Parse(pageHTML))
	policy := policy()
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Path+"{$}", func(w http.ResponseWriter, _ *http.Request) {
		// Made whole before the first byte goes out: half a page looks like one.
		var out bytes.Buffer
		if err := page.Execute(&out, newView(get())); err != nil {
			http.Error(w, "the status page cannot be made: "+err.Error(), http.StatusInternalServerError)
			return
		}
		header(w, "text/html; charset=utf-8", policy)
		_, _ = w.Write(out.Bytes()) // the browser has gone
	})
	mux.HandleFunc("GET "+ScriptPath, func(w http.ResponseWriter, _ *http.Request) {
		header(w, "text/javascript; charset=utf-8", policy)
		_, _ = w.Write(refreshJS)
	})
	mux.HandleFunc("GET "+IconPath, func(w http.ResponseWriter, _ *http.Request) {
		header(w, "image/svg+xml", policy)
		_, _ = w.Write(iconSVG)
	})
	return mux
}

func header(w http.ResponseWriter, kind, policy string) {
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Security-Policy", policy)
	// A script of yesterday's version must not meet today's page, nor a cache
	// keep names of members.
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// policy is the Content-Security-Policy: scripts and requests of this origin
// only, no inline script at all, and the one style sheet by its hash.
func policy() string {
	sum := sha256.Sum256([]byte(pageCSS))
	return strings.Join([]string{
		"default-src 'none'",
		"script-src 'self'",
		"style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'",
		"img-src 'self'",
		"connect-src 'self'",
		"base-uri 'none'",
		"form-action 'none'",
		"frame-ancestors 'none'",
	}, "; ")
}
