package snapshot

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/pkg/v3/traceutil"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.uber.org/zap"
)

// madeStore is a store without a server, of whose database the test has the
// bytes.
type madeStore struct {
	t    *testing.T
	path string
	be   backend.Backend
	kv   mvcc.KV
}

func newMadeStore(t *testing.T) *madeStore {
	t.Helper()
	m := &madeStore{t: t, path: filepath.Join(t.TempDir(), "db")}
	m.open()
	return m
}

func (m *madeStore) open() {
	cfg := backend.DefaultBackendConfig(zap.NewNop())
	cfg.Path, cfg.UnsafeNoFsync = m.path, true
	m.be = backend.New(cfg)
	m.kv = mvcc.NewStore(zap.NewNop(), m.be, &lease.FakeLessor{}, mvcc.StoreConfig{})
}

func (m *madeStore) put(key, value string) {
	tx := m.kv.Write(traceutil.TODO())
	tx.Put([]byte(key), []byte(value), 0)
	tx.End()
}

func (m *madeStore) delete(key string) {
	tx := m.kv.Write(traceutil.TODO())
	tx.DeleteRange([]byte(key), nil)
	tx.End()
}

func (m *madeStore) compact(rev int64) {
	m.t.Helper()
	done, err := m.kv.Compact(traceutil.TODO(), rev)
	require.NoError(m.t, err)
	select {
	case <-done:
	case <-time.After(time.Minute):
		m.t.Fatal("compaction does not end")
	}
}

// close ends the store and returns its database.
func (m *madeStore) close() []byte {
	m.t.Helper()
	require.NoError(m.t, errors.Join(m.kv.Close(), m.be.Close()))
	b, err := os.ReadFile(m.path)
	require.NoError(m.t, err)
	return b
}

// edit changes the database behind etcd's back.
func (m *madeStore) edit(do func(*bolt.Tx) error) {
	m.t.Helper()
	db, err := bolt.Open(m.path, 0o600, nil)
	if err == nil {
		err = errors.Join(db.Update(do), db.Close())
	}
	require.NoError(m.t, err)
}
