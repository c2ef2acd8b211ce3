package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// ServerCertificate is the one that an endpoint shows.
type ServerCertificate struct {
	Endpoint string
	Expires  time.Time
	Err      error // why it could not be seen
}

// ServerCertificates asks each endpoint that speaks TLS for its certificate, each
// within DialTimeout. Whether it is the right one is not verified: every other
// call does that, and one that expired is to be told all the same. Nothing is
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
