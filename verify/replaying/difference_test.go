package replaying

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
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

// Promise 1 of this package: one row that differs, in any bucket, is one
// finding, and says which.
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
		{"version", func(c contents) { c.put(3, 0, kv("/a", "two", 2, 9, 17)) }, `key "/a", revision 3`, "another one"},
		{"lease of a key", func(c contents) { c.put(3, 0, kv("/a", "two", 2, 2, 18)) }, `key "/a", revision 3`, "another one"},
		{"revision gone", func(c contents) { delete(c["key"], rev(2, 0)) }, `key "/a", revision 2`, "in A, and not in B"},
		{"newest revision gone", func(c contents) { delete(c["key"], rev(6, 0)) }, `key "/b", revision 6`, "not in B"},
		{"revision more", func(c contents) { c.put(7, 0, kv("/z", "", 7, 1, 0)) }, `key "/z", revision 7`, "in B, and not in A"},
		{"deletion gone", func(c contents) { delete(c["key"], rev(5, 0)+"t") }, `key "/b", revision 5`, "in A, and not in B"},
		{"row that cannot be decoded", func(c contents) { c.set("key", rev(4, 1), []byte{0xff}) }, `key "/c", revision 4.1`, "another one"},
		{"row more that cannot be decoded", func(c contents) { c.set("key", rev(7, 0), []byte{0xff}) }, "revision 7", "not in A"},
		{"row that is no revision", func(c contents) { c.set("key", "junk", nil) }, "bucket key, row 6a756e6b", "not in A"},
		{"lease gone", func(c contents) { delete(c["lease"], "\x00\x00\x00\x00\x00\x00\x00\x11") }, "lease 0000000000000011", "in A, and not in B"},
		{"lease more", func(c contents) { c.lease(33, 60, 0) }, "lease 0000000000000021", "in B, and not in A"},
		{"lease's time", func(c contents) { c.lease(18, 3600, 5) }, "lease 0000000000000012", "granted time, in seconds, is 600 in A, and 3600 in B"},
		{"lease's time, as if it were a short one", func(c contents) { c.lease(18, 601, 5); c.lease(17, 61, 0) }, "lease 0000000000000011", "is 60 in A, and 61 in B; and 1 more row of this bucket differs"},
		{"lease's time left", func(c contents) { c.lease(18, 600, 4) }, "lease 0000000000000012", "another one"},
		{"lease that cannot be decoded", func(c contents) { c.set("lease", "\x00\x00\x00\x00\x00\x00\x00\x11", []byte{0xff}) }, "lease 0000000000000011", "another one"},
		{"member", func(c contents) { c.set("members", "1", []byte(`{"id":1}`)) }, `bucket members, row "1"`, "another one"},
		{"removed member", func(c contents) { delete(c["members_removed"], "2") }, `bucket members_removed, row "2"`, "in A, and not in B"},
		{"bucket gone", func(c contents) { delete(c, "members_removed") }, `bucket members_removed, row "2"`, "in A, and not in B"},
		{"cluster version", func(c contents) { c.set("cluster", "clusterVersion", []byte("3.5.0")) }, `bucket cluster, row "clusterVersion"`, "another one"},
		{"alarm", func(c contents) { delete(c, "alarm") }, "bucket alarm, row", "in A, and not in B"},
		{"auth off", func(c contents) { c.set("auth", "authEnabled", []byte{0}) }, `bucket auth, row "authEnabled"`, "another one"},
		{"auth revision", func(c contents) { c.set("auth", "authRevision", []byte("12345678")) }, `bucket auth, row "authRevision"`, "another one"},
		{"user gone", func(c contents) { delete(c["authUsers"], "root") }, `bucket authUsers, row "root"`, "in A, and not in B"},
		{"role", func(c contents) { c.set("authRoles", "all", nil) }, `bucket authRoles, row "all"`, "in B, and not in A"},
		{"meta", func(c contents) { c.set("meta", "other", []byte("y")) }, `bucket meta, row "other"`, "another one"},
		{"compaction", func(c contents) { c.set("meta", "finishedCompactRev", []byte(rev(1, 0))) }, "bucket meta, compacted revision", "A is compacted at revision 0, B at 1"},
		{"unknown bucket", func(c contents) { c.set("news", "k", []byte("v")) }, `bucket news, row "k"`, "in B, and not in A"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := sample()
			test.change(b)
			r := compare(t, sample(), b)
			if len(r.Findings) != 1 {
				t.Fatalf("findings %v", r.Findings)
			}
			f := r.Findings[0]
			if f.Kind != report.KindDifference || !strings.Contains(f.Where, test.where) || !strings.Contains(f.Text, test.text) {
				t.Errorf("finding %q, want %q: %q", f, test.where, test.text)
			}
			for _, secret := range []string{"secret", "$2a$", "three"} {
				if strings.Contains(f.String(), secret) {
					t.Errorf("finding %q shows a value (promise 3)", f)
				}
			}
		})
	}
}

// What the log does not give is no finding, and is reported where it was met.
func TestUnreplicated(t *testing.T) {
	for _, test := range []struct {
		name   string
		both   func(contents)
		change func(contents)
		left   string
	}{
		{"meta of the member", nil, func(c contents) {
			for _, k := range []string{"confState", "consistent_index", "storageVersion", "term"} {
				c.set("meta", k, []byte("12345678"))
			}
		}, "meta/confState, meta/consistent_index, meta/storageVersion, meta/term"},
		{"an older version's buckets", nil, func(c contents) { delete(c, "cluster") }, "cluster/clusterVersion, cluster/downgrade"},
		{"an empty bucket", nil, func(c contents) { c["test"] = map[string][]byte{} }, ""},
		{"a password's hash", nil, func(c contents) {
			c.set("authUsers", "root", encode(&authpb.User{Name: []byte("root"), Password: []byte("$2a$salt"), Roles: []string{"root"}}))
		}, ""},
		{"checkpoints before 3.6", func(c contents) { delete(c["meta"], "storageVersion") }, func(c contents) { c.lease(18, 600, 0) }, "the time left of 1 leases"},
		{"short leases", func(c contents) { c.lease(3, 2, 0); c.lease(4, 4, 0) }, func(c contents) { c.lease(3, 8, 0); c.lease(4, 8, 0) }, "2 short leases were granted 8 s in B and less in A"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := sample()
			if test.both != nil {
				test.both(a)
			}
			b := a.clone()
			test.change(b)
			r := compare(t, a, b)
			if len(r.Findings) > 0 || (len(r.Passwords) > 0) != (test.name == "a password's hash") {
				t.Errorf("findings %v, passwords of %q", r.Findings, r.Passwords)
			}
			if left := strings.Join(r.Left, "; "); !strings.Contains(left, test.left) || test.left == "" && left != "" {
				t.Errorf("left %q, want %q", left, test.left)
			}
		})
	}
}

// Promise 2: what of a compaction a member has deleted does not matter, what it
// left does.
func TestPromise2Compaction(t *testing.T) {
	logical := sample()
	logical.compacted(5, 5) // /b was deleted at 5, /a overwritten at 3
	delete(logical["key"], rev(2, 0))
	delete(logical["key"], rev(4, 0))
	delete(logical["key"], rev(5, 0)+"t")
	newer := logical.clone() // keeps the deletion at the very revision
	newer.del(5, 0, "/b")
	unfinished := sample()
	unfinished.set("meta", "scheduledCompactRev", []byte(rev(5, 0)))
	half := unfinished.clone()
	delete(half["key"], rev(2, 0))
	second := unfinished.clone() // after an earlier one
	second.compacted(5, 3)
	delete(second["key"], rev(2, 0))
	all := map[string]contents{"logical": logical, "newer": newer, "unfinished": unfinished, "half": half, "second": second}
	for first, a := range all {
		for other, b := range all {
			if r := compare(t, a, b); len(r.Findings) > 0 {
				t.Errorf("%s and %s: %v", first, other, r.Findings)
			}
		}
		for _, alter := range []func(contents){
			func(c contents) { delete(c["key"], rev(3, 0)) },
			func(c contents) {
				c.put(4, 1, &mvccpb.KeyValue{Key: []byte("/c"), Value: []byte("other"), CreateRevision: 4, Version: 1})
			},
			func(c contents) { c.put(1, 0, &mvccpb.KeyValue{Key: []byte("/new"), CreateRevision: 1, Version: 1}) },
		} {
			b := a.clone()
			alter(b)
			if r := compare(t, logical, b); len(r.Findings) == 0 {
				t.Errorf("%s: what the compaction left was altered, and is not found", first)
			}
		}
	}
	r := compare(t, logical, unfinished)
	if len(r.Left) != 1 || !strings.Contains(r.Left[0], "B had not finished its compaction at revision 5") {
		t.Errorf("left %q", r.Left)
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
		r := compare(t, a, b)
		if !same {
			differed++
		}
		if same != (len(r.Findings) == 0) {
			t.Errorf("seed %d, compacted at %d: the model says same %v, found %v", seed, at, same, r.Findings)
		}
	}
	if differed < rounds/5 || differed == rounds {
		t.Errorf("%d of %d pairs differed: no test of both answers", differed, rounds)
	}
}

// Each bucket has one finding, with the first row in the order of revisions, and the rest is
// counted.
func TestOneFindingABucket(t *testing.T) {
	a, b := sample(), sample()
	for r := int64(10); r < 60; r++ {
		a.put(r, 0, &mvccpb.KeyValue{Key: fmt.Appendf(nil, "/%d", r), CreateRevision: r, Version: 1})
	}
	b.set("auth", "authEnabled", []byte{0})
	r := compare(t, a, b)
	if len(r.Findings) != 2 || r.Findings[0].Where != `key "/10", revision 10` || !strings.HasSuffix(r.Findings[0].Text, "and 49 more rows of this bucket differ") || strings.Contains(r.Findings[1].Text, "more") {
		t.Errorf("findings %v", r.Findings)
	}
	calls := 0
	_, err := Compare(t.Context(), open(t, "A", a), open(t, "B", b), func(done, total int64) {
		calls++
		if done > total {
			t.Errorf("%d of %d bytes", done, total)
		}
	})
	if err != nil || calls == 0 {
		t.Errorf("%v; progress was called %d times", err, calls)
	}
}

// Promise 4: damage and a context's end are errors, and no findings.
func TestErrors(t *testing.T) {
	good := open(t, "A", sample())
	var damaged *snapshot.DamagedError
	path := filepath.Join(t.TempDir(), "junk")
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("x", 8192)), 0o600))
	if _, err := Compare(t.Context(), good, openFile(t, "junk", path), nil); !errors.As(err, &damaged) || damaged.Object != "junk" {
		t.Errorf("no database: %v", err)
	}
	if _, err := Compare(t.Context(), good, open(t, "bolt", contents{"x": {"k": nil}}), nil); !errors.As(err, &damaged) {
		t.Errorf("another database: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Compare(ctx, good, good, nil)
	require.ErrorIs(t, err, context.Canceled, "cancelled")
}
