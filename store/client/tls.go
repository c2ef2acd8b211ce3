package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// tlsFiles are transport credentials that read the files of a Config at
// each handshake. The standard ones keep the CA of the first read, so that a
// long-lived agent would fail after the CA was rotated.
type tlsFiles struct {
	config   Config
	failures *connFailure
}

func (t *tlsFiles) load() (*tls.Config, error) {
	config := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         t.config.ServerName,
		InsecureSkipVerify: t.config.InsecureSkipTLSVerify, // the user's own --insecure-skip-tls-verify
	}
	if t.config.CACert != "" {
		pem, err := os.ReadFile(t.config.CACert)
		if err != nil {
			return nil, fmt.Errorf("CA certificate: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("CA certificate %s: no PEM certificate in it", t.config.CACert)
		}
	}
	if t.config.Cert != "" {
		cert, err := tls.LoadX509KeyPair(t.config.Cert, t.config.Key)
		if err != nil {
			return nil, fmt.Errorf("client certificate %s with key %s: %w", t.config.Cert, t.config.Key, err)
		}
		config.Certificates = []tls.Certificate{cert}
	}
	return config, nil
}

// ClientHandshake reads the files and makes a connection with them.
func (t *tlsFiles) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := t.load()
	if err != nil {
		t.failures.set(err)
		return nil, nil, err
	}
	conn, info, err := credentials.NewTLS(config).ClientHandshake(ctx, authority, raw)
	if err != nil {
		t.failures.set(&handshakeError{err, t.config.Cert})
		return nil, nil, err
	}
	return &alertConn{Conn: conn, failures: t.failures, cert: t.config.Cert}, info, nil
}

// handshakeError distinguishes a connection that failed while TLS was agreed on from
// one that could not be dialled.
type handshakeError struct {
	err  error
	cert string // the file of the client certificate; empty where none was given
}

func (e *handshakeError) Error() string { return "TLS handshake: " + e.err.Error() }
func (e *handshakeError) Unwrap() error { return e.err }

// alertConn remembers the server's TLS alert. With TLS 1.3 a server refuses a
// client certificate only after the client has taken the handshake for done,
// and whether the alert or a broken pipe is seen first is a matter of luck.
type alertConn struct {
	net.Conn
	failures *connFailure
	cert     string
}

// Read keeps an alert in mind.
func (c *alertConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && strings.HasPrefix(err.Error(), "remote error: tls: ") {
		c.failures.set(&handshakeError{err, c.cert})
	}
	return n, err
}

// Write looks for an alert when it fails.
func (c *alertConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, net.ErrClosed) {
		// The connection is gone; its last word may still wait to be read.
		if c.SetReadDeadline(time.Now().Add(100*time.Millisecond)) == nil {
			_, _ = c.Read(make([]byte, 1))
		}
	}
	return n, err
}

// ServerHandshake is part of the interface, for servers.
func (t *tlsFiles) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("client credentials used by a server")
}

// Info names the protocol.
func (t *tlsFiles) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone is a copy that shares nothing but the record of failures.
func (t *tlsFiles) Clone() credentials.TransportCredentials {
	clone := *t
	return &clone
}

// OverrideServerName is part of the interface; nothing here calls it.
func (t *tlsFiles) OverrideServerName(name string) error {
	t.config.ServerName = name
	return nil
}

// ServerCertificate is the one that an endpoint shows.
type ServerCertificate struct {
	Endpoint string
	Expires  time.Time
	Err      error // why it could not be seen
}

// ServerCertificates asks each endpoint that speaks TLS for its certificate, each
// within DialTimeout. Whether it is the right one is not verified: every other
// call does that, and one that expired is to be reported all the same. Nothing is
// sent.
func (c *Client) ServerCertificates(ctx context.Context) []ServerCertificate {
	var speaking []*endpoint
	for _, e := range c.all() {
		if e.at.useTLS {
			speaking = append(speaking, e)
		}
	}
	all := make([]ServerCertificate, len(speaking))
	var wg sync.WaitGroup
	for i, e := range speaking {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, c.config.DialTimeout)
			defer cancel()
			all[i].Endpoint = e.name
			all[i].Expires, all[i].Err = serverExpiry(ctx, e)
		})
	}
	wg.Wait()
	return all
}

func serverExpiry(ctx context.Context, e *endpoint) (expires time.Time, err error) {
	raw, err := (&net.Dialer{}).DialContext(ctx, e.at.network, e.at.addr)
	if err != nil {
		return time.Time{}, err
	}
	defer raw.Close() //nolint:errcheck // nothing was sent
	conn := tls.Client(raw, &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // it is looked at, and nothing is sent
		VerifyConnection: func(s tls.ConnectionState) error {
			expires = s.PeerCertificates[0].NotAfter
			return nil
		},
	})
	// A server that wants a client's certificate ends the handshake, after it has
	// shown its own.
	if err := conn.HandshakeContext(ctx); err != nil && expires.IsZero() {
		return time.Time{}, fmt.Errorf("certificate of %s: %w", e.name, err)
	}
	if expires.IsZero() {
		return time.Time{}, errors.New("no certificate was shown")
	}
	return expires, nil
}
