package web

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/requorum/requorum/schedule/config"
)

// Listen binds the address of a checked configuration, and reads its files. The
// caller closes the listener, which Serve does.
func Listen(ctx context.Context, c config.Listen) (net.Listener, error) {
	k := &keys{config: c}
	if c.Cert != "" {
		if err := k.check(); err != nil {
			return nil, err
		}
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", c.Address)
	if err != nil || c.Cert == "" {
		if err != nil {
			err = fmt.Errorf("listen on %s: %w: another process may have the port; name another one in listen.address", c.Address, err)
		}
		return ln, err
	}
	return tls.NewListener(ln, &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: k.forClient,
	}), nil
}

// keys are the listener's certificate and client CAs, read from their files
// whenever somebody connects or asks.
type keys struct {
	config config.Listen

	mu   sync.Mutex
	last *tls.Certificate // that could be read
}

// forClient gives what the files hold now. While the server's own certificate and
// key cannot be read or do not belong together, as in the middle of a rotation,
// what they held before goes on; it is checked by its own dates at the other end.
// Without client CAs nobody is let in.
func (k *keys) forClient(*tls.ClientHelloInfo) (*tls.Config, error) {
	pair, err := k.pair()
	k.mu.Lock()
	if err == nil {
		k.last = pair
	}
	pair = k.last
	k.mu.Unlock()
	if pair == nil {
		return nil, err
	}
	c := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{*pair},
		NextProtos:   []string{"http/1.1"},
		// Each handshake has a configuration of its own, with keys of its own for
		// tickets: nobody could use one.
		SessionTicketsDisabled: true,
	}
	if k.config.ClientCA == "" {
		return c, nil
	}
	if c.ClientCAs, err = k.clientCAs(); err != nil {
		return nil, err
	}
	c.ClientAuth = tls.RequireAndVerifyClientCert
	c.VerifyConnection = func(s tls.ConnectionState) error { return k.denied(s.PeerCertificates) }
	return c, nil
}

func (k *keys) pair() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(k.config.Cert, k.config.Key)
	if err != nil {
		return nil, fmt.Errorf("listen: certificate %s with key %s: %w", k.config.Cert, k.config.Key, err)
	}
	return &pair, nil
}

func (k *keys) clientCAs() (*x509.CertPool, error) {
	pem, err := os.ReadFile(k.config.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("listen: client CAs: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("listen: client CAs: %s has no certificate in PEM", k.config.ClientCA)
	}
	return pool, nil
}

// denied fails where a client's certificate is in the deny file, or that cannot be
// read.
func (k *keys) denied(chain []*x509.Certificate) error {
	if k.config.DenyFile == "" {
		return nil
	}
	list, err := fingerprints(k.config.DenyFile)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(chain[0].Raw)
	if slices.Contains(list, sum) {
		return fmt.Errorf("listen: the client certificate of %q is in %s", chain[0].Subject, k.config.DenyFile)
	}
	return nil
}

// fingerprints reads one SHA-256 a line, as `openssl x509 -fingerprint -sha256`
// prints it; # begins a comment.
func fingerprints(path string) (list [][sha256.Size]byte, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("listen: denied certificates: %w", err)
	}
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		text, _, _ := strings.Cut(line, "#")
		if _, after, ok := strings.Cut(text, "="); ok {
			text = after
		}
		if text = strings.ReplaceAll(strings.TrimSpace(text), ":", ""); text == "" {
			continue
		}
		sum, err := hex.DecodeString(text)
		if err != nil || len(sum) != sha256.Size {
			return nil, fmt.Errorf("listen: denied certificates: %s, line %d: want a SHA-256 fingerprint, as openssl x509 -noout -fingerprint -sha256 prints it", path, number)
		}
		list = append(list, [sha256.Size]byte(sum))
	}
	return list, nil
}

// verify reports whether a client would still be let in: over a connection that was
// made before a CA was replaced, too.
func (k *keys) verify(s *tls.ConnectionState) error {
	if s == nil || len(s.PeerCertificates) == 0 {
		return errors.New("listen: the client has shown no certificate")
	}
	pool, err := k.clientCAs()
	if err != nil {
		return err
	}
	between := x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		between.AddCert(c)
	}
	if _, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: pool, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		return fmt.Errorf("listen: client certificate of %q: %w", s.PeerCertificates[0].Subject, err)
	}
	return k.denied(s.PeerCertificates)
}

// Current lets only those requests through to h whose client certificate the files
// of c still allow, at this moment; a connection of another one is closed. Without
// client CAs it is h itself.
func Current(c config.Listen, h http.Handler, logger *slog.Logger) http.Handler {
	if c.ClientCA == "" {
		return h
	}
	k := &keys{config: c}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := k.verify(r.TLS); err != nil {
			logger.Warn("a client is refused", "client", r.RemoteAddr, "error", err)
			w.Header().Set("Connection", "close")
			refuse(w, http.StatusForbidden, "refused: this client certificate is not valid here any more, or the agent cannot read its client CAs")
			return
		}
		h.ServeHTTP(w, r)
	})
}

// check reads all files once: what a rotation that begins now goes back to.
func (k *keys) check() error {
	pair, err := k.pair()
	k.last = pair
	var cas, deny error
	if k.config.ClientCA != "" {
		_, cas = k.clientCAs()
	}
	if k.config.DenyFile != "" {
		_, deny = fingerprints(k.config.DenyFile)
	}
	return errors.Join(err, cas, deny)
}

const (
	headerTimeout = 5 * time.Second  // a client that says nothing
	readTimeout   = 15 * time.Second // bodies are small
	writeTimeout  = 30 * time.Second
	idleTimeout   = 2 * time.Minute // longer than scrapers wait between two questions
	// farewell is what requests under way have when the agent ends: less than a
	// supervisor waits.
	farewell = 3 * time.Second

	headerLimit = 16 << 10
	// mostConnections are open at once: whoever reaches the port could use up the
	// agent's memory and its descriptors.
	mostConnections = 256
)

// connections closes the one that is open the longest where there are too many: who
// holds many keeps nobody else out.
type connections struct {
	mu    sync.Mutex
	count uint64
	open  map[net.Conn]uint64
}

func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if state == http.StateClosed {
		delete(c.open, conn)
	}
	if state != http.StateNew {
		return
	}
	c.count++
	c.open[conn] = c.count
	if len(c.open) <= mostConnections {
		return
	}
	oldest := conn
	for other, number := range c.open {
		if number < c.open[oldest] {
			oldest = other
		}
	}
	delete(c.open, oldest)
	if t, is := oldest.(*tls.Conn); is {
		oldest = t.NetConn() // without a farewell, which could take long
	}
	_ = oldest.Close() // its handler hears of it
}

// Serve answers with h on ln until ctx ends, and closes ln. Requests under way
// then have 3 seconds. It fails only where ln does. logger hears of broken
// handshakes and the like, at level Debug: anybody could cause them.
func Serve(ctx context.Context, ln net.Listener, h http.Handler, logger *slog.Logger) error {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerLimit,
		ConnState:         (&connections{open: map[net.Conn]uint64{}}).changed,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	select {
	case err := <-done:
		return fmt.Errorf("serve the API on %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if err := server.Shutdown(end); err != nil {
		_ = server.Close() // those who had not ended by then are cut off
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the API on %s: %w", ln.Addr(), err)
	}
	return nil
}
