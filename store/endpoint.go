package store

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// endpoint is one address with a connection of its own.
type endpoint struct {
	name     string // as the user wrote it
	at       address
	conn     *grpc.ClientConn
	failures *connFailure
	disk     lastDisk

	maintenance pb.MaintenanceClient
	cluster     pb.ClusterClient
	kv          pb.KVClient
	auth        pb.AuthClient
}

// connFailure is the last failure to connect. gRPC keeps only its text, and
// the cause is told apart by type.
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
	if err != nil || host == "" || port == "" {
		return address{}, fmt.Errorf("endpoint %q: want host and port, such as http://10.0.0.1:2379", name)
	}
	return address{network: "tcp", addr: rest, authority: rest, useTLS: scheme == "https" || scheme == "" && wantsTLS}, nil
}

// newEndpoint prepares a connection; nothing is dialled before the first call.
func newEndpoint(name string, c ClientConfig, token credentials.PerRPCCredentials) (*endpoint, error) {
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
	conn, err := grpc.NewClient("passthrough:///"+at.addr,
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
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)),
	)
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
