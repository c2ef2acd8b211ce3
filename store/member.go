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
)

// Member is a running bundled member: etcd in this process.
type Member struct {
	config MemberConfig
	etcd   *embed.Etcd
	gate   *gate

	dying   chan error
	closing chan struct{}
	once    sync.Once
	closed  chan struct{}
}

// ErrDataDirInUse says that another process runs on the data directory.
var ErrDataDirInUse = errors.New("the data directory is in use by another process")

// StartMember starts a member and waits until it is ready to serve, which
// takes a quorum of its cluster: members of one cluster are started at the same
// time (StartCluster does). When ctx ends before, the member is stopped and the
// data directory stays as it is. The caller closes the member.
//
// An existing data directory is started as what it is. One that belongs to a
// member of another name, or is in use, is an error.
func StartMember(ctx context.Context, config MemberConfig) (*Member, error) {
	config = config.withDefaults()
	g := newGate()
	cfg, err := config.embedConfig(g.options())
	if err != nil {
		return nil, err
	}
	if err := checkExisting(config); err != nil {
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
		config: config, etcd: etcd, gate: g,
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

// Config is what the member runs with, defaults filled in: StartMember with it
// starts it again.
func (m *Member) Config() MemberConfig { return m.config }

// Endpoints are the member's client URLs.
func (m *Member) Endpoints() []string { return slices.Clone(m.config.AdvertiseClientURLs) }

// ID is the member's ID, ClusterID its cluster's.
func (m *Member) ID() uint64 { return uint64(m.etcd.Server.MemberID()) }

// ClusterID is the ID of the member's cluster.
func (m *Member) ClusterID() uint64 { return uint64(m.etcd.Server.Cluster().ID()) }

// Err gives one error if the member ends by itself, and is closed when the
// member has ended.
func (m *Member) Err() <-chan error { return m.dying }

// Close stops the member cleanly: requests get a moment to finish, streams are
// ended, a leader hands over, everything is on disk when it returns. When ctx
// ends before, what is still to come is done as Kill does it, and Close
// returns the context's error.
func (m *Member) Close(ctx context.Context) error { return m.end(ctx, true) }

// Kill stops the member at once, without regard for requests in flight or for
// the rest of the cluster. What was acknowledged is on disk.
func (m *Member) Kill() {
	m.once.Do(func() {
		close(m.closing)
		m.finish(killGrace)
	})
	<-m.closed
}

const (
	// closeGrace is what a request in flight gets: a put needs milliseconds, and
	// one that lasts longer waits for a quorum that may be closing too.
	closeGrace = 500 * time.Millisecond
	killGrace  = 50 * time.Millisecond
)

// end closes the member; handOver is for one that others outlive.
func (m *Member) end(ctx context.Context, handOver bool) error {
	m.once.Do(func() {
		close(m.closing)
		go func() {
			m.gate.close(closeGrace)
			if handOver {
				done := make(chan struct{})
				go func() {
					defer close(done)
					// It fails where no other member is healthy: nobody to hand over to.
					_ = m.etcd.Server.TryTransferLeadershipOnShutdown()
				}()
				select {
				case <-done:
				case <-ctx.Done():
				}
			}
			m.finish(0)
		}()
	})
	select {
	case <-m.closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("store: closing member %s: %w", m.config.Name, context.Cause(ctx))
	}
}

// finish stops raft first and everything round it afterwards: etcd's own order
// would hand over the leadership again, to members that may be gone.
func (m *Member) finish(grace time.Duration) {
	if grace > 0 {
		m.gate.close(grace)
	}
	m.etcd.Server.HardStop()
	m.etcd.Close()
	close(m.closed)
}
