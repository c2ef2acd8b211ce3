package structure

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/pkg/v3/traceutil"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/lease/leasepb"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/verify/report"
)

func must(t testing.TB, err error) {
	t.Helper()
	require.NoError(t, err)
}

// made is a database that etcd's own packages write, without a server.
type made struct {
	t    testing.TB
	path string
	be   backend.Backend
	kv   mvcc.KV
}

const knownLease = 77

// newMade makes one with all of etcd's buckets, and something in each.
func newMade(t testing.TB) *made {
	t.Helper()
	m := &made{t: t, path: filepath.Join(t.TempDir(), "db")}
	m.open()
	m.close()
	m.edit(func(tx *bolt.Tx) error {
		put := func(bucket, key string, value []byte) {
			b, err := tx.CreateBucketIfNotExists([]byte(bucket))
			must(t, err)
			if key != "" {
				must(t, b.Put([]byte(key), value))
			}
		}
		message := func(m proto.Message) []byte {
			b, err := proto.Marshal(m)
			must(t, err)
			return b
		}
		put("meta", "consistent_index", []byte{0, 0, 0, 0, 0, 0, 0, 9})
		put("meta", "term", []byte{0, 0, 0, 0, 0, 0, 0, 2})
		put("meta", "storageVersion", []byte("3.7.0"))
		put("meta", "confState", []byte(`{"voters":[10,11],"learners":[12],"auto_leave":false}`))
		put("cluster", "clusterVersion", []byte("3.7.0"))
		for i, name := range []string{"a", "b", "c"} {
			put("members", fmt.Sprintf("%x", 10+i), fmt.Appendf(nil, `{"id":%d,"peerURLs":["http://%s:2380"],"name":%q,"clientURLs":["http://%s:2379"],"isLearner":%t}`, 10+i, name, name, name, i == 2))
		}
		put("members_removed", "ff", []byte("removed"))
		put("lease", string([]byte{0, 0, 0, 0, 0, 0, 0, knownLease}), message(&leasepb.Lease{ID: knownLease, TTL: 60, RemainingTTL: 30}))
		put("alarm", "", nil)
		put("auth", "authEnabled", []byte{1})
		put("auth", "authRevision", []byte{0, 0, 0, 0, 0, 0, 0, 5})
		put("authRoles", "reader", message(&authpb.Role{Name: []byte("reader"), KeyPermission: []*authpb.Permission{
			{PermType: authpb.READ, Key: []byte("a")}, {PermType: authpb.READ, Key: []byte("b"), RangeEnd: []byte("c")}}}))
		put("authUsers", "root", message(&authpb.User{Name: []byte("root"), Password: []byte("x"), Roles: []string{"root"}}))
		put("authUsers", "ann", message(&authpb.User{Name: []byte("ann"), Password: []byte("x"), Roles: []string{"reader", "root"}}))
		return nil
	})
	m.open()
	return m
}

func (m *made) open() {
	cfg := backend.DefaultBackendConfig(zap.NewNop())
	cfg.Path, cfg.UnsafeNoFsync, cfg.BatchInterval = m.path, true, time.Hour
	m.be = backend.New(cfg)
	m.kv = mvcc.NewStore(zap.NewNop(), m.be, &lease.FakeLessor{}, mvcc.StoreConfig{})
}

// txn makes one revision out of several changes.
func (m *made) txn(do func(mvcc.TxnWrite)) {
	tx := m.kv.Write(traceutil.TODO())
	do(tx)
	tx.End()
}

func (m *made) put(key, value string) {
	m.txn(func(tx mvcc.TxnWrite) { tx.Put([]byte(key), []byte(value), 0) })
}

func (m *made) delete(key string) {
	m.txn(func(tx mvcc.TxnWrite) { tx.DeleteRange([]byte(key), nil) })
}

func (m *made) compact(rev int64) {
	m.t.Helper()
	done, err := m.kv.Compact(traceutil.TODO(), rev)
	must(m.t, err)
	<-done
}

// schedule marks a revision as compacted, and does not compact.
func (m *made) schedule(rev int64) {
	tx := m.be.BatchTx()
	tx.LockOutsideApply()
	mvcc.UnsafeSetScheduledCompact(tx, rev)
	tx.Unlock()
}

// raise puts in a row without a value, as `etcdutl snapshot restore` does.
func (m *made) raise(rev int64) {
	tx := m.be.BatchTx()
	tx.LockOutsideApply()
	tx.UnsafePut(schema.Key, boltfile.Revision{Main: rev}.Bytes(), []byte{})
	tx.Unlock()
	m.schedule(rev)
}

func (m *made) close() []byte {
	m.t.Helper()
	must(m.t, errors.Join(m.kv.Close(), m.be.Close()))
	return m.bytes()
}

// bytes is the database as `etcdctl snapshot save` gets it: without the unused
// end of the file.
func (m *made) bytes() []byte {
	m.t.Helper()
	db, err := bolt.Open(m.path, 0o600, &bolt.Options{ReadOnly: true})
	must(m.t, err)
	var b bytes.Buffer
	must(m.t, db.View(func(tx *bolt.Tx) error {
		_, err := tx.WriteTo(&b)
		return err
	}))
	must(m.t, db.Close())
	return b.Bytes()
}

// edit changes the database behind etcd's back.
func (m *made) edit(do func(*bolt.Tx) error) {
	m.t.Helper()
	db, err := bolt.Open(m.path, 0o600, &bolt.Options{NoFreelistSync: true, NoSync: true})
	must(m.t, err)
	must(m.t, errors.Join(db.Update(do), db.Close()))
}

func checkBytes(t testing.TB, db []byte, o Options) Result {
	t.Helper()
	r, err := Check(t.Context(), bytes.NewReader(db), int64(len(db)), o)
	must(t, err)
	return r
}

func sound(t testing.TB, db []byte, o Options) Result {
	t.Helper()
	r := checkBytes(t, db, o)
	for _, f := range r.Findings {
		t.Errorf("false alarm: %s: %s", f.Kind, f)
	}
	return r
}

// hasFinding reports whether there is one of the kind with the text, in its place
// or its words.
func hasFinding(r Result, kind report.Kind, text string) bool {
	for _, f := range r.Findings {
		if f.Kind == kind && strings.Contains(f.String(), text) {
			return true
		}
	}
	return false
}

func readFile(t testing.TB, path string) []byte {
	b, err := os.ReadFile(path)
	must(t, err)
	return b
}
