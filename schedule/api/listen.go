package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// ListenConfig says where the API is served, and to whom.
type ListenConfig struct {
	// Address to bind, such as 127.0.0.1:2390; port 0 takes a free one.
	Address string
	// Cert and Key are files in PEM: with them TLS is served, without them plain
	// text.
	Cert, Key string
	// ClientCA is a file in PEM with the CAs of clients. With it every client
	// needs a certificate.
	ClientCA string
	// AllowPlaintext serves plain text beyond loopback too, such as to a mesh that
	// encrypts by itself.
	AllowPlaintext bool
}

// Trusted tells whether everybody who reaches the listener may start jobs: it is
// on loopback, or asks for a client certificate.
func (c ListenConfig) Trusted() bool { return c.ClientCA != "" || c.loopback() }

// Check finds what is wrong without binding anything, all of it; the files are
// read.
func (c ListenConfig) Check() error {
	var all []error
	if _, _, err := net.SplitHostPort(c.Address); err != nil {
		all = append(all, fmt.Errorf("listen address %q: %w: write it as 127.0.0.1:2390", c.Address, err))
	}
	switch {
	case (c.Cert == "") != (c.Key == ""):
		all = append(all, errors.New("listen: cert and key go together: name both, or none"))
	case c.Cert == "" && c.ClientCA != "":
		all = append(all, errors.New("listen: client-ca needs TLS: name cert and key too"))
	case c.Cert == "" && !c.AllowPlaintext && !c.loopback():
		all = append(all, fmt.Errorf("listen address %s is beyond loopback, and without cert and key everybody on the way could read what is said: name them, or allow-plaintext where something else encrypts", c.Address))
	case c.Cert != "":
		if _, err := (&keys{config: c}).read(); err != nil {
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}

// loopback tells whether only this host can reach the address. Names other than
// localhost are not looked up: what they mean can change.
func (c ListenConfig) loopback() bool {
	host, _, err := net.SplitHostPort(c.Address)
	if err != nil {
		return false
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// Listen checks c and binds its address. The caller closes the listener, which
// Serve does.
func Listen(ctx context.Context, c ListenConfig) (net.Listener, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", c.Address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w: another process may have the port; name another one in listen.address", c.Address, err)
	}
	if c.Cert == "" {
		return ln, nil
	}
	k := &keys{config: c}
	if _, err := k.forClient(nil); err != nil { // what a rotation that begins now goes back to
		_ = ln.Close() // nothing was accepted
		return nil, err
	}
	return tls.NewListener(ln, &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: k.forClient,
	}), nil
}
