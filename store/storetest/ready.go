package storetest

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// WaitReady waits until each running member that is not isolated serves with
// a quorum.
func (c *Cluster) WaitReady(t testing.TB) {
	t.Helper()
	if err := c.waitHealthy(60 * time.Second); err != nil {
		t.Fatal(err)
	}
}

func (c *Cluster) waitHealthy(timeout time.Duration) error {
	transport := &http.Transport{DisableKeepAlives: true}
	if c.options.TLS {
		config, err := c.tlsConfig()
		if err != nil {
			return err
		}
		transport.TLSClientConfig = config
	}
	client := &http.Client{Transport: transport, Timeout: 5 * time.Second}
	deadline := time.Now().Add(timeout)
	for i, m := range c.members {
		for !c.isIsolated(i) {
			if !m.process.running() {
				if strings.Contains(tail(m.Log, 60), "address already in use") {
					return fmt.Errorf("member %s: %w", m.Name, errPortTaken)
				}
				return fmt.Errorf("member %s has ended; the end of its log:\n%s", m.Name, tail(m.Log, 20))
			}
			err := healthy(client, m.ClientURL)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("member %s is not ready after %s: %w; the end of its log:\n%s", m.Name, timeout, err, tail(m.Log, 20))
			}
			time.Sleep(25 * time.Millisecond)
		}
	}
	return nil
}

// healthy asks a member itself, which reads through the quorum to answer. A
// learner cannot, and answers all the same when it serves.
func healthy(client *http.Client, url string) error {
	resp, err := client.Get(url + "/health?exclude=NOSPACE")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var body struct{ Health, Reason string }
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		return err
	}
	if body.Health != "true" {
		return fmt.Errorf("health %q: %s", body.Health, body.Reason)
	}
	return nil
}

func (c *Cluster) tlsConfig() (*tls.Config, error) {
	ca, err := os.ReadFile(c.authority.CA)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	cert, err := tls.LoadX509KeyPair(filepath.Join(c.authority.dir, "client.pem"), filepath.Join(c.authority.dir, "client.key"))
	if err != nil {
		return nil, err
	}
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert}}, nil
}
