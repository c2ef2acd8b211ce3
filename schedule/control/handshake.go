package control

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"
)

const (
	handshakeTimeout = 5 * time.Second
	// handshakesAtOnce bounds what strangers can hold.
	handshakesAtOnce = 64
)

// gate does the handshakes of a TLS listener before anything is served, so that
// those that fail can be audited: the HTTP server would only log them.
type gate struct {
	net.Listener
	audit  *Audit
	logger *slog.Logger

	ready  chan net.Conn
	slots  chan struct{}
	closed chan struct{}
	once   sync.Once
	failed chan error
}

// newGate takes over a listener whose connections are *tls.Conn.
func newGate(ln net.Listener, audit *Audit, logger *slog.Logger) *gate {
	g := &gate{Listener: ln, audit: audit, logger: logger, ready: make(chan net.Conn), slots: make(chan struct{}, handshakesAtOnce), closed: make(chan struct{}), failed: make(chan error, 1)}
	go g.accept()
	return g
}

func (g *gate) accept() {
	for {
		select {
		case g.slots <- struct{}{}:
		case <-g.closed:
			return
		}
		conn, err := g.Listener.Accept()
		if err != nil {
			var passing interface{ Temporary() bool }
			if errors.As(err, &passing) && passing.Temporary() { // such as too many open files
				<-g.slots
				time.Sleep(100 * time.Millisecond)
				continue
			}
			g.failed <- err
			return
		}
		go func() {
			defer func() { <-g.slots }()
			g.shake(conn)
		}()
	}
}

func (g *gate) shake(conn net.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTimeout)
	defer cancel()
	err := conn.(*tls.Conn).HandshakeContext(ctx)
	if err == nil {
		select {
		case g.ready <- conn:
			return
		case <-g.closed:
		}
	} else {
		l := Line{Event: Handshake, Remote: conn.RemoteAddr().String(), Why: err.Error()}
		var wrong *tls.CertificateVerificationError
		if errors.As(err, &wrong) && len(wrong.UnverifiedCertificates) > 0 {
			l.Client, l.Certificate, l.Roles = identity(wrong.UnverifiedCertificates[0])
		}
		if err := g.audit.handshake(l); err != nil {
			g.logger.Error("a refused handshake could not be audited", "error", err)
		}
	}
	_ = conn.Close() // nobody is served on it
}

// Accept gives connections that have a certificate of the CA.
func (g *gate) Accept() (net.Conn, error) {
	select {
	case conn := <-g.ready:
		return conn, nil
	case err := <-g.failed:
		return nil, err
	case <-g.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept, and the listener that was taken over.
func (g *gate) Close() error {
	g.once.Do(func() { close(g.closed) })
	return g.Listener.Close()
}

// identity is who a certificate says that somebody is, and what they may do.
func identity(cert *x509.Certificate) (name, fingerprint string, roles []string) {
	sum := sha256.Sum256(cert.Raw)
	return cert.Subject.CommonName, hex.EncodeToString(sum[:]), cert.Subject.OrganizationalUnit
}
