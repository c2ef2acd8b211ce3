package web

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/schedule/config"
)

// TestRevocation: what is taken away counts at once, over connections that are open
// already and for new ones: a CA that was replaced, emptied, damaged or removed, and
// a certificate that was denied. Once the files are whole again, so are the clients.
func TestRevocation(t *testing.T) {
	ca, clients, others := newAuthority(t, "ca"), newAuthority(t, "clients"), newAuthority(t, "others")
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	ca.issue(t, "server", file("s.crt"), file("s.key"))
	clients.issue(t, "prometheus", file("c.crt"), file("c.key"))
	pair, err := tls.LoadX509KeyPair(file("c.crt"), file("c.key"))
	require.NoError(t, err)
	good, err := os.ReadFile(clients.file)
	require.NoError(t, err)
	other, err := os.ReadFile(others.file)
	require.NoError(t, err)
	sum := sha256.Sum256(pair.Certificate[0])
	put := func(path string, data []byte) func() error {
		return func() error { return os.WriteFile(path, data, 0o600) }
	}
	deny := file("deny")
	whole := func() error { return errors.Join(put(clients.file, good)(), put(deny, []byte("# none yet\n"))()) }
	require.NoError(t, whole())
	url := "https://" + serve(t, config.Listen{Address: "127.0.0.1:0", Cert: file("s.crt"), Key: file("s.key"), ClientCA: clients.file, DenyFile: deny}) + "/api/v1/status"
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	sessions := tls.NewLRUClientSessionCache(4) // none must outlive its CA
	client := func(own ...tls.Certificate) *http.Client {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: own, ClientSessionCache: sessions}}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Timeout: 10 * time.Second, Transport: transport}
	}
	if _, err := client().Get(url); err == nil {
		t.Error("a client without a certificate was let in")
	}
	for name, revoke := range map[string]func() error{
		"replaced":    put(clients.file, other),
		"emptied":     put(clients.file, nil),
		"no PEM":      put(clients.file, []byte("-----BEGIN CERT")),
		"removed":     func() error { return os.Remove(clients.file) },
		"denied":      put(deny, []byte("sha256 Fingerprint="+hex.EncodeToString(sum[:])+" # stolen\n")),
		"deny damage": put(deny, []byte("12:34\n")),
		"deny gone":   func() error { return os.Remove(deny) },
	} {
		open := client(pair)
		get := func(c *http.Client) (int, bool, error) {
			r, err := c.Get(url)
			if err != nil {
				return 0, false, err
			}
			defer r.Body.Close()
			_, err = io.Copy(io.Discard, r.Body)
			return r.StatusCode, r.Close, err
		}
		if code, _, err := get(open); code != http.StatusOK || err != nil {
			t.Fatalf("%s: before: %d %v", name, code, err)
		}
		require.NoError(t, revoke())
		if code, closed, err := get(open); err != nil || code != http.StatusForbidden || !closed {
			t.Errorf("%s: over the open connection: %d, closed %t, %v", name, code, closed, err)
		}
		if code, _, err := get(client(pair)); err == nil {
			t.Errorf("%s: a new connection was let in, and answered %d", name, code)
		}
		require.NoError(t, whole())
		if code, _, err := get(client(pair)); code != http.StatusOK || err != nil {
			t.Errorf("%s: after it was undone: %d %v", name, code, err)
		}
	}
}
