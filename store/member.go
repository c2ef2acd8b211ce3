// Package store is the bundled etcd, embedded. It runs a Member, or a LocalCluster of
// 1, 3 or 5 on loopback. A client is in package client below.
//
// Errors name the member or its directory, the cause and the next step. The caller
// closes each Member and LocalCluster.
package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Member is a running bundled member: etcd in this process.
type Member struct {
	config MemberConfig
	etcd   *embed.Etcd
	gate   *gate
	level  zap.AtomicLevel // of etcd's log

	dying   chan error
	closing chan struct{}
	once    sync.Once
	closed  chan struct{}
}

// StartMember starts a member and waits until it is ready to serve, which
// takes a quorum of its cluster: members of one cluster are started at the same
// time (StartMembers does). When ctx ends before, the member is stopped and the
// data directory stays as it is. The caller closes the member.
func StartMember(ctx context.Context, config MemberConfig) (*Member, error) {
	config = config.withDefaults()
	g, level := newGate(), zap.NewAtomicLevelAt(zap.WarnLevel)
	logger, err := config.buildLogger(level)
	if err != nil {
		return nil, err
	}
	cfg, err := config.embedConfig(logger, g.options())
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{config.DataDir, config.WALDir} {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("store: member %s: %w", config.Name, err)
		}
	}
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, fmt.Errorf("store: starting member %s in %s: %w", config.Name, config.DataDir, err)
	}
	m := &Member{
		config: config, etcd: etcd, gate: g, level: level,
		dying: make(chan error, 1), closing: make(chan struct{}), closed: make(chan struct{}),
	}
	go m.watch()
	select {
	case <-etcd.Server.ReadyNotify():
		return m, nil
	case err = <-m.dying:
	case <-ctx.Done():
		err = fmt.Errorf("not ready to serve: %w; does a quorum of %s run?", context.Cause(ctx), config.InitialCluster)
	}
	m.Kill()
	return nil, fmt.Errorf("store: starting member %s in %s: %w", config.Name, config.DataDir, err)
}

// watch notices a member that ends by itself.
func (m *Member) watch() {
	defer close(m.dying)
	var err error
	select {
	case <-m.closing:
		return
	case err = <-m.etcd.Err():
	case <-m.etcd.Server.StopNotify():
		select {
		case <-m.closing:
			return
		default:
		}
		err = errors.New("it stopped by itself; was it removed from the cluster? Its log says why")
	}
	m.dying <- fmt.Errorf("member %s: %w", m.config.Name, err)
}

// DataDir returns the member's data directory.
func (m *Member) DataDir() string { return m.config.DataDir }

// Endpoints returns the member's client URLs.
func (m *Member) Endpoints() []string { return slices.Clone(m.config.ListenClientURLs) }

// ID is the member's ID, ClusterID its cluster's.
func (m *Member) ID() uint64 { return uint64(m.etcd.Server.MemberID()) }

// ClusterID is the ID of the member's cluster.
func (m *Member) ClusterID() uint64 { return uint64(m.etcd.Server.Cluster().ID()) }

// Err gives one error if the member ends by itself, and is closed when the
// member has ended.
func (m *Member) Err() <-chan error { return m.dying }

// Close stops the member cleanly: requests get a moment to finish, streams are
// ended, everything is on disk when it returns. A leader does not hand over. When ctx
// ends before, Close returns the context's error and the member is still being stopped.
func (m *Member) Close(ctx context.Context) error {
	go m.end(closeGrace)
	select {
	case <-m.closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("store: closing member %s: %w", m.config.Name, context.Cause(ctx))
	}
}

// Kill stops the member at once, without regard for requests in flight or for
// the rest of the cluster. What was acknowledged is on disk.
func (m *Member) Kill() { m.end(killGrace) }

const (
	// closeGrace is what a request in flight gets: a put needs milliseconds, and
	// one that lasts longer waits for a quorum that may be closing too.
	closeGrace = 500 * time.Millisecond
	killGrace  = 50 * time.Millisecond
)

// end stops the member, and returns when it is stopped. It stops raft first and
// everything round it afterwards: etcd's own order would hand over the leadership, to
// members that may have ended.
func (m *Member) end(grace time.Duration) {
	m.once.Do(func() {
		close(m.closing)
		// etcd logs each listener that is closed on purpose as an error.
		m.level.SetLevel(zap.DPanicLevel)
		m.gate.close(grace)
		m.etcd.Server.HardStop()
		m.etcd.Close()
		close(m.closed)
	})
	<-m.closed
}

// gate stands in front of an embedded member's clients, so that it can be
// closed quickly. etcd's own Close waits seconds for watches and other streams
// to end by themselves; and a server that is stopped under a running request
// may panic, which here would be our process.
type gate struct {
	streams context.Context // ends when the gate closes
	unary   context.Context // ends when requests had time to finish
	shut    context.CancelFunc
	abort   context.CancelFunc

	mu     sync.Mutex
	closed bool
	inside sync.WaitGroup
}

var errGateClosed = errors.New("the member is shutting down")

func newGate() *gate {
	g := &gate{}
	g.streams, g.shut = context.WithCancel(context.Background())
	g.unary, g.abort = context.WithCancel(context.Background())
	return g
}

func (g *gate) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			ctx, leave, err := g.enter(ctx, g.unary)
			if err != nil {
				return nil, err
			}
			defer leave()
			return next(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			ctx, leave, err := g.enter(stream.Context(), g.streams)
			if err != nil {
				return err
			}
			defer leave()
			return next(srv, &gatedStream{ServerStream: stream, ctx: ctx})
		}),
	}
}

// enter lets a call in, with a context that also ends with until.
func (g *gate) enter(ctx, until context.Context) (context.Context, func(), error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, nil, status.Error(codes.Unavailable, errGateClosed.Error())
	}
	g.inside.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(until, func() { cancel(errGateClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		g.inside.Done()
	}, nil
}

// close lets nobody in any more, ends the streams, and gives requests grace to
// finish. It reports whether all are out after at most twice that.
func (g *gate) close(grace time.Duration) bool {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.shut()
	empty := make(chan struct{})
	go func() {
		g.inside.Wait()
		close(empty)
	}()
	for range 2 {
		select {
		case <-empty:
			g.abort()
			return true
		case <-time.After(grace):
			g.abort()
		}
	}
	return false
}

type gatedStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context ends with the gate.
func (s *gatedStream) Context() context.Context { return s.ctx }
