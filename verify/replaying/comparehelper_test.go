package replaying

import (
	"encoding/binary"
	"maps"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/lease/leasepb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// contents is all of a database: bucket, key, value.
type contents map[string]map[string][]byte

func (c contents) clone() contents {
	out := contents{}
	for name, rows := range c {
		out[name] = maps.Clone(rows)
	}
	return out
}

func (c contents) set(bucket, key string, value []byte) {
	if c[bucket] == nil {
		c[bucket] = map[string][]byte{}
	}
	c[bucket][key] = value
}

// put writes a revision of a key, del a deletion.
func (c contents) put(main, sub int64, kv *mvccpb.KeyValue) {
	kv.ModRevision = main
	c.set("key", rev(main, sub), encode(kv))
}

func (c contents) del(main, sub int64, key string) {
	c.set("key", rev(main, sub)+"t", encode(&mvccpb.KeyValue{Key: []byte(key)}))
}

func (c contents) compacted(scheduled, finished int64) {
	c.set("meta", "scheduledCompactRev", []byte(rev(scheduled, 0)))
	c.set("meta", "finishedCompactRev", []byte(rev(finished, 0)))
}

func (c contents) lease(id, ttl, left int64) {
	key := binary.BigEndian.AppendUint64(nil, uint64(id))
	c.set("lease", string(key), encode(&leasepb.Lease{ID: id, TTL: ttl, RemainingTTL: left}))
}

func rev(main, sub int64) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(main))
	return string(binary.BigEndian.AppendUint64(append(b, '_'), uint64(sub)))
}

func encode(m proto.Message) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

// sample has a row in every bucket that etcd has.
func sample() contents {
	c := contents{}
	c.put(2, 0, &mvccpb.KeyValue{Key: []byte("/a"), Value: []byte("one"), CreateRevision: 2, Version: 1})
	c.put(3, 0, &mvccpb.KeyValue{Key: []byte("/a"), Value: []byte("two"), CreateRevision: 2, Version: 2, Lease: 17})
	c.put(4, 0, &mvccpb.KeyValue{Key: []byte("/b"), Value: []byte("three"), CreateRevision: 4, Version: 1})
	c.put(4, 1, &mvccpb.KeyValue{Key: []byte("/c"), Value: []byte("secret"), CreateRevision: 4, Version: 1})
	c.del(5, 0, "/b")
	c.put(6, 0, &mvccpb.KeyValue{Key: []byte("/b"), Value: []byte("four"), CreateRevision: 6, Version: 1})
	c.set("meta", "consistent_index", binary.BigEndian.AppendUint64(nil, 99))
	c.set("meta", "term", binary.BigEndian.AppendUint64(nil, 3))
	c.set("meta", "confState", []byte(`{"voters":[1]}`))
	c.set("meta", "storageVersion", []byte("3.6.0"))
	c.set("meta", "other", []byte("x"))
	c.lease(17, 60, 0)
	c.lease(18, 600, 5)
	c.set("members", "1", []byte(`{"id":1,"peerURLs":["http://127.0.0.1:1"]}`))
	c.set("members_removed", "2", []byte("removed"))
	c.set("cluster", "clusterVersion", []byte("3.6.0"))
	c.set("cluster", "downgrade", []byte(`{"target-version":"","enabled":false}`))
	c.set("alarm", string(encode(&etcdserverpb.AlarmMember{MemberID: 1, Alarm: etcdserverpb.AlarmType_NOSPACE})), nil)
	c.set("auth", "authEnabled", []byte{1})
	c.set("auth", "authRevision", binary.BigEndian.AppendUint64(nil, 4))
	c.set("authUsers", "root", encode(&authpb.User{Name: []byte("root"), Password: []byte("$2a$hash"), Roles: []string{"root"}}))
	c.set("authRoles", "root", encode(&authpb.Role{Name: []byte("root")}))
	return c
}

// open writes contents to a database.
func open(t testing.TB, name string, c contents) Database {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true})
	require.NoError(t, err)
	err = db.Update(func(tx *bbolt.Tx) error {
		for bucket, rows := range c {
			b, err := tx.CreateBucket([]byte(bucket))
			if err != nil {
				return err
			}
			for k, v := range rows {
				if err := b.Put([]byte(k), v); err != nil {
					return err
				}
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, db.Close())
	return openFile(t, name, path)
}

func openFile(t testing.TB, name, path string) Database {
	t.Helper()
	f, err := snapshot.OpenFile(path)
	require.NoError(t, err)
	return Database{name, f}
}

func compareContents(t testing.TB, a, b contents) *report.Finding {
	t.Helper()
	f, err := compare(t.Context(), open(t, "A", a), open(t, "B", b), false)
	require.NoError(t, err)
	return f
}
