package restore

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/store/storetest"
)

// dbOptions shape a database that no server wrote.
type dbOptions struct {
	keys           int
	valueSize      int
	pageSize       int // 0: the machine's
	clusterVersion string
	storageVersion string
	downgrade      string
	alarms         []*etcdserverpb.AlarmMember
}

// makeDB writes a small etcd database with etcd's own storage code.
func makeDB(t testing.TB, o dbOptions) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	if o.pageSize != 0 {
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{PageSize: o.pageSize, NoFreelistSync: true})
		require.NoError(t, err)
		require.NoError(t, db.Close())
	}
	be := backend.NewDefaultBackend(zap.NewNop(), path)
	kv := mvcc.NewStore(zap.NewNop(), be, &lease.FakeLessor{}, mvcc.StoreConfig{})
	for i := range o.keys {
		value := make([]byte, o.valueSize)
		for j := range value {
			value[j] = byte(i*31 + j*7)
		}
		kv.Put(fmt.Appendf(nil, "/key/%06d", i), value, lease.NoLease)
	}
	kv.Commit()
	require.NoError(t, kv.Close())
	tx := be.BatchTx()
	tx.LockOutsideApply()
	for _, b := range schema.AllBuckets {
		tx.UnsafeCreateBucket(b)
	}
	schema.UnsafeUpdateConsistentIndexForce(tx, 1234, 7)
	tx.UnsafePut(schema.Members, []byte("8e9e05c52164694d"), []byte(`{"id":10276657743932975437,"peerURLs":["http://old:2380"],"name":"old"}`))
	tx.UnsafePut(schema.MembersRemoved, []byte("00000000000000aa"), []byte("removed"))
	if o.clusterVersion != "" {
		tx.UnsafePut(schema.Cluster, schema.ClusterClusterVersionKeyName, []byte(o.clusterVersion))
	}
	if o.storageVersion != "" {
		tx.UnsafePut(schema.Meta, schema.MetaStorageVersionName, []byte(o.storageVersion))
	}
	if o.downgrade != "" {
		v, err := json.Marshal(map[string]any{"target-version": o.downgrade, "enabled": true})
		require.NoError(t, err)
		tx.UnsafePut(schema.Cluster, schema.ClusterDowngradeKeyName, v)
	}
	for _, a := range o.alarms {
		k, err := proto.Marshal(a)
		require.NoError(t, err)
		tx.UnsafePut(schema.Alarm, k, nil)
	}
	tx.Unlock()
	be.ForceCommit()
	require.NoError(t, be.Close())
	cutToPages(t, path)
	return path
}

// cutToPages makes a db file as long as a snapshot of it would be: bbolt
// preallocates 16 MiB.
func cutToPages(t testing.TB, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	info, err := f.Stat()
	require.NoError(t, err)
	db, err := boltfile.Open(t.Context(), f, info.Size())
	require.NoError(t, err)
	require.NoError(t, f.Truncate(db.Size()))
}

// small is a database that most tests restore.
func small(t testing.TB) snapshot.Image {
	t.Helper()
	return open(t, makeDB(t, dbOptions{keys: 200, valueSize: 300, clusterVersion: "3.5.0", storageVersion: ""}))
}

func open(t testing.TB, path string) snapshot.Image {
	t.Helper()
	image, err := snapshot.OpenFile(path)
	require.NoError(t, err)
	return image
}

// fakeImage lets a test fail the reader or change what it says.
type fakeImage struct {
	snapshot.Image
	sum    string
	reader func(io.ReadCloser) io.ReadCloser
}

func (f fakeImage) DatabaseSHA256() string { return f.sum }

func (f fakeImage) Open(ctx context.Context) (io.ReadCloser, error) {
	r, err := f.Image.Open(ctx)
	if err != nil || f.reader == nil {
		return r, err
	}
	return f.reader(r), nil
}

// served is a snapshot that `etcdctl snapshot save` took of a real server.
type served struct {
	path   string
	filled *storetest.Filled
}

var (
	servedMu  sync.Mutex
	servedAll = map[string]*served{}
	servedDir string // removed by TestMain
)

// realImage fills a server of a version once for all tests and saves a snapshot
// of it.
func realImage(t *testing.T, version string) *served {
	t.Helper()
	servedMu.Lock()
	defer servedMu.Unlock()
	if s := servedAll[version]; s != nil {
		return s
	}
	c := storetest.Start(t, storetest.Options{Version: version})
	s := &served{path: filepath.Join(servedDir, version+".snapshot")}
	s.filled = c.Fill(t, storetest.Load{Keys: 500, Overwrites: 100, Deletes: 50, Leases: 5, Compact: true, Users: 2})
	storetest.Etcdctl(t, version, "--endpoints="+c.Endpoints()[0],
		"--user="+storetest.RootUser+":"+storetest.RootPassword, "snapshot", "save", s.path)
	c.StopAll()
	servedAll[version] = s
	return s
}

// smallSegment saves the 128 MiB that etcd's log takes while it is made.
const smallSegment = 1 << 20

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childArgument {
		child()
		return
	}
	if len(os.Args) > 1 && os.Args[1] == attackerArgument {
		attacker()
		return
	}
	wal.SegmentSizeBytes = smallSegment
	var err error
	if servedDir, err = os.MkdirTemp("", "requorum-restore-"); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := os.RemoveAll(servedDir); err != nil {
		panic(err)
	}
	os.Exit(code)
}
