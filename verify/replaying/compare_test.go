package replaying

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/verify/report"
)

// One row that differs, in any bucket, is one finding, and says which.
func TestPromise1OneRow(t *testing.T) {
	kv := func(key, value string, create, version, lease int64) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: []byte(key), Value: []byte(value), CreateRevision: create, Version: version, Lease: lease}
	}
	for _, test := range []struct {
		name   string
		change func(contents)
		where  string
		text   string
	}{
		{"value", func(c contents) { c.put(4, 0, kv("/b", "tree!", 4, 1, 0)) }, `key "/b", revision 4`, "it is another one: 17 bytes in A, 17 in B"},
		{"key", func(c contents) { c.put(4, 1, kv("/d", "secret", 4, 1, 0)) }, `key "/c", revision 4.1`, "another one"},
		{"create revision", func(c contents) { c.put(3, 0, kv("/a", "two", 1, 2, 17)) }, `key "/a", revision 3`, "another one"},
		{"revision gone", func(c contents) { delete(c["key"], rev(2, 0)) }, `key "/a", revision 2`, "in A, and not in B"},
		{"revision more", func(c contents) { c.put(7, 0, kv("/z", "", 7, 1, 0)) }, `key "/z", revision 7`, "in B, and not in A"},
		{"deletion gone", func(c contents) { delete(c["key"], rev(5, 0)+"t") }, `key "/b", revision 5`, "in A, and not in B"},
		{"row that cannot be decoded", func(c contents) { c.set("key", rev(4, 1), []byte{0xff}) }, `key "/c", revision 4.1`, "another one"},
		{"row more that cannot be decoded", func(c contents) { c.set("key", rev(7, 0), []byte{0xff}) }, "revision 7", "not in A"},
		{"lease gone", func(c contents) { delete(c["lease"], "\x00\x00\x00\x00\x00\x00\x00\x11") }, "lease 0000000000000011", "in A, and not in B"},
		{"lease's time", func(c contents) { c.lease(18, 3600, 5) }, "lease 0000000000000012", "another one"},
		{"password", func(c contents) {
			c.set("authUsers", "root", encode(&authpb.User{Name: []byte("root"), Password: []byte("$2a$other"), Roles: []string{"root"}}))
		}, `bucket authUsers, row "root"`, "only the hash of its password is another one. If the cluster began on etcd 3.4"},
		{"password and role", func(c contents) {
			c.set("authUsers", "root", encode(&authpb.User{Name: []byte("root"), Password: []byte("$2a$other")}))
		}, `bucket authUsers, row "root"`, "it is another one"},
		{"lease's time left", func(c contents) { c.lease(18, 600, 4) }, "lease 0000000000000012", "another one"},
		{"lease that cannot be decoded", func(c contents) { c.set("lease", "\x00\x00\x00\x00\x00\x00\x00\x11", []byte{0xff}) }, "lease 0000000000000011", "another one"},
		{"member", func(c contents) { c.set("members", "1", []byte(`{"id":1}`)) }, `bucket members, row "1"`, "another one"},
		{"bucket gone", func(c contents) { delete(c, "members_removed") }, `bucket members_removed, row "2"`, "in A, and not in B"},
		{"alarm", func(c contents) { delete(c, "alarm") }, "bucket alarm, row", "in A, and not in B"},
		{"auth off", func(c contents) { c.set("auth", "authEnabled", []byte{0}) }, `bucket auth, row "authEnabled"`, "another one"},
		{"role", func(c contents) { c.set("authRoles", "all", nil) }, `bucket authRoles, row "all"`, "in B, and not in A"},
		{"meta", func(c contents) { c.set("meta", "other", []byte("y")) }, `bucket meta, row "other"`, "another one"},
		{"compaction", func(c contents) { c.set("meta", "finishedCompactRev", []byte(rev(1, 0))) }, "bucket meta, compacted revision", "A is compacted at revision 0, B at 1"},
		{"unknown bucket", func(c contents) { c.set("news", "k", []byte("v")) }, `bucket news, row "k"`, "in B, and not in A"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := sample()
			test.change(b)
			f := compareContents(t, sample(), b)
			if f == nil {
				t.Fatal("no difference was found")
			}
			if f.Kind != report.KindDifference || !strings.Contains(f.Where, test.where) || !strings.Contains(f.Text, test.text) {
				t.Errorf("finding %q, want %q: %q", f, test.where, test.text)
			}
			for _, secret := range []string{"secret", "$2a$", "three"} {
				if strings.Contains(f.String(), secret) {
					t.Errorf("finding %q shows a value", f)
				}
			}
		})
	}
}

// What the log does not give is no finding.
func TestUnreplicated(t *testing.T) {
	before36 := func(c contents) { delete(c["meta"], "storageVersion") }
	for _, test := range []struct {
		name   string
		both   func(contents)
		change func(contents)
	}{
		{"meta of the member", nil, func(c contents) {
			for _, k := range []string{"consistent_index", "storageVersion", "term"} {
				c.set("meta", k, []byte("12345678"))
			}
			c.set("meta", "confState", []byte(`{"voters":[7]}`))
		}},
		{"an older version's buckets", nil, func(c contents) { delete(c, "cluster") }},
		{"an empty bucket", nil, func(c contents) { c["test"] = map[string][]byte{} }},
		{"a compaction that was not finished", func(c contents) { c.compacted(1, 1) }, func(c contents) { delete(c["meta"], "finishedCompactRev") }},
		{"checkpoints before 3.6", before36, func(c contents) { c.lease(18, 600, 0) }},
		{"short leases", func(c contents) { c.lease(3, 2, 0); c.lease(4, 4, 0) }, func(c contents) { c.lease(3, 8, 0); c.lease(4, 8, 0) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := sample()
			if test.both != nil {
				test.both(a)
			}
			b := a.clone()
			test.change(b)
			if f := compareContents(t, a, b); f != nil {
				t.Errorf("finding %v", f)
			}
		})
	}
}

// model is the deliberately dumb implementation: both in maps, compacted.
func model(c contents, at int64) map[string]string {
	newest := map[string]string{}
	for k, v := range c["key"] {
		r, _ := boltfile.ParseRow([]byte(k))
		var kv mvccpb.KeyValue
		if err := proto.Unmarshal(v, &kv); err != nil {
			panic(err)
		}
		if r.Main <= at && k > newest[string(kv.Key)] {
			newest[string(kv.Key)] = k
		}
	}
	out := map[string]string{}
	for k, v := range c["key"] {
		r, _ := boltfile.ParseRow([]byte(k))
		var kv mvccpb.KeyValue
		_ = proto.Unmarshal(v, &kv)
		if r.Main > at || newest[string(kv.Key)] == k && !r.Deleted {
			out[k] = string(v)
		}
	}
	return out
}

// Random histories, compacted to random states, agree with the model.
func TestCompactionModel(t *testing.T) {
	const rounds = 60
	differed := 0
	for seed := range uint64(rounds) {
		random := rand.New(rand.NewPCG(seed, 1))
		whole, alive := contents{}, map[string]bool{}
		whole.set("meta", "consistent_index", []byte("12345678"))
		whole.set("meta", "term", []byte("12345678"))
		last := int64(60)
		for r := int64(2); r <= last; r++ {
			key := fmt.Sprintf("/%d", random.IntN(9))
			if alive[key] && random.IntN(3) == 0 {
				whole.del(r, 0, key)
				alive[key] = false
				continue
			}
			whole.put(r, 0, &mvccpb.KeyValue{Key: []byte(key), Value: []byte{byte(r)}, CreateRevision: 2, Version: 1})
			alive[key] = true
		}
		at := 2 + random.Int64N(last-2)
		side := func() contents {
			c := whole.clone()
			finished := random.Int64N(at + 1)
			if random.IntN(2) == 0 {
				finished = at
			}
			left := model(whole, finished)
			for k := range c["key"] {
				r, _ := boltfile.ParseRow([]byte(k))
				if _, keep := left[k]; !keep && r.Main <= finished && (!r.Deleted || r.Main != finished || random.IntN(2) != 0) {
					delete(c["key"], k)
				}
			}
			c.compacted(at, finished)
			return c
		}
		a, b := side(), side()
		if random.IntN(2) == 0 { // alter one row of one of them
			for _, k := range slices.Sorted(maps.Keys(b["key"])) {
				if r, _ := boltfile.ParseRow([]byte(k)); r.Deleted && r.Main <= at || random.IntN(3) > 0 {
					continue // a deletion up to there is not compared
				}
				if random.IntN(2) == 0 {
					delete(b["key"], k)
				} else {
					r, _ := boltfile.ParseRow([]byte(k))
					b.set("key", k, encode(&mvccpb.KeyValue{Key: []byte("/0"), Value: []byte("altered"), ModRevision: r.Main}))
				}
				break
			}
		}
		same := fmt.Sprint(model(a, at)) == fmt.Sprint(model(b, at))
		f := compareContents(t, a, b)
		if !same {
			differed++
		}
		if same != (f == nil) {
			t.Errorf("seed %d, compacted at %d: the model says same %v, found %v", seed, at, same, f)
		}
	}
	if differed < rounds/5 || differed == rounds {
		t.Errorf("%d of %d pairs differed: no test of both answers", differed, rounds)
	}
}

// The first row that differs is named, in the order of revisions. Databases with the same
// HashKV are compared in the other buckets only.
func TestCompare_FirstDifference(t *testing.T) {
	a, b := sample(), sample()
	for r := int64(10); r < 60; r++ {
		a.put(r, 0, &mvccpb.KeyValue{Key: fmt.Appendf(nil, "/%d", r), CreateRevision: r, Version: 1})
	}
	b.set("auth", "authEnabled", []byte{0})
	if f := compareContents(t, a, b); f == nil || f.Where != `key "/10", revision 10` {
		t.Errorf("finding %v", f)
	}
	f, err := compare(t.Context(), open(t, "A", a), open(t, "B", b), true)
	if err != nil || f == nil || f.Where != `bucket auth, row "authEnabled"` {
		t.Errorf("finding %v, %v", f, err)
	}
}

// Damage and a context's end are errors, and no findings.
func TestErrors(t *testing.T) {
	good := open(t, "A", sample())
	var damaged *snapshot.DamagedError
	noRevision := sample()
	noRevision.set("key", "junk", nil)
	for name, c := range map[string]contents{"another database": {"x": {"k": nil}}, "a row that is no revision": noRevision} {
		if _, err := compare(t.Context(), good, open(t, "bolt", c), false); !errors.As(err, &damaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := compare(ctx, good, good, false)
	require.ErrorIs(t, err, context.Canceled, "cancelled")
}

// TestCompare_AttributesOfMembers_LeftBefore36: etcd before 3.5.26 leaves members in their
// bucket as they were when they were added.
func TestCompare_AttributesOfMembers_LeftBefore36(t *testing.T) {
	row := func(rest string) func(contents) {
		return func(c contents) {
			delete(c["meta"], "storageVersion")
			c.set("members", "1", []byte(`{"id":1,"peerURLs":["http://a"]`+rest))
		}
	}
	for rest, differs := range map[string]bool{`,"name":"a","clientURLs":["http://b"]}`: false, `,"isLearner":true}`: false, `,"peerURLs":["http://c"]}`: true} {
		a, b := sample(), sample()
		row(`}`)(a)
		row(rest)(b)
		if got := compareContents(t, a, b) != nil; got != differs {
			t.Errorf("%s: differs %t, want %t", rest, got, differs)
		}
	}
}
