package api

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
)

// keys are the listener's certificate and client CAs, read from their files
// whenever somebody connects.
type keys struct {
	config ListenConfig

	mu   sync.Mutex
	last *tls.Config // that could be read
}

// forClient gives what the files hold now. While they cannot be read or do not
// belong together, as in the middle of a rotation, what they held before goes on;
// it is checked by its own dates at the other end.
func (k *keys) forClient(*tls.ClientHelloInfo) (*tls.Config, error) {
	c, err := k.read()
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		k.last = c
	}
	if k.last == nil {
		return nil, err
	}
	return k.last, nil
}

func (k *keys) read() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(k.config.Cert, k.config.Key)
	if err != nil {
		return nil, fmt.Errorf("listen: certificate %s with key %s: %w", k.config.Cert, k.config.Key, err)
	}
	c := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{pair},
		NextProtos:   []string{"http/1.1"},
		// Each handshake has a configuration of its own, with keys of its own for
		// tickets: nobody could use one.
		SessionTicketsDisabled: true,
	}
	if k.config.ClientCA == "" {
		return c, nil
	}
	pem, err := os.ReadFile(k.config.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("listen: client CAs: %w", err)
	}
	c.ClientCAs = x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("listen: client CAs: %s has no certificate in PEM", k.config.ClientCA)
	}
	c.ClientAuth = tls.RequireAndVerifyClientCert
	return c, nil
}
