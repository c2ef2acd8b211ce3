package web

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/schedule/config"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T, name string) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	a := authority{cert, key, filepath.Join(t.TempDir(), name+".crt")}
	writePEM(t, a.file, "CERTIFICATE", der)
	return a
}

// issue writes a certificate and its key to files.
func (a authority) issue(t *testing.T, name, cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &k.PublicKey, a.key)
	require.NoError(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	require.NoError(t, err)
	writePEM(t, cert, "CERTIFICATE", der)
	writePEM(t, key, "PRIVATE KEY", raw)
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

// serve runs a server until the test ends, and gives its address.
func serve(t *testing.T, c config.Listen) string {
	t.Helper()
	ln, err := Listen(t.Context(), c)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	h := Current(c, newHandler(known()), slog.New(slog.DiscardHandler))
	go func() { done <- Serve(ctx, ln, h, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return ln.Addr().String()
}

// get asks over a connection of its own, and returns the server's name too.
func get(t *testing.T, url string, c *tls.Config) (body, server string, err error) {
	t.Helper()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: c, DisableKeepAlives: true}}
	r, err := client.Get(url)
	if err != nil {
		return "", "", err
	}
	if r.TLS != nil {
		server = r.TLS.PeerCertificates[0].Subject.CommonName
		if r.TLS.DidResume {
			t.Error("a session was resumed: its client certificate was not looked at again")
		}
	}
	return read(t, r), server, nil
}

// TestRotation (promise 3): new files count from the next handshake on, half of
// a rotation breaks nothing, and neither does a file that is away.
func TestRotation(t *testing.T) {
	ca := newAuthority(t, "ca")
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	ca.issue(t, "first", cert, key)
	url := "https://" + serve(t, config.Listen{Address: "127.0.0.1:0", Cert: cert, Key: key}) + "/healthz"
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	is := func(when, want string) {
		t.Helper()
		body, server, err := get(t, url, &tls.Config{RootCAs: pool})
		if err != nil || server != want || body != "ok\n" {
			t.Errorf("%s: %q by %q, want %q: %v", when, body, server, want, err)
		}
	}
	is("at first", "first")
	ca.issue(t, "second", filepath.Join(dir, "new.crt"), filepath.Join(dir, "new.key"))
	require.NoError(t, os.Rename(filepath.Join(dir, "new.crt"), cert))
	is("with half of a new pair", "first")
	require.NoError(t, os.Rename(filepath.Join(dir, "new.key"), key))
	is("after the rotation", "second")
	require.NoError(t, os.Remove(cert))
	is("without a file", "second")
	_, _, err := get(t, url, &tls.Config{RootCAs: pool, MaxVersion: tls.VersionTLS11})
	require.Error(t, err, "TLS 1.1 was let in")
}

// TestServeEnds: at the end requests under way are answered, and one that hangs
// holds nothing up for longer than promised.
func TestServeEnds(t *testing.T) {
	ln, err := Listen(t.Context(), config.Listen{Address: "127.0.0.1:0"})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	inside, out := make(chan bool), make(chan bool)
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			inside <- true
			<-out
			if r.Context().Err() != nil {
				t.Error("the request was cancelled with the agent")
			}
			_, _ = w.Write([]byte("done"))
		}), slog.New(slog.DiscardHandler))
	}()
	answered := make(chan string, 1)
	go func() {
		body, _, err := get(t, "http://"+ln.Addr().String(), nil)
		if err != nil {
			t.Error(err)
		}
		answered <- body
	}()
	<-inside
	cancel()
	close(out)
	if got := <-answered; got != "done" {
		t.Errorf("answered %q", got)
	}
	require.NoError(t, <-done)
	// Another process may listen at the address by now: the listener itself is asked.
	require.ErrorIs(t, ln.(*net.TCPListener).SetDeadline(time.Now()), net.ErrClosed, "it still listens")
}

// TestManyConnections (promise 4): who opens connections without an end holds only the
// newest of them, and keeps nobody else out; the agent's memory and descriptors stay.
func TestManyConnections(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	cert, key := filepath.Join(t.TempDir(), "cert"), filepath.Join(t.TempDir(), "key")
	ca.issue(t, "server", cert, key)
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	for scheme, c := range map[string]config.Listen{"http": {Address: "127.0.0.1:0"}, "https": {Address: "127.0.0.1:0", Cert: cert, Key: key}} {
		address := serve(t, c)
		var all []net.Conn
		for n := range mostConnections + 10 {
			conn, err := net.Dial("tcp", address)
			require.NoError(t, err)
			defer conn.Close()
			if all = append(all, conn); n%2 == 0 { // half of a request, or of a handshake
				_, _ = conn.Write([]byte("G")) // it may be closed
			}
		}
		_, _, err := get(t, scheme+"://"+address+"/healthz", &tls.Config{RootCAs: pool})
		require.NoError(t, err, "%s: nobody else gets in", scheme)
		for _, conn := range all[:10] {
			_ = conn.SetReadDeadline(time.Now().Add(headerTimeout / 2))
			_, err := conn.Read(make([]byte, 1))
			if late, is := err.(net.Error); is && late.Timeout() { //nolint:errorlint // as net gives it
				t.Fatalf("%s: %d connections are open", scheme, len(all))
			}
		}
	}
}

// TestSlowClient (promise 4): a client that says half a request is not waited
// for.
func TestSlowClient(t *testing.T) {
	t.Parallel()
	address := serve(t, config.Listen{Address: "127.0.0.1:0"})
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write([]byte("GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "))
	require.NoError(t, err)
	_ = c.SetReadDeadline(time.Now().Add(headerTimeout + 5*time.Second))
	start := time.Now()
	buffer := make([]byte, 512)
	n, err := c.Read(buffer)
	for err == nil {
		n, err = c.Read(buffer)
	}
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		t.Errorf("after %v the connection is still there (%d bytes)", time.Since(start), n)
	}
}
