package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/requorum/requorum/store"
)

// probeTimeout bounds one look at a port.
const probeTimeout = 5 * time.Second

// examineServers looks at the certificate of each member's port, and at the time
// that its answers carry.
func (e *examination) examineServers(ctx context.Context, client *store.Client, cfg store.ClientConfig) {
	for _, cert := range client.ServerCertificates(ctx) {
		if cert.Err == nil { // otherwise the endpoint does not answer, which is told
			e.examineExpiry("certificate of "+cert.Endpoint, cert.Expires, "renew the member's certificate")
		}
	}
	seen := map[string]bool{}
	for _, endpoint := range client.Endpoints() {
		url := endpoint
		if !strings.Contains(url, "://") {
			if url = "http://" + url; cfg.CACert != "" || cfg.Cert != "" {
				url = "https://" + endpoint
			}
		}
		if strings.HasPrefix(url, "http") && !seen[url] {
			seen[url] = true
			e.examineServerClock(ctx, cfg, url)
		}
	}
}

// examineServerClock asks for etcd's version over HTTP, which needs no rights: the
// answer carries the time.
func (e *examination) examineServerClock(ctx context.Context, cfg store.ClientConfig, url string) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	settings := &tls.Config{InsecureSkipVerify: true} // nothing secret is sent, and the survey has verified it
	if cfg.Cert != "" {
		if pair, err := tls.LoadX509KeyPair(cfg.Cert, cfg.Key); err == nil {
			settings.Certificates = []tls.Certificate{pair}
		}
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: settings, DisableKeepAlives: true}}
	before := time.Now()
	told := dateOf(ctx, client, url)
	if off := clockOff(told, before, time.Now()); off != 0 {
		e.add(checkWarn, "clock of "+url, fmt.Sprintf("differs from this host's by %s: times of the archive, leases and certificates go by both", off), "set the clock: NTP on every member")
	}
}

// dateOf is the time that a server's answer carries; zero where there is none.
// Whether the server answers at all is not asked here.
func dateOf(ctx context.Context, client *http.Client, url string) time.Time {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(url, "/")+"/version", nil)
	if err != nil {
		return time.Time{}
	}
	answer, err := client.Do(req)
	if err != nil {
		return time.Time{}
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<16)) // it has nothing that is needed
	date, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		return time.Time{}
	}
	return date
}

// reach connects to a host and port, and says nothing.
func reach(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}
