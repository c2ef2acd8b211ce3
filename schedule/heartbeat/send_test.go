package heartbeat

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

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

// Promise 3: whatever goes wrong, neither the problem nor the log has a part of
// the URL; and each fault has a reason of its own.
func TestSecretsAreNotShown(t *testing.T) {
	slow := make(chan struct{})
	defer close(slow)
	serve := func(h http.HandlerFunc) string {
		server := httptest.NewServer(h)
		t.Cleanup(server.Close)
		return server.URL
	}
	tls := httptest.NewUnstartedServer(http.NotFoundHandler())
	tls.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	tls.StartTLS()
	t.Cleanup(tls.Close)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := "http://" + closed.Addr().String()
	closed.Close()
	plain := serve(func(http.ResponseWriter, *http.Request) {})

	for name, test := range map[string]struct{ url, reason string }{
		"404":     {serve(http.NotFound), "404 Not Found"},
		"slow":    {serve(func(_ http.ResponseWriter, r *http.Request) { <-slow }), "no answer within"},
		"refused": {refused, "connection refused"},
		"unknown": {"http://nowhere.invalid", "cannot be resolved"},
		"untrust": {tls.URL, "certificate is not accepted"},
		"plain":   {strings.Replace(plain, "http:", "https:", 1), "does not speak TLS"},
		"closes":  {serve(func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }), "closed the connection"},
		"redirect": {serve(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://localhost/t0ken", http.StatusTemporaryRedirect)
		}), "redirects to another host"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			timeout := 10 * time.Second
			if name == "slow" {
				timeout = 100 * time.Millisecond
			}
			o := Options{URL: withSecrets(test.url), Timeout: timeout, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
			w, err := NewWebhook(o, newAgent().get)
			if err != nil {
				t.Fatal(err)
			}
			w.queue = []Event{{Time: time.Now()}}
			w.deliver(t.Context())
			p, there := w.Problem()
			if !there || !strings.Contains(p.Text, test.reason) {
				if name == "unknown" && strings.Contains(p.Text, "no answer within") {
					t.Skip("SKIPPED: the name server of this machine does not answer in time")
				}
				t.Errorf("problem %v, %q: want one with %q", there, p.Text, test.reason)
			}
			if log.Len() == 0 {
				t.Error("nothing is logged")
			}
			for _, text := range []string{p.Text, p.Next, log.String(), fmt.Sprintf("%v %+v %#v", o, o, o), o.LogValue().String()} {
				if secret := secretIn(text); secret != "" {
					t.Errorf("%q is in %q", secret, text)
				}
			}
		})
	}
}

// Options that cannot be honoured are errors, without the URL.
func TestOptions(t *testing.T) {
	for _, o := range []Options{
		{}, {URL: "s3cr3t"}, {URL: "ftp://hunter2/"}, {URL: "https:///s3cr3t"}, {URL: "https://s3cr3t:x y/"},
		{URL: "https://ping.example/", Every: -1}, {URL: "https://ping.example/", Timeout: -1},
	} {
		_, pingErr := New(o, nil)
		_, hookErr := NewWebhook(o, nil)
		for _, err := range []error{pingErr, hookErr} {
			if err == nil {
				t.Errorf("%+v is accepted", o.URL)
			} else if secret := secretIn(err.Error()); secret != "" {
				t.Errorf("%q is in %q", secret, err)
			}
		}
	}
}

// Promise 3: what is sent goes to no other host; a redirect within the host is
// followed, with what was posted, and not for ever.
func TestRedirects(t *testing.T) {
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	var arrived atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/here":
			http.Redirect(w, r, "/there", http.StatusPermanentRedirect)
		case "/other":
			http.Redirect(w, r, strings.Replace(other.URL, "127.0.0.1", "localhost", 1), http.StatusTemporaryRedirect)
		case "/get":
			http.Redirect(w, r, "/there", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusTemporaryRedirect)
		case "/there":
			body, _ := io.ReadAll(r.Body)
			arrived.Store(r.Method + " " + string(body))
		}
	}))
	defer server.Close()
	for path, want := range map[string]error{"/here": nil, "/other": errOtherHost, "/get": errMethod, "/loop": errRedirects} {
		o, u, err := Options{URL: server.URL + path}.check("test")
		if err != nil {
			t.Fatal(err)
		}
		if got := newSender(o).post(t.Context(), u, "text/plain", []byte("body")); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
	if elsewhere.Load() != 0 {
		t.Error("the other host was asked")
	}
	if arrived.Load() != "POST body" {
		t.Errorf("%v arrived", arrived.Load())
	}
	secure, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://a/", nil)
	plain, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://a/", nil)
	if err := checkRedirect(plain, []*http.Request{secure}); err != errDowngrade {
		t.Errorf("https to http: %v", err)
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
	h, err := New(Options{URL: withSecrets(server.URL)}, newAgent().get)
	if err != nil {
		t.Fatal(err)
	}
	h.Once(t.Context(), func(context.Context) (int, string) { return 0, "done" })
	for _, want := range []string{
		"POST /s3cr3t/start?token=t0ken user:hunter2 text/plain; charset=utf-8 requorum ",
		"POST /s3cr3t/0?token=t0ken user:hunter2 text/plain; charset=utf-8 requorum done",
	} {
		if line := <-got; line != want {
			t.Errorf("%q, want %q", line, want)
		}
	}
}
