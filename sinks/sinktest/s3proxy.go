package sinktest

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// FaultProxy is a real HTTP proxy before an S3 server that does to requests
// what its script says: throttles, cuts connections, loses answers, flips bits.
// Signatures stay valid, because the Host that the client signed is handed on.
type FaultProxy struct {
	// Endpoint is where clients connect.
	Endpoint string

	proxy *httputil.ReverseProxy
	mu    sync.Mutex
	armed []*armedProxyFault
	seen  []string
}

type armedProxyFault struct {
	ProxyFault
	matched, fired int
}

// NewFaultProxy starts a proxy before target (an S3Server's http Endpoint). It
// ends with the test.
func NewFaultProxy(t testing.TB, target string, script ...ProxyFault) *FaultProxy {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	p := &FaultProxy{proxy: &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(u)
			r.Out.Host = r.In.Host
		},
		// What is cut on purpose is no news.
		ErrorLog:     log.New(io.Discard, "", 0),
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		Transport:    &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 32},
	}}
	p.Add(script...)
	server := httptest.NewUnstartedServer(p)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	p.Endpoint = server.URL
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		p.proxy.Transport.(*http.Transport).CloseIdleConnections()
	})
	return p
}

// Add appends to the script.
func (p *FaultProxy) Add(script ...ProxyFault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range script {
		p.armed = append(p.armed, &armedProxyFault{ProxyFault: f})
	}
}

// Clear drops the script, so that what follows passes.
func (p *FaultProxy) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = nil
}

// AllFired fails the test unless each fault of the script fired.
func (p *FaultProxy) AllFired(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.armed {
		if f.fired == 0 {
			t.Errorf("the fault %q never fired; requests seen:\n%s", f.Name, strings.Join(p.seen, "\n"))
		}
	}
}

// Requests are "METHOD path?query" of what came by, in order.
func (p *FaultProxy) Requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.seen)
}

// Count says how many requests came by that match.
func (p *FaultProxy) Count(match func(method, uri string) bool) int {
	n := 0
	for _, r := range p.Requests() {
		method, uri, _ := strings.Cut(r, " ")
		if match(method, uri) {
			n++
		}
	}
	return n
}

func (p *FaultProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if do := p.strike(r); do != nil {
		do(w, r, p.proxy)
		return
	}
	p.proxy.ServeHTTP(w, r)
}

// strike notes the request and returns what the script has for it.
func (p *FaultProxy) strike(r *http.Request) ProxyAction {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, r.Method+" "+r.URL.RequestURI())
	for _, f := range p.armed {
		if f.Match != nil && !f.Match(r) {
			continue
		}
		f.matched++
		if f.matched <= f.Skip || (f.Times >= 0 && f.fired >= max(f.Times, 1)) {
			continue
		}
		f.fired++
		return f.Do
	}
	return nil
}

// Black is an address that accepts connections and never answers: what a
// firewall that drops packets looks like from within a connection.
func Black(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var held []net.Conn
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			held = append(held, c)
			mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		time.Sleep(time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		for _, c := range held {
			c.Close()
		}
	})
	return "http://" + l.Addr().String()
}
