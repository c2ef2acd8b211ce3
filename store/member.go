// Package store is the bundled Raft store: etcd itself, embedded. It runs a Member,
// or a LocalCluster of 1, 3, 5 or 7. A client is in package client below.
//
// Errors name the member or its folder, the cause and the next step. The caller
// closes each Member and LocalCluster.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/store/safedir"
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

// existing is what a data directory says about the member that it belongs to.
type existing struct {
	ClusterID, MemberID  uint64
	Name                 string // empty where the database does not know it (yet)
	PeerURLs, ClientURLs []string
	Members              int // that the database knows
}

// lockWait is how long a database's lock is waited for. A member that is just
// ending frees it within that time.
const lockWait = time.Second

// readExisting looks into a data directory without changing it; nil where it
// holds no member. etcd takes a directory with a WAL for a member's.
func readExisting(dataDir, walDir string) (*existing, error) {
	if walDir == "" {
		walDir = filepath.Join(dataDir, "member", "wal")
	}
	segments, err := safedir.Names(walDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("store: data directory %s: %w", dataDir, err)
	}
	segments = slices.DeleteFunc(segments, func(name string) bool { return !strings.HasSuffix(name, ".wal") })
	if len(segments) == 0 {
		return nil, nil
	}
	var e existing
	if e.MemberID, e.ClusterID, err = walIdentity(filepath.Join(walDir, segments[0])); err != nil {
		return nil, fmt.Errorf("store: data directory %s: who it belongs to cannot be read: %w", dataDir, err)
	}
	if err := e.readMembers(filepath.Join(dataDir, "member", "snap", "db")); err != nil {
		return nil, fmt.Errorf("store: data directory %s: %w", dataDir, err)
	}
	return &e, nil
}

// walIdentity reads the metadata record that opens each segment.
func walIdentity(path string) (memberID, clusterID uint64, err error) {
	f, err := safedir.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = f.Close() }() // only read
	decoder := wal.NewDecoder(fileutil.NewFileReader(f))
	for {
		var record walpb.Record
		if err := decoder.Decode(&record); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return 0, 0, fmt.Errorf("%s: looking for the metadata record: %w", path, err)
		}
		if record.GetType() != wal.MetadataType {
			continue
		}
		var metadata pb.Metadata
		if err := proto.Unmarshal(record.Data, &metadata); err != nil {
			return 0, 0, fmt.Errorf("%s: metadata record: %w", path, err)
		}
		return metadata.GetNodeID(), metadata.GetClusterID(), nil
	}
}

// readMembers looks the member up in its database. A directory whose database
// is not there yet is one that etcd was stopped in while it made it.
func (e *existing) readMembers(path string) error {
	if _, err := safedir.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{
		ReadOnly: true, Timeout: lockWait,
		OpenFile: func(name string, _ int, _ os.FileMode) (*os.File, error) { return safedir.Open(name) },
	})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return fmt.Errorf("%w; stop it first", ErrDataDirInUse)
	}
	if err != nil {
		return fmt.Errorf("opening %s: %w", path, err)
	}
	defer func() { _ = db.Close() }() // only read
	return db.View(func(tx *bolt.Tx) error {
		bucket := tx.Bucket([]byte("members"))
		if bucket == nil {
			return nil
		}
		return bucket.ForEach(func(key, value []byte) error {
			var m struct {
				ID         uint64   `json:"id"`
				Name       string   `json:"name"`
				PeerURLs   []string `json:"peerURLs"`
				ClientURLs []string `json:"clientURLs"`
			}
			if err := json.Unmarshal(value, &m); err != nil {
				return fmt.Errorf("%s: member %s: %w", path, key, err)
			}
			e.Members++
			if m.ID == e.MemberID {
				e.Name, e.PeerURLs, e.ClientURLs = m.Name, m.PeerURLs, m.ClientURLs
			}
			return nil
		})
	})
}

// checkExisting refuses what etcd would start into confusion: under another
// name a member renames itself in the cluster, so that two have one name.
func checkExisting(c MemberConfig) error {
	e, err := readExisting(c.DataDir, c.WALDir)
	if err != nil || e == nil {
		return err
	}
	if e.Name != "" && e.Name != c.Name {
		return fmt.Errorf("store: data directory %s belongs to member %q (%x of cluster %x), and %q was asked for; give its own name, or another directory",
			c.DataDir, e.Name, e.MemberID, e.ClusterID, c.Name)
	}
	return nil
}

func sameURLs(a, b []string) bool {
	normal := func(urls []string) []string {
		var out []string
		for _, u := range urls {
			out = append(out, strings.TrimSuffix(u, "/"))
		}
		slices.Sort(out)
		return out
	}
	return slices.Equal(normal(a), normal(b))
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
