package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Client asks single members of one etcd cluster, each over a connection of its
// own. It is safe for concurrent use.
type Client struct {
	config ClientConfig
	login  *login

	mu        sync.RWMutex
	endpoints []*endpoint // as configured, then as discovered
}

// Dial prepares a Client, and logs in where a user is given. It does not need
// all endpoints to answer, nor any where no user is given: Survey tells.
func Dial(ctx context.Context, config ClientConfig) (*Client, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	c := &Client{config: config.withDefaults()}
	c.login = &login{user: config.User, password: config.Password, token: config.Token}
	for _, name := range c.config.Endpoints {
		if _, err := c.endpoint(name); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	if c.login.wanted() {
		if err := c.login.refresh(ctx, c, ""); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// Close ends all connections and the streams on them.
func (c *Client) Close() error {
	var failures []error
	for _, e := range c.all() {
		if err := e.conn.Close(); err != nil {
			failures = append(failures, fmt.Errorf("endpoint %s: closing: %w", e.name, err))
		}
	}
	return errors.Join(failures...)
}

// Endpoints are the configured ones, then those that a Survey discovered.
func (c *Client) Endpoints() []string {
	var names []string
	for _, e := range c.all() {
		names = append(names, e.name)
	}
	return names
}

func (c *Client) all() []*endpoint {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Clone(c.endpoints)
}

// endpoint finds the endpoint of that name, or adds it.
func (c *Client) endpoint(name string) (*endpoint, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.endpoints {
		if e.name == name {
			return e, nil
		}
	}
	e, err := newEndpoint(name, c.config, c.login)
	if err != nil {
		return nil, err
	}
	c.endpoints = append(c.endpoints, e)
	return e, nil
}

// known finds the endpoint that a MemberStatus was made from.
func (c *Client) known(name string) (*endpoint, error) {
	for _, e := range c.all() {
		if e.name == name {
			return e, nil
		}
	}
	return nil, fmt.Errorf("endpoint %s is none of this client's (%v)", name, c.Endpoints())
}

// call runs one request against e and explains its error. A token that expired
// is renewed, and the request made once more.
func (c *Client) call(ctx context.Context, e *endpoint, what string, do func(context.Context) error) error {
	old := c.login.get()
	err := rpctypes.Error(do(ctx))
	if expiredToken(err) && c.login.wanted() {
		if err := c.login.refresh(ctx, c, old); err != nil {
			return err
		}
		err = rpctypes.Error(do(ctx))
	}
	return e.explain(what, err)
}

// expiredToken tells a login that ended from one that was refused. Members
// forget simple tokens when they restart. 3.4 gives some of these errors raw.
func expiredToken(err error) bool {
	if err == nil {
		return false
	}
	switch rpctypes.ErrorDesc(err) {
	case "auth: invalid auth token", "auth: user name is empty", "auth: revision in header is old":
		return true
	}
	return errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrUserEmpty) || errors.Is(err, rpctypes.ErrAuthOldRevision)
}
