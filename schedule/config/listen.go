package config

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// ListenTLS is how the port is served; nil is plain text. Its files are read now,
// and again at each handshake.
func (c *Config) ListenTLS() (*tls.Config, error) {
	if c.Listen.Cert == "" {
		return nil, nil
	}
	listen := c.Listen
	if _, err := listen.load(); err != nil {
		return nil, c.fault("listen", err)
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return listen.load() },
	}, nil
}

func (l Listen) load() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(l.Cert, l.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", l.Cert, l.Key, err)
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}}
	if l.ClientCA == "" {
		return t, nil
	}
	pem, err := os.ReadFile(l.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("CA of those who connect: %w", err)
	}
	t.ClientCAs = x509.NewCertPool()
	if !t.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("CA of those who connect: %s holds no PEM certificate", l.ClientCA)
	}
	t.ClientAuth = tls.RequireAndVerifyClientCert
	return t, nil
}
