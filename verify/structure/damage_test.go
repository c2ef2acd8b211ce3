package structure

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/lease/leasepb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/verify/report"
)

// sample is a database with some of everything: many pages, pages that extend
// over others, deletions, transactions, a finished compaction.
func sample(t testing.TB) *made {
	m := newMade(t)
	for i := range 300 {
		m.put("key-"+strconv.Itoa(i%60), fmt.Sprintf("value %d %s", i, bytes.Repeat([]byte("x"), 100)))
	}
	m.put("long", string(make([]byte, 20_000)))
	m.delete("key-3")
	m.compact(200)
	m.txn(func(tx mvcc.TxnWrite) {
		tx.Put([]byte("two-1"), []byte("1"), 0)
		tx.Put([]byte("two-2"), []byte("2"), knownLease)
	})
	m.delete("key-4")
	m.put("key-4", "again")
	m.put("key-4", "and again")
	return m
}

// Promises 1 to 5: each way to damage the content is found, as the fault that
// it is, and as that one alone.
func TestContentDamage(t *testing.T) {
	kv := func(m *mvccpb.KeyValue) []byte {
		b, err := proto.Marshal(m)
		must(t, err)
		return b
	}
	message := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		must(t, err)
		return b
	}
	// change decodes the row of a revision, changes it, and puts it back.
	change := func(tx *bolt.Tx, main, sub int64, do func(*mvccpb.KeyValue)) error {
		b := tx.Bucket([]byte("key"))
		var row mvccpb.KeyValue
		if err := proto.Unmarshal(b.Get(boltfile.Revision{Main: main, Sub: sub}.Bytes()), &row); err != nil {
			return err
		}
		do(&row)
		return b.Put(boltfile.Revision{Main: main, Sub: sub}.Bytes(), kv(&row))
	}
	put := func(bucket, key string, value []byte) func(*bolt.Tx) error {
		return func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte(bucket))
			if err != nil {
				return err
			}
			return b.Put([]byte(key), value)
		}
	}
	del := func(bucket, key string) func(*bolt.Tx) error {
		return func(tx *bolt.Tx) error {
			if tx.Bucket([]byte(bucket)).Get([]byte(key)) == nil {
				return fmt.Errorf("no %q in %s", key, bucket)
			}
			return tx.Bucket([]byte(bucket)).Delete([]byte(key))
		}
	}
	// The revisions of the sample: 301 is the last key-N, 302 long, 303 the
	// deletion, 304 two changes, 305 a deletion, 306 and 307 key-4.
	cases := []struct {
		name string
		do   func(*bolt.Tx) error
		kind report.Kind
		text string
		more int // findings that it brings with it
	}{
		{"mod revision", func(tx *bolt.Tx) error {
			return change(tx, 250, 0, func(r *mvccpb.KeyValue) { r.ModRevision++ })
		}, report.KindHistory, "revision 250: its mod revision is 251", 0},
		{"create revision", func(tx *bolt.Tx) error {
			return change(tx, 250, 0, func(r *mvccpb.KeyValue) { r.CreateRevision++ })
		}, report.KindHistory, "revision 250: its create revision is", 0},
		{"create revision after mod", func(tx *bolt.Tx) error {
			return change(tx, 250, 0, func(r *mvccpb.KeyValue) { r.CreateRevision = 251 })
		}, report.KindHistory, "revision 250: its create revision is 251", 0},
		{"version", func(tx *bolt.Tx) error { return change(tx, 250, 0, func(r *mvccpb.KeyValue) { r.Version++ }) },
			report.KindHistory, "revision 250: version 6 follows version 4", 0},
		{"version beyond reach", func(tx *bolt.Tx) error { return change(tx, 250, 0, func(r *mvccpb.KeyValue) { r.Version = 1000 }) },
			report.KindHistory, "version 1000 cannot be reached", 0},
		{"version 0", func(tx *bolt.Tx) error { return change(tx, 250, 0, func(r *mvccpb.KeyValue) { r.Version = 0 }) },
			report.KindHistory, "its version is 0", 0},
		{"version 1 of an older key", func(tx *bolt.Tx) error { return change(tx, 250, 0, func(r *mvccpb.KeyValue) { r.Version = 1 }) },
			report.KindHistory, "it is version 1, and was created at", 0},
		{"made anew without a deletion", func(tx *bolt.Tx) error {
			return change(tx, 250, 0, func(r *mvccpb.KeyValue) { r.Version, r.CreateRevision = 1, 250 })
		}, report.KindHistory, "makes a key anew that is there", 0},
		{"version goes on after a deletion", func(tx *bolt.Tx) error {
			return change(tx, 306, 0, func(r *mvccpb.KeyValue) { r.Version, r.CreateRevision = 7, 6 })
		}, report.KindHistory, `key "key-4", revision 306: it is version 7 of a key that is not there`, 0},
		{"another key's row", func(tx *bolt.Tx) error {
			return change(tx, 307, 0, func(r *mvccpb.KeyValue) { r.Key = []byte("never") })
		}, report.KindHistory, `key "never", revision 307: it is version 2 of a key that is not there`, 0},
		{"twice in a revision", func(tx *bolt.Tx) error {
			return change(tx, 304, 1, func(r *mvccpb.KeyValue) { r.Key, r.Lease = []byte("two-1"), 0 })
		}, report.KindHistory, `key "two-1", revision 304.1: the key is changed twice`, 0},
		{"a revision is gone", del("key", string(boltfile.Revision{Main: 301}.Bytes())), report.KindHistory, "revision 302: it follows revision 300", 0},
		{"the first revision after the compaction is gone", del("key", string(boltfile.Revision{Main: 201}.Bytes())), report.KindHistory, "the first after the compacted revision 200", 1},
		{"a change of a transaction is gone", del("key", string(boltfile.Revision{Main: 304}.Bytes())), report.KindHistory, "revision 304.1: it follows revision 303", 0},
		{"a deletion is gone", del("key", string(append(boltfile.Revision{Main: 305}.Bytes(), 't'))), report.KindHistory, "makes a key anew", 1},
		{"a deletion of nothing", put("key", string(append(boltfile.Revision{Main: 308}.Bytes(), 't')), kv(&mvccpb.KeyValue{Key: []byte("key-3")})),
			report.KindHistory, `key "key-3", revision 308: it deletes a key that is not there`, 0},
		{"a deletion with a version", put("key", string(append(boltfile.Revision{Main: 308}.Bytes(), 't')), kv(&mvccpb.KeyValue{Key: []byte("key-4"), Version: 2})),
			report.KindHistory, "holds more than the key", 0},
		{"a row that compaction had to remove", put("key", string(boltfile.Revision{Main: 100}.Bytes()), kv(&mvccpb.KeyValue{Key: []byte("key-38"), CreateRevision: 40, ModRevision: 100, Version: 2})),
			report.KindHistory, "had to remove the key's row at revision 100", 0},
		{"a deletion that compaction had to remove", put("key", string(append(boltfile.Revision{Main: 100}.Bytes(), 't')), kv(&mvccpb.KeyValue{Key: []byte("gone")})),
			report.KindHistory, "had to remove this deletion", 0},
		{"an unknown compaction", put("meta", "finishedCompactRev", boltfile.Revision{Main: 250}.Bytes()), report.KindHistory, "and the last one that was scheduled is of 200", 51},
		{"a row without a key", put("key", string(boltfile.Revision{Main: 308}.Bytes()), kv(&mvccpb.KeyValue{CreateRevision: 308, ModRevision: 308, Version: 1})), report.KindHistory, "it has no key", 0},
		{"a value that is no message", put("key", string(boltfile.Revision{Main: 308}.Bytes()), []byte("\xff\xff")), report.KindRow, "revision 308: it cannot be decoded", 0},
		{"fields out of order", put("key", string(boltfile.Revision{Main: 308}.Bytes()), append(kv(&mvccpb.KeyValue{Version: 1}), kv(&mvccpb.KeyValue{Key: []byte("a"), ModRevision: 308, CreateRevision: 308})...)),
			report.KindRow, "comes after field", 0},
		{"an unknown field", put("key", string(boltfile.Revision{Main: 308}.Bytes()), append(kv(&mvccpb.KeyValue{Key: []byte("a"), ModRevision: 308, CreateRevision: 308, Version: 1}), 0x38, 1)),
			report.KindRow, "unknown field 7", 0},
		{"a row that is no revision", put("key", "x", nil), report.KindRow, "it is no revision", 0},
		{"a bucket inside the key bucket", func(tx *bolt.Tx) error {
			_, err := tx.Bucket([]byte("key")).CreateBucket(boltfile.Revision{Main: 308}.Bytes())
			return err
		}, report.KindRow, "it is a bucket", 0},
		{"a key on no lease", func(tx *bolt.Tx) error { return change(tx, 307, 0, func(r *mvccpb.KeyValue) { r.Lease = 78 }) },
			report.KindLease, `key "key-4", revision 307: the key hangs on a lease that does not exist`, 0},
		{"a lease is gone", del("lease", "\x00\x00\x00\x00\x00\x00\x00\x4d"), report.KindLease, `key "two-2", revision 304: the key hangs`, 0},
		{"a lease of another ID", put("lease", "\x00\x00\x00\x00\x00\x00\x00\x4d", message(&leasepb.Lease{ID: 76, TTL: 5})), report.KindLease, "lease 4d: it says that its ID is 4c", 0},
		{"a lease without a TTL", put("lease", "\x00\x00\x00\x00\x00\x00\x00\x4d", message(&leasepb.Lease{ID: 77})), report.KindLease, "a TTL of 0", 0},
		{"a lease that ends in the far future", put("lease", "\x00\x00\x00\x00\x00\x00\x00\x4d", message(&leasepb.Lease{ID: 77, TTL: 1 << 40})), report.KindLease, "etcd grants 1 to", 0},
		{"a lease that remains too long", put("lease", "\x00\x00\x00\x00\x00\x00\x00\x4d", message(&leasepb.Lease{ID: 77, TTL: 5, RemainingTTL: 6})), report.KindLease, "6 seconds remain, of 5", 0},
		{"a lease that is no message", put("lease", "\x00\x00\x00\x00\x00\x00\x00\x4d", []byte("\xff")), report.KindLease, "cannot be decoded", 0},
		{"a lease with an odd key", put("lease", "short", nil), report.KindLease, "no lease's ID", 0},
		{"lease 0", put("lease", "\x00\x00\x00\x00\x00\x00\x00\x00", message(&leasepb.Lease{TTL: 5})), report.KindLease, "ID 0 means no lease", 0},
		{"a role is gone", del("authRoles", "reader"), report.KindAuth, `user "ann" has the role "reader", which does not exist`, 0},
		{"root is gone", del("authUsers", "root"), report.KindAuth, "there is no user root", 0},
		{"root without its role", put("authUsers", "root", message(&authpb.User{Name: []byte("root")})), report.KindAuth, "has not the role root", 0},
		{"a user of another name", put("authUsers", "bob", message(&authpb.User{Name: []byte("ann")})), report.KindAuth, `user "bob" says that its name is "ann"`, 0},
		{"a user that is no message", put("authUsers", "bob", []byte("\xff")), report.KindAuth, `user "bob" cannot be decoded`, 0},
		{"roles out of order", put("authUsers", "bob", message(&authpb.User{Name: []byte("bob"), Roles: []string{"root", "reader"}})), report.KindAuth, "its roles are not in order", 0},
		{"a role of another name", put("authRoles", "x", message(&authpb.Role{Name: []byte("y")})), report.KindAuth, `role "x" says`, 0},
		{"a role that is no message", put("authRoles", "x", []byte("\xff")), report.KindAuth, `role "x" cannot be decoded`, 0},
		{"permissions out of order", put("authRoles", "x", message(&authpb.Role{Name: []byte("x"), KeyPermission: []*authpb.Permission{{Key: []byte("b")}, {Key: []byte("a")}}})), report.KindAuth, "not in order", 0},
		{"a permission of no type", put("authRoles", "x", message(&authpb.Role{Name: []byte("x"), KeyPermission: []*authpb.Permission{{Key: []byte("b"), PermType: 9}}})), report.KindAuth, "unknown type 9", 0},
		{"neither on nor off", put("auth", "authEnabled", []byte{2}), report.KindAuth, "neither on nor off", 0},
		{"a short auth revision", put("auth", "authRevision", []byte{2}), report.KindAuth, "authRevision has 1 bytes", 0},
		{"an alarm that is no message", put("alarm", "\xff", nil), report.KindRow, "an alarm cannot be decoded", 0},
		{"an alarm of no type", put("alarm", "\x08\x0a\x10\x09", nil), report.KindRow, "unknown type 9", 0},
		{"a member of another ID", put("members", "a", []byte(`{"id":99,"peerURLs":["http://a:2380"]}`)), report.KindMembership, "says that its ID is", 0},
		{"a member that is no JSON", put("members", "a", []byte(`{`)), report.KindMembership, "cannot be decoded", 1},
		{"a member with an odd key", put("members", "m1", []byte(`{}`)), report.KindMembership, `key "m1" is no member's ID`, 0},
		{"a member without a URL", put("members", "a", []byte(`{"id":10}`)), report.KindMembership, "has no peer URL", 0},
		{"a member with a bad URL", put("members", "a", []byte(`{"id":10,"peerURLs":["a"]}`)), report.KindMembership, "which is none", 0},
		{"one URL for two", put("members", "a", []byte(`{"id":10,"peerURLs":["http://b:2380"]}`)), report.KindMembership, "have the same peer URL", 0},
		{"a member that was removed", put("members_removed", "a", []byte("removed")), report.KindMembership, "among those that were removed", 1},
		{"members that raft does not have", both(put("members", "d", []byte(`{"id":13,"peerURLs":["http://d:2380"]}`)), put("members", "e", []byte(`{"id":14,"peerURLs":["http://e:2380"]}`))),
			report.KindMembership, "not in the raft configuration", 1},
		{"members that only raft has", both(del("members", "a"), del("members", "b")), report.KindMembership, "which is not among the members", 1},
		{"a learner that votes, and another change", put("meta", "confState", []byte(`{"voters":[11,12]}`)), report.KindMembership, "is a learner, and a voter in", 1},
		{"a voter that learns", put("meta", "confState", []byte(`{"voters":[10],"learners":[11,12]}`)), report.KindMembership, "is a voter, and a learner in", 0},
		{"no configuration", put("meta", "confState", []byte(`x`)), report.KindMembership, "confState cannot be decoded", 0},
		{"no index", del("meta", "consistent_index"), report.KindRow, "consistent_index is missing or 0", 0},
		{"a short index", put("meta", "consistent_index", []byte("x")), report.KindRow, "consistent_index has 1 bytes", 0},
		{"a short term", put("meta", "term", []byte("x")), report.KindRow, "term has 1 bytes", 0},
		{"an odd compaction", put("meta", "scheduledCompactRev", []byte("x")), report.KindRow, "scheduledCompactRev is no revision", 1},
		{"an odd storage version", put("meta", "storageVersion", []byte("three")), report.KindRow, "is no version", 0},
		{"an odd cluster version", put("cluster", "clusterVersion", []byte("three")), report.KindRow, "is no version", 0},
		{"an odd downgrade", put("cluster", "downgrade", []byte("x")), report.KindRow, "downgrade cannot be decoded", 0},
		{"a downgrade to nowhere", put("cluster", "downgrade", []byte(`{"target-version":"x","enabled":true}`)), report.KindRow, "is no version", 0},
		{"a bucket is gone", func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte("alarm")) }, report.KindBucket, "bucket alarm is missing", 0},
		{"the key bucket is gone", func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte("key")) }, report.KindBucket, "bucket key is missing", 0},
		{"a bucket inside a bucket", func(tx *bolt.Tx) error {
			_, err := tx.Bucket([]byte("lease")).CreateBucket([]byte("inner"))
			return err
		}, report.KindBucket, "has a bucket", 0},
	}
	base := sample(t)
	sound(t, base.close(), Options{})
	good := readFile(t, base.path)
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			m := &made{t: t, path: base.path}
			must(t, os.WriteFile(m.path, good, 0o600))
			m.edit(test.do)
			r := checkBytes(t, m.bytes(), Options{})
			if !hasFinding(r, test.kind, test.text) {
				t.Errorf("not found: %q", r.Findings)
			}
			if len(r.Findings) > 1+test.more {
				t.Errorf("%d findings: %q", len(r.Findings), r.Findings)
			}
		})
	}
}

// both makes two changes.
func both(a, b func(*bolt.Tx) error) func(*bolt.Tx) error {
	return func(tx *bolt.Tx) error { return errors.Join(a(tx), b(tx)) }
}

// What is odd, and no fault, is noted: a member's change that is in the raft configuration and
// not in the members yet, or the other way round; the raft configuration of the old cluster,
// which what etcdutl restored keeps until a member is changed; what another version writes.
func TestNotes(t *testing.T) {
	const changed, restored = "in which that member was changed", "that etcdutl restored"
	put := func(bucket, key, value string) func(*bolt.Tx) error {
		return func(tx *bolt.Tx) error { return tx.Bucket([]byte(bucket)).Put([]byte(key), []byte(value)) }
	}
	for name, test := range map[string]struct {
		do    func(*bolt.Tx) error
		notes int
		says  string
	}{
		"member added":        {func(tx *bolt.Tx) error { return tx.Bucket([]byte("members")).Delete([]byte("a")) }, 1, changed},
		"member removed":      {put("members", "d", `{"id":13,"peerURLs":["http://d:2380"]}`), 1, changed},
		"member promoted":     {put("meta", "confState", `{"voters":[10,11,12]}`), 1, changed},
		"restored by etcdutl": {put("meta", "confState", `{"voters":[90,91,92]}`), 6, restored},
		"another version's": {func(tx *bolt.Tx) error {
			_, err := tx.CreateBucket([]byte("future"))
			return errors.Join(err,
				put("meta", "future", "")(tx),
				tx.Bucket([]byte("meta")).Delete([]byte("storageVersion")), // as of 3.5
				put("members", "d", `{"id":13,"peerURLs":["http://d:2380"]}`)(tx))
		}, 3, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := sample(t)
			m.close()
			m.edit(test.do)
			r := sound(t, m.bytes(), Options{})
			if len(r.Notes) != test.notes || !strings.Contains(strings.Join(r.Notes, "\n"), test.says) {
				t.Errorf("%q", r.Notes)
			}
		})
	}
}

// Promise 4: whatever the manifest says otherwise is found.
func TestManifest(t *testing.T) {
	m := sample(t)
	for i := range 20 {
		m.put("key-"+strconv.Itoa(i), "in the end") // 308 on
	}
	m.compact(250)
	db := m.close()
	plain := sound(t, db, Options{})
	n := plain.Keys
	manifest := func() *snapshot.Manifest {
		man := &snapshot.Manifest{Facts: plain.Facts, HashKV: plain.HashKV, Keys: snapshot.Keys{Count: &n}}
		man.Object.RawSize = int64(len(db)) + 32
		return man
	}
	if r := sound(t, db, Options{Manifest: manifest()}); r.HashKV != plain.HashKV {
		t.Errorf("%+v", r.HashKV)
	}
	// The member compacted between the snapshot and the hash.
	later := &made{t: t, path: m.path}
	later.open()
	later.compact(290)
	hash, _, err := later.kv.HashStorage().HashByRev(0)
	must(t, err)
	later.close()
	man := manifest()
	man.HashKV.Hash, man.HashKV.CompactedRevision = hash.Hash, 290
	if hash.Hash == plain.HashKV.Hash {
		t.Error("the compaction changed nothing")
	}
	sound(t, db, Options{Manifest: man})

	for name, test := range map[string]struct {
		do   func(*snapshot.Manifest)
		kind report.Kind
		text string
	}{
		"hash":          {func(m *snapshot.Manifest) { m.HashKV.Hash++ }, report.KindHash, "the manifest has"},
		"hash revision": {func(m *snapshot.Manifest) { m.HashKV.Revision-- }, report.KindHash, "is of revision"},
		"hash later":    {func(m *snapshot.Manifest) { m.HashKV.CompactedRevision = 260 }, report.KindHash, "compacted at 260"},
		"hash earlier":  {func(m *snapshot.Manifest) { m.HashKV.CompactedRevision = 20 }, report.KindHash, "compacted at 20"},
		"revision":      {func(m *snapshot.Manifest) { m.Facts.Revision-- }, report.KindFacts, "revision is 327"},
		"compacted":     {func(m *snapshot.Manifest) { m.Facts.CompactedRevision-- }, report.KindFacts, "compacted_revision is 250"},
		"member's name": {func(m *snapshot.Manifest) {
			m.Facts.Members = slices.Clone(m.Facts.Members)
			m.Facts.Members[0].Name = "somebody"
		}, report.KindFacts, "members is"},
		"alarms":          {func(m *snapshot.Manifest) { m.Facts.Alarms = []snapshot.Alarm{{MemberID: 1, Type: "NOSPACE"}} }, report.KindFacts, "alarms"},
		"cluster version": {func(m *snapshot.Manifest) { m.Facts.ClusterVersion = "3.5.0" }, report.KindFacts, "cluster_version"},
		"storage version": {func(m *snapshot.Manifest) { m.Facts.StorageVersion = "3.6.0" }, report.KindFacts, "storage_version"},
		"index":           {func(m *snapshot.Manifest) { m.Facts.RaftIndex = 1 }, report.KindFacts, "raft_index is 9"},
		"term":            {func(m *snapshot.Manifest) { m.Facts.RaftTerm = 1 }, report.KindFacts, "raft_term is 2"},
		"members":         {func(m *snapshot.Manifest) { m.Facts.Members = m.Facts.Members[1:] }, report.KindFacts, "members is"},
		"auth":            {func(m *snapshot.Manifest) { m.Facts.AuthEnabled = false }, report.KindFacts, "auth_enabled is true"},
		"keys":            {func(m *snapshot.Manifest) { n := n + 1; m.Keys.Count = &n }, report.KindFacts, "the number of keys"},
		"size":            {func(m *snapshot.Manifest) { m.Object.RawSize-- }, report.KindFacts, "size"},
	} {
		man := manifest()
		test.do(man)
		r := checkBytes(t, db, Options{Manifest: man})
		if !hasFinding(r, test.kind, test.text) || len(r.Findings) != 1 {
			t.Errorf("%s: %q", name, r.Findings)
		}
	}
	// A value that was altered, with all sums over the file fixed up.
	must(t, os.WriteFile(m.path, db, 0o600))
	m.edit(func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte("key"))
		v := bytes.Clone(b.Get(boltfile.Revision{Main: 307}.Bytes()))
		v[len(v)-1]++
		return b.Put(boltfile.Revision{Main: 307}.Bytes(), v)
	})
	db = m.bytes()
	man = manifest()
	man.Object.RawSize = int64(len(db)) + 32
	if r := checkBytes(t, db, Options{Manifest: man}); !hasFinding(r, report.KindHash, "the manifest has") {
		t.Errorf("an altered value: %q", r.Findings)
	}
}

// Findings are bounded, and the others counted.
func TestFindingsAreBounded(t *testing.T) {
	m := sample(t)
	m.close()
	m.edit(func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte("key"))
		for i := range int64(50) {
			if err := b.Put(boltfile.Revision{Main: 1000 + 2*i}.Bytes(), []byte("\xff")); err != nil {
				return err
			}
		}
		return nil
	})
	all := checkBytes(t, m.bytes(), Options{})
	few := checkBytes(t, m.bytes(), Options{MaxFindings: 7})
	if all.More != 0 || len(few.Findings) != 7 || few.More != int64(len(all.Findings)-7) || fmt.Sprint(few.Findings) != fmt.Sprint(all.Findings[:7]) {
		t.Errorf("%d and %d more, of %d", len(few.Findings), few.More, len(all.Findings))
	}
}
