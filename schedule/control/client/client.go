// Package client talks to `requorum agent control`. It promises that a request
// that was refused as stale, because the process was started anew meanwhile, is
// sent once more with a new nonce, and that nothing else is: after a lost
// connection the caller repeats the action, which its run may always do.
package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/requorum/requorum/schedule/control/protocol"
)

const (
	dialTimeout = 5 * time.Second
	// keepAlive finds out, while an action takes its minutes, that a host is gone.
	keepAlive   = 10 * time.Second
	answerLimit = 64 << 20
)

// Options say whom to reach, and as who.
type Options struct {
	Address string // such as 10.0.0.1:2391
	Member  string // that is expected there
	Run     string // the recovery: see protocol.Header
	// CA, Cert and Key are files in PEM: the CA of control, and a certificate with
	// the roles. They are read at each connection.
	CA, Cert, Key string
	// TakesOver is a run that is not going on: see protocol.Header.
	TakesOver string
}

// Client is for one member. Its methods may be called by several goroutines.
type Client struct {
	options Options
	http    *http.Client

	mu    sync.Mutex
	clock protocol.Clock
	at    time.Time // when the clock was read
}

// New reads the certificates once, to find out early what is wrong with them. The
// caller calls Close.
func New(o Options) (*Client, error) {
	if _, _, err := net.SplitHostPort(o.Address); err != nil {
		return nil, fmt.Errorf("control of member %s: address %q: %w: write it as 10.0.0.1:2391", o.Member, o.Address, err)
	}
	if err := protocol.CheckRun(o.Run); err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(o.CA)
	if err != nil {
		return nil, fmt.Errorf("control of member %s: CA: %w", o.Member, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("control of member %s: CA: %s has no certificate in PEM", o.Member, o.CA)
	}
	load := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(o.Cert, o.Key)
		if err != nil {
			return nil, fmt.Errorf("control of member %s: certificate %s with key %s: %w", o.Member, o.Cert, o.Key, err)
		}
		return &pair, nil
	}
	if _, err := load(nil); err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}
	return &Client{options: o, http: &http.Client{
		// No proxy, whatever the environment says: hosts are reached directly, or not.
		Transport: &http.Transport{
			DialContext:         dialer.DialContext,
			TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, GetClientCertificate: load},
			TLSHandshakeTimeout: dialTimeout,
			IdleConnTimeout:     time.Minute,
			DisableCompression:  true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("it redirects, which no control process does")
		},
	}}, nil
}

// Close lets go of idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// RefusedError is what the process answered where it did not do what was asked.
type RefusedError struct {
	protocol.Refusal
	Member string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("control of member %s: %s (%s)", e.Member, e.Refusal.Error, e.Code)
}

// Member asks for the state; with survey also for what the data directory of a
// stopped member holds, which reads all of its log.
func (c *Client) Member(ctx context.Context, survey bool) (*protocol.Member, error) {
	if survey {
		return c.member(ctx, "?survey=true")
	}
	return c.member(ctx, "")
}

// Built asks for the last rebuild that was not undone, and what it came to; both are
// nil where the host remembers none.
func (c *Client) Built(ctx context.Context) (*protocol.Built, *protocol.Rebuilt, error) {
	m, err := c.member(ctx, "?built=true")
	if err != nil || m.Built == nil {
		return nil, nil, err
	}
	var result protocol.Rebuilt
	if err := json.Unmarshal(m.Built.Result, &result); err != nil {
		return nil, nil, fmt.Errorf("control of member %s: what run %s built: %w", c.options.Member, m.Built.Run, err)
	}
	return m.Built, &result, nil
}

func (c *Client) member(ctx context.Context, query string) (*protocol.Member, error) {
	path := protocol.MemberPath + query
	var m protocol.Member
	if err := c.ask(ctx, http.MethodGet, path, nil, &m); err != nil {
		return nil, err
	}
	if m.Name != c.options.Member {
		return nil, &OtherMemberError{Address: c.options.Address, Is: m.Name, Wants: c.options.Member}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock, c.at = m.Clock, time.Now()
	return &m, nil
}

// Stop stops the member and gives the proof.
func (c *Client) Stop(ctx context.Context) (*protocol.Done, error) {
	return c.act(ctx, protocol.StopPath, protocol.Action{})
}

// Start starts the member, which has to have data to start from.
func (c *Client) Start(ctx context.Context) (*protocol.Done, error) {
	return c.act(ctx, protocol.StartPath, protocol.Action{})
}

// SetAside sets the stopped member's data aside.
func (c *Client) SetAside(ctx context.Context) (*protocol.Done, error) {
	return c.act(ctx, protocol.SetAsidePath, protocol.Action{})
}

// Undo puts back what this run set aside.
func (c *Client) Undo(ctx context.Context) (*protocol.Done, error) {
	return c.act(ctx, protocol.UndoPath, protocol.Action{})
}

// Rebuild builds the member's directories as a plan says, from a source.
func (c *Client) Rebuild(ctx context.Context, plan, source json.RawMessage) (*protocol.Done, error) {
	return c.act(ctx, protocol.RebuildPath, protocol.Action{Plan: plan, Source: source})
}

func (c *Client) act(ctx context.Context, path string, a protocol.Action) (*protocol.Done, error) {
	for attempt := 1; ; attempt++ {
		header, err := c.header(ctx)
		if err != nil {
			return nil, err
		}
		a.Header = header
		var done protocol.Done
		err = c.ask(ctx, http.MethodPost, path, a, &done)
		var refused *RefusedError
		if attempt == 1 && errors.As(err, &refused) && refused.Code == protocol.Stale {
			c.forget()
			continue
		}
		if err != nil {
			return nil, err
		}
		return &done, nil
	}
}

// header is that of a new request.
func (c *Client) header(ctx context.Context) (protocol.Header, error) {
	c.mu.Lock()
	clock, at := c.clock, c.at
	c.mu.Unlock()
	if clock.Session == "" {
		m, err := c.Member(ctx, false)
		if err != nil {
			return protocol.Header{}, err
		}
		clock, at = m.Clock, time.Now()
	}
	return protocol.Header{
		Member: c.options.Member, Run: c.options.Run, TakesOver: c.options.TakesOver,
		Nonce: protocol.NewNonce(), Session: clock.Session, At: clock.Uptime + time.Since(at),
	}, nil
}

func (c *Client) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock = protocol.Clock{}
}

// ask sends a request and reads its answer.
func (c *Client) ask(ctx context.Context, method, path string, body, answer any) error {
	resp, err := c.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	d := json.NewDecoder(io.LimitReader(resp.Body, answerLimit))
	if err := d.Decode(answer); err != nil {
		return fmt.Errorf("control of member %s: the answer of %s: %w: %w", c.options.Member, c.options.Address, err, errStrange)
	}
	return nil
}

// send gives an answer that is no refusal; the caller closes its body.
func (c *Client) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "https://"+c.options.Address+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	req.GetBody = nil // an action is never sent twice by itself
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("control of member %s: %w", c.options.Member, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	refused := &RefusedError{Member: c.options.Member}
	if err := json.NewDecoder(io.LimitReader(resp.Body, answerLimit)).Decode(&refused.Refusal); err != nil || refused.Code == "" {
		return nil, fmt.Errorf("control of member %s: %s answers %s, and no reason that could be read: %w", c.options.Member, c.options.Address, resp.Status, errStrange)
	}
	return nil, refused
}
