package sinktest

import (
	"errors"
	"fmt"
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
	"testing/iotest"

	"github.com/stretchr/testify/require"
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
	require.NoError(t, err)
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
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() }) // the kernel accepts
	return "http://" + l.Addr().String()
}

// ProxyFault is one line of a FaultProxy's script.
type ProxyFault struct {
	// Name stands in the message when the fault never fired.
	Name string
	// Match picks the requests; nil picks all.
	Match func(*http.Request) bool
	// Skip lets the first that match pass.
	Skip int
	// Times is how often it fires: 0 is once, negative is always.
	Times int
	Do    ProxyAction
}

// ProxyAction answers one request, with or without the server's help.
type ProxyAction func(w http.ResponseWriter, r *http.Request, server *httputil.ReverseProxy)

// IsPut matches PutObject of a key that ends in suffix.
func IsPut(suffix string) func(*http.Request) bool { return isObject("PUT", suffix, "partNumber") }

// IsGet matches GetObject of a key that ends in suffix.
func IsGet(suffix string) func(*http.Request) bool { return isObject("GET", suffix, "") }

// IsHead matches HeadObject of a key that ends in suffix.
func IsHead(suffix string) func(*http.Request) bool { return isObject("HEAD", suffix, "") }

// IsDelete matches DeleteObject of a key that ends in suffix; no abort.
func IsDelete(suffix string) func(*http.Request) bool { return isObject("DELETE", suffix, "uploadId") }

func isObject(method, suffix, without string) func(*http.Request) bool {
	return func(r *http.Request) bool {
		return r.Method == method && !r.URL.Query().Has(without) && strings.HasSuffix(r.URL.Path, suffix)
	}
}

// IsPart matches UploadPart.
func IsPart(r *http.Request) bool {
	return r.Method == http.MethodPut && r.URL.Query().Has("partNumber")
}

// IsComplete matches CompleteMultipartUpload.
func IsComplete(r *http.Request) bool {
	return r.Method == http.MethodPost && r.URL.Query().Has("uploadId")
}

// IsStart matches CreateMultipartUpload.
func IsStart(r *http.Request) bool {
	return r.Method == http.MethodPost && r.URL.Query().Has("uploads")
}

// IsList matches ListObjectsV2.
func IsList(r *http.Request) bool { return r.URL.Query().Get("list-type") == "2" }

// Refuse answers with an S3 error and asks no server: Refuse(503, "SlowDown").
func Refuse(status int, code string) ProxyAction {
	return func(w http.ResponseWriter, r *http.Request, _ *httputil.ReverseProxy) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		if r.Method != http.MethodHead {
			fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>injected</Message><RequestId>1</RequestId></Error>`, code)
		}
	}
}

// CutRequest breaks the connections to both sides after n bytes of the
// request's body.
func CutRequest(n int64) ProxyAction {
	return func(w http.ResponseWriter, r *http.Request, server *httputil.ReverseProxy) {
		r.Body = body{io.MultiReader(io.LimitReader(r.Body, n), iotest.ErrReader(errors.New("cut on purpose"))), r.Body}
		server.ServeHTTP(w, r)
		panic(http.ErrAbortHandler)
	}
}

// CutResponse breaks the connection to the client after n bytes of the
// answer's body.
func CutResponse(n int64) ProxyAction {
	return func(w http.ResponseWriter, r *http.Request, server *httputil.ReverseProxy) {
		server.ServeHTTP(&cutter{ResponseWriter: w, left: n}, r)
		panic(http.ErrAbortHandler)
	}
}

// Pass hands the request on unharmed.
func Pass(w http.ResponseWriter, r *http.Request, server *httputil.ReverseProxy) {
	server.ServeHTTP(w, r)
}

// Cut breaks the connection before the server hears of the request.
func Cut(http.ResponseWriter, *http.Request, *httputil.ReverseProxy) {
	panic(http.ErrAbortHandler)
}

// Hang does nothing until the client goes away.
func Hang(_ http.ResponseWriter, r *http.Request, _ *httputil.ReverseProxy) {
	io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
	panic(http.ErrAbortHandler)
}

// Before runs also first: a test's hook at a moment it cannot time otherwise.
func Before(then ProxyAction, also func()) ProxyAction {
	return func(w http.ResponseWriter, r *http.Request, server *httputil.ReverseProxy) {
		also()
		then(w, r, server)
	}
}

// Done lets the server do the work, and has something else for its answer: Done(Cut)
// loses it.
func Done(then ProxyAction) ProxyAction {
	return func(w http.ResponseWriter, r *http.Request, server *httputil.ReverseProxy) {
		server.ServeHTTP(httptest.NewRecorder(), r)
		then(w, r, server)
	}
}

// FlipRequest flips a bit of the request's body at offset.
func FlipRequest(offset int64) ProxyAction {
	return func(w http.ResponseWriter, r *http.Request, server *httputil.ReverseProxy) {
		r.Body = body{&flipper{r.Body, offset}, r.Body}
		server.ServeHTTP(w, r)
	}
}

// FlipResponse flips a bit of the answer's body at offset.
func FlipResponse(offset int64) ProxyAction {
	return Answer(func(resp *http.Response) { resp.Body = body{&flipper{resp.Body, offset}, resp.Body} })
}

// Answer changes the server's answer.
func Answer(change func(*http.Response)) ProxyAction {
	return func(w http.ResponseWriter, r *http.Request, server *httputil.ReverseProxy) {
		changing := *server
		changing.ModifyResponse = func(resp *http.Response) error { change(resp); return nil }
		changing.ServeHTTP(w, r)
	}
}

// body is a request's or an answer's, read through something.
type body struct {
	io.Reader
	io.Closer
}

// cutter passes on left bytes of an answer's body and breaks off.
type cutter struct {
	http.ResponseWriter
	left int64
}

func (c *cutter) Write(p []byte) (int, error) {
	if int64(len(p)) < c.left {
		c.left -= int64(len(p))
		return c.ResponseWriter.Write(p)
	}
	c.ResponseWriter.Write(p[:c.left])
	if f, ok := c.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
	panic(http.ErrAbortHandler)
}

type flipper struct {
	r  io.Reader
	at int64
}

func (f *flipper) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if f.at >= 0 && f.at < int64(n) {
		p[f.at] ^= 1
	}
	f.at -= int64(n)
	return n, err
}
