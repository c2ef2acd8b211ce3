package client_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/storetest"
)

// Every way to get TLS wrong is distinguished, and says what to do. The bundled
// member is started with TLS for this.
func TestTLS(t *testing.T) {
	t.Parallel()
	authority := storetest.NewAuthority(t)
	config := memberConfig(t, "secure")
	config.TLS.Cert, config.TLS.Key = authority.Issue(t, "server", time.Hour)
	config.TLS.CA = authority.CA
	for _, urls := range [][]string{config.ListenClientURLs, config.ListenPeerURLs} {
		urls[0] = strings.Replace(urls[0], "http://", "https://", 1)
	}
	member := startMember(t, config)
	endpoint := member.Endpoints()[0]
	plain := startMember(t, memberConfig(t, "plain")).Endpoints()[0]

	cert, key := authority.Issue(t, "client", time.Hour)
	foreign := storetest.NewAuthority(t)
	foreignCert, foreignKey := foreign.Issue(t, "client", time.Hour)
	strangeCert, strangeKey := storetest.NewAuthority(t, "of strangers").Issue(t, "client", time.Hour)
	for _, tt := range []struct {
		name   string
		config client.Config
		want   string // in the error; empty: it works
	}{
		{"right", client.Config{Endpoints: []string{endpoint}, CACert: authority.CA, Cert: cert, Key: key}, ""},
		{"no scheme", client.Config{Endpoints: []string{strings.TrimPrefix(endpoint, "https://")}, CACert: authority.CA, Cert: cert, Key: key}, ""},
		{"not verified", client.Config{Endpoints: []string{endpoint}, InsecureSkipTLSVerify: true, Cert: cert, Key: key}, ""},
		{"plain text", client.Config{Endpoints: []string{plain}, CACert: authority.CA}, ""},
		{"unknown CA", client.Config{Endpoints: []string{endpoint}, CACert: foreign.CA, Cert: cert, Key: key}, "unknown authority; give the CA"},
		{"system's CAs", client.Config{Endpoints: []string{endpoint}, Cert: cert, Key: key}, "unknown authority; give the CA"},
		{"no client certificate", client.Config{Endpoints: []string{endpoint}, CACert: authority.CA}, "wants a client certificate; give --cert"},
		{"client certificate of another CA", client.Config{Endpoints: []string{endpoint}, CACert: authority.CA, Cert: foreignCert, Key: foreignKey}, "does not accept the client certificate"},
		{"client certificate of a CA that the server does not name", client.Config{Endpoints: []string{endpoint}, CACert: authority.CA, Cert: strangeCert, Key: strangeKey}, "does not accept the client certificate " + strangeCert + ": none of the CAs that it trusts has signed it"},
		{"http to a TLS server", client.Config{Endpoints: []string{strings.Replace(endpoint, "https", "http", 1)}}, "write the endpoint as https://"},
		{"https to a plain server", client.Config{Endpoints: []string{strings.Replace(plain, "http", "https", 1)}}, "does not speak TLS; write the endpoint as http://"},
		{"wrong name", client.Config{Endpoints: []string{endpoint}, CACert: authority.CA, Cert: cert, Key: key, ServerName: "etcd.example"}, "not etcd.example"},
		{"no such file", client.Config{Endpoints: []string{endpoint}, CACert: "/nonexistent/ca.pem"}, "/nonexistent/ca.pem: no such file"},
		{"no such host", client.Config{Endpoints: []string{"https://etcd.invalid:2379"}}, "etcd.invalid cannot be looked up"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := dial(t, tt.config).Survey(t.Context())
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want == "" && len(s.Membership) != 1:
				t.Errorf("survey %+v", s)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.config.Endpoints[0])):
				t.Errorf("error %q\ndoes not say %q and the endpoint", err, tt.want)
			case tt.want != "" && !errors.Is(err, client.ErrUnreachable) && !errors.Is(err, client.ErrTimeout):
				t.Errorf("error %v is no ErrUnreachable", err)
			}
		})
	}
}

func TestTLSExpiredServer(t *testing.T) {
	t.Parallel()
	authority := storetest.NewAuthority(t)
	config := memberConfig(t, "old")
	config.TLS.Cert, config.TLS.Key = authority.Issue(t, "server", -time.Minute)
	config.ListenClientURLs[0] = strings.Replace(config.ListenClientURLs[0], "http://", "https://", 1)
	member := startMember(t, config)
	_, err := dial(t, client.Config{Endpoints: member.Endpoints(), CACert: authority.CA}).Survey(t.Context())
	require.ErrorContains(t, err, "has expired")
	silent := "https://127.0.0.1:1"
	shown := dial(t, client.Config{Endpoints: append([]string{silent, "http://127.0.0.1:1"}, member.Endpoints()...), CACert: authority.CA}).ServerCertificates(t.Context())
	if len(shown) != 2 || shown[0].Endpoint != silent || shown[0].Err == nil {
		t.Fatalf("certificates: %+v", shown)
	}
	if left := time.Until(shown[1].Expires); shown[1].Err != nil || left > 0 || left < -time.Hour {
		t.Errorf("certificate: %+v", shown[1])
	}
}

// Certificates are read at each handshake: an agent that runs for months
// survives their renewal, and that of the CA.
func TestTLSRotation(t *testing.T) {
	t.Parallel()
	authority := storetest.NewAuthority(t)
	config := memberConfig(t, "secure")
	config.TLS.Cert, config.TLS.Key = authority.Issue(t, "server", time.Hour)
	config.ListenClientURLs[0] = strings.Replace(config.ListenClientURLs[0], "http://", "https://", 1)
	member := startMember(t, config)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	copyFile(t, ca, storetest.NewAuthority(t).CA)
	cli := dial(t, client.Config{Endpoints: member.Endpoints(), CACert: ca})
	_, err := cli.Survey(t.Context())
	require.ErrorContains(t, err, "unknown authority", "the old CA")
	copyFile(t, ca, authority.CA)
	// When the connection's backoff has passed.
	storetest.Eventually(t, "the new CA is trusted", func() error { _, err := cli.Survey(t.Context()); return err })
}

func copyFile(t *testing.T, to, from string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	require.NoError(t, err)
}

// A host that swallows packets ends after the bounds, not never.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts in the kernel, and says nothing
	require.NoError(t, err)
	defer l.Close()
	began := time.Now()
	_, err = dial(t, client.Config{Endpoints: []string{"http://" + l.Addr().String()}, CommandTimeout: 300 * time.Millisecond}).Survey(t.Context())
	if !errors.Is(err, client.ErrTimeout) || time.Since(began) > 30*time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
}
