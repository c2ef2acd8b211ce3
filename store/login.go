package store

import (
	"context"
	"errors"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// login holds the token that all endpoints share. etcd hands tokens out through
// the raft log, so that each member knows each token: one login is enough for
// all, also for a learner, which cannot be logged in to, and for a member that
// is cut off and could not agree to a login any more.
type login struct {
	user, password string

	mu    sync.RWMutex
	token string

	renew sync.Mutex // one login at a time
}

func (l *login) wanted() bool { return l.user != "" }

func (l *login) get() string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.token
}

// GetRequestMetadata puts the token into each call.
func (l *login) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if token := l.get(); token != "" {
		return map[string]string{rpctypes.TokenFieldNameGRPC: token}, nil
	}
	return nil, nil
}

// RequireTransportSecurity is false as in etcdctl: whether the connection is
// encrypted is the user's choice of scheme.
func (l *login) RequireTransportSecurity() bool { return false }

// refresh gets a new token from the first endpoint that gives one, unless
// another call has replaced old meanwhile.
func (l *login) refresh(ctx context.Context, c *Client, old string) error {
	l.renew.Lock()
	defer l.renew.Unlock()
	if l.get() != old {
		return nil
	}
	var failures []error
	for _, e := range c.all() {
		token, err := l.ask(ctx, c, e)
		if err == nil {
			l.mu.Lock()
			l.token = token
			l.mu.Unlock()
			return nil
		}
		failures = append(failures, e.explain("logging in", err))
		// A refusal is the cluster's answer: the other members would say the same.
		if errors.Is(err, rpctypes.ErrAuthFailed) {
			break
		}
	}
	return errors.Join(failures...)
}

func (l *login) ask(ctx context.Context, c *Client, e *endpoint) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.CommandTimeout)
	defer cancel()
	resp, err := e.auth.Authenticate(ctx, &pb.AuthenticateRequest{Name: l.user, Password: l.password})
	if err = rpctypes.Error(err); errors.Is(err, rpctypes.ErrAuthNotEnabled) {
		// As etcdctl: credentials for a cluster without authentication are no error.
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return resp.Token, nil
}
