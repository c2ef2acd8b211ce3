// Package client knows which member of any etcd 3.5 to 3.7 to ask.
//
// What it promises:
//
//  1. A Client never balances between endpoints: each call goes to the member
//     that it names, and an answer by another member is an error.
//  2. A Barrier is only given where a quorum confirmed it. A member that is cut
//     off from its quorum never gives one.
//  3. Members of different clusters in one list of endpoints are an error
//     (MixedClustersError), never a choice.
//  4. Nothing here proposes an entry to the raft log, except that logging in
//     with a password does (etcd's Authenticate goes through the log), and what a
//     caller makes of Client.Ask.
//  5. Errors name the endpoint, the cause and the next step, and never hold a
//     password or a token.
//
// What its caller owes: Close for each Client and SnapshotStream; a context that
// ends, for calls whose comment says that only the context bounds them.
package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// Client asks single members of one etcd cluster, each over a connection of its
// own. It is safe for concurrent use.
type Client struct {
	config Config
	login  *login

	mu        sync.RWMutex
	endpoints []*endpoint // as configured, then as discovered
}

// Dial prepares a Client, and logs in where a user is given. It does not need
// all endpoints to answer, nor any where no user is given: Survey shows it.
func Dial(ctx context.Context, config Config) (*Client, error) {
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
// is renewed, and the request made once more; for a moment more often, since a member
// knows a token when it has applied the login, which others may have done before it.
func (c *Client) call(ctx context.Context, e *endpoint, what string, do func(context.Context) error) error {
	old := c.login.get()
	err := rpctypes.Error(do(ctx))
	if expiredToken(err) && c.login.wanted() {
		if err := c.login.refresh(ctx, c, old); err != nil {
			return err
		}
		err = rpctypes.Error(do(ctx))
		for pause := 10 * time.Millisecond; expiredToken(err) && pause < time.Second; pause *= 2 {
			select {
			case <-ctx.Done():
				return e.explain(what, err)
			case <-time.After(pause):
			}
			err = rpctypes.Error(do(ctx))
		}
	}
	return e.explain(what, err)
}

// expiredToken reports whether a login ended, and was not refused. Members
// forget simple tokens when they restart.
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

// endpoint is one address with a connection of its own.
type endpoint struct {
	name     string // as the user wrote it
	at       address
	conn     *grpc.ClientConn
	failures *connFailure

	maintenance pb.MaintenanceClient
	cluster     pb.ClusterClient
	kv          pb.KVClient
	auth        pb.AuthClient
}

// connFailure is the last failure to connect. gRPC keeps only its text, and
// the cause is distinguished by type.
type connFailure struct {
	mu  sync.Mutex
	err error
}

func (f *connFailure) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *connFailure) get() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// address is an endpoint taken apart.
type address struct {
	network, addr string
	authority     string // the name that a certificate must carry
	useTLS        bool
}

func parseEndpoint(name string, wantsTLS bool) (address, error) {
	scheme, rest, found := strings.Cut(name, "://")
	if !found {
		if s, local, ok := strings.Cut(name, ":"); ok && (s == "unix" || s == "unixs") {
			scheme, rest = s, local
		} else {
			scheme, rest = "", name
		}
	}
	switch scheme {
	case "unix", "unixs":
		if rest == "" {
			return address{}, fmt.Errorf("endpoint %q: no path of a socket", name)
		}
		host, _, _ := strings.Cut(path.Base(rest), ":")
		return address{network: "unix", addr: rest, authority: host, useTLS: scheme == "unixs" || wantsTLS}, nil
	case "http", "https":
		u, err := url.Parse(name)
		if err != nil {
			return address{}, fmt.Errorf("endpoint %q: %w", name, err)
		}
		if u.User != nil || (u.Path != "" && u.Path != "/") || u.RawQuery != "" {
			return address{}, fmt.Errorf("endpoint %q: want only scheme, host and port, such as http://10.0.0.1:2379", u.Redacted())
		}
		rest = u.Host
	case "":
	default:
		return address{}, fmt.Errorf("endpoint %q: scheme %q is not known; use http, https, unix or unixs", name, scheme)
	}
	host, port, err := net.SplitHostPort(rest)
	if bare := strings.TrimSuffix(rest, ":"); bare != "" && port == "" && (!strings.Contains(bare, ":") || strings.HasSuffix(bare, "]")) {
		return address{}, fmt.Errorf("endpoint %q has no port: write %s:2379", name, strings.TrimRight(name, ":/"))
	}
	if err != nil || host == "" || port == "" {
		return address{}, fmt.Errorf("endpoint %q: want host and port, such as http://10.0.0.1:2379", name)
	}
	return address{network: "tcp", addr: rest, authority: rest, useTLS: scheme == "https" || scheme == "" && wantsTLS}, nil
}

// maxAnswer bounds a message from a member: more than a value and the list of five
// million leases have. What answers may be no member.
const maxAnswer = 64 << 20

// newEndpoint prepares a connection; nothing is dialled before the first call.
func newEndpoint(name string, c Config, token credentials.PerRPCCredentials, more ...grpc.DialOption) (*endpoint, error) {
	at, err := parseEndpoint(name, c.wantsTLS())
	if err != nil {
		return nil, err
	}
	failures := &connFailure{}
	transport := insecure.NewCredentials()
	if at.useTLS {
		transport = &tlsFiles{config: c, failures: failures}
		if c.ServerName != "" {
			at.authority = c.ServerName
		}
	}
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, at.network, at.addr)
		failures.set(err)
		return conn, err
	}
	conn, err := grpc.NewClient("passthrough:///"+at.addr, append([]grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithPerRPCCredentials(token),
		grpc.WithAuthority(at.authority),
		grpc.WithContextDialer(dial),
		grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
			MinConnectTimeout: c.DialTimeout,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: c.KeepAliveTime, Timeout: c.KeepAliveTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
	}, more...)...)
	if err != nil {
		return nil, fmt.Errorf("endpoint %q: %w", name, err)
	}
	return &endpoint{
		name: name, at: at, conn: conn, failures: failures,
		maintenance: pb.NewMaintenanceClient(conn),
		cluster:     pb.NewClusterClient(conn),
		kv:          pb.NewKVClient(conn),
		auth:        pb.NewAuthClient(conn),
	}, nil
}

// Ask makes a request of the caller's own to a member, over the connection and
// with the login that this client has, and explains its error. That the answer is
// of that member the caller makes sure of, by its header. Only ctx bounds
// it, and whether it proposes an entry to the log is up to the caller.
func (c *Client) Ask(ctx context.Context, member MemberStatus, what string, do func(context.Context, grpc.ClientConnInterface) error) error {
	e, err := c.known(member.Endpoint)
	if err != nil {
		return err
	}
	return c.call(ctx, e, what, func(ctx context.Context) error { return do(ctx, e.conn) })
}

// ask makes a request to a member, whose answer has to be of that member.
func (c *Client) ask(ctx context.Context, member MemberStatus, what string, do func(context.Context, *endpoint) (*pb.ResponseHeader, error)) error {
	e, err := c.known(member.Endpoint)
	if err != nil {
		return err
	}
	var header *pb.ResponseHeader
	err = c.call(ctx, e, what, func(ctx context.Context) (err error) {
		header, err = do(ctx, e)
		return err
	})
	if err != nil {
		return err
	}
	return sameMember(e, member, header.GetMemberId(), header.GetClusterId())
}

// HashKV is a member's hash of its key-value history. Two hashes can be
// compared when HashRevision and CompactRevision are equal.
type HashKV struct {
	Hash            uint32
	HashRevision    int64 // the revision that the hash goes up to
	CompactRevision int64
	Revision        int64 // of the member when it answered
}

// HashKV asks the member for its hash at a revision; 0 is its newest. The
// member is frozen while it computes (about a second for 1.4 GB): ask a
// follower, and rarely. With authentication on it needs the root role. Only
// ctx bounds it.
func (c *Client) HashKV(ctx context.Context, member MemberStatus, revision int64) (HashKV, error) {
	var resp *pb.HashKVResponse
	err := c.ask(ctx, member, "asking for HashKV", func(ctx context.Context, e *endpoint) (_ *pb.ResponseHeader, err error) {
		resp, err = e.maintenance.HashKV(ctx, &pb.HashKVRequest{Revision: revision})
		return resp.GetHeader(), err
	})
	if err != nil {
		return HashKV{}, err
	}
	out := HashKV{Hash: resp.Hash, HashRevision: resp.HashRevision, CompactRevision: resp.CompactRevision, Revision: resp.Header.GetRevision()}
	if out.HashRevision == 0 { // servers before 3.6 do not say
		out.HashRevision = revision
		if revision == 0 {
			out.HashRevision = out.Revision
		}
	}
	return out, nil
}

// CountKeys counts the keys that live at a revision (0: now), from the
// member's own index, without a quorum. With authentication on the user needs
// the right to read all keys. Only ctx bounds it.
func (c *Client) CountKeys(ctx context.Context, member MemberStatus, revision int64) (int64, error) {
	all := &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, Revision: revision, CountOnly: true, Serializable: true}
	var resp *pb.RangeResponse
	err := c.ask(ctx, member, "counting the keys", func(ctx context.Context, e *endpoint) (_ *pb.ResponseHeader, err error) {
		resp, err = e.kv.Range(ctx, all)
		return resp.GetHeader(), err
	})
	if err != nil {
		return 0, err
	}
	return resp.Count, nil
}
