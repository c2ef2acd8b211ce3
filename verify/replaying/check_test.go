package replaying

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"filippo.io/age"
	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify/report"
)

// chain is a world with three backups of one log, keys, leases and a compaction.
type chain struct {
	*world
	ids     [3]string
	indexes [3]uint64
	gone    uint64 // the entry of a value that is overwritten and compacted before the last backup
	kept    uint64 // the entry of a value that is in the last backup
}

func newChain(t *testing.T) *chain {
	c := &chain{world: newWorld(t)}
	for i := range 5 {
		c.put(fmt.Sprintf("/k%d", i), "first")
	}
	c.lease(7, 600)
	c.indexes[0] = uint64(len(c.entries))
	c.gone = c.put("/k0", "second")
	c.kept = c.put("/k1", "second")
	c.request(&etcdserverpb.InternalRaftRequest{DeleteRange: &etcdserverpb.DeleteRangeRequest{Key: []byte("/k2")}})
	c.indexes[1] = uint64(len(c.entries))
	c.put("/k0", "third")
	c.compact(10)
	c.lease(8, 60)
	c.put("/k3", "second")
	c.indexes[2] = uint64(len(c.entries))
	c.put("/k4", "later")
	for i, index := range c.indexes {
		c.ids[i] = c.backup(index)
	}
	c.archive(c.entries, 4)
	return c
}

func (c *chain) first() string { return c.ids[0] }

// expect wants one kind of finding, at a place.
func expect(t *testing.T, c report.Check, kind report.Kind, where, text string) {
	t.Helper()
	if c.Status != report.Damaged || len(c.Findings) == 0 {
		t.Fatalf("not found: %+v", c)
	}
	if f := c.Findings[0]; f.Kind != kind || !strings.Contains(f.Where, where) || !strings.Contains(f.Text, text) {
		t.Errorf("first finding %+v, want %s at %q: %q", f, kind, where, text)
	}
}

func expectUnchecked(t *testing.T, c report.Check, reason string) {
	t.Helper()
	if c.Status != report.Unchecked || !strings.Contains(c.Reason, reason) || len(c.Findings) > 0 {
		t.Errorf("want unchecked for %q: %+v", reason, c)
	}
}

func expectPassed(t *testing.T, c report.Check, compared ...string) {
	t.Helper()
	if c.Status != report.Passed {
		t.Fatalf("not passed: %+v", c)
	}
	for _, want := range compared {
		if !strings.Contains(c.Compared, want) {
			t.Errorf("compared %q, want %q in it", c.Compared, want)
		}
	}
}

// Promise 7 of the design: each snapshot is proved by the one before it and the
// log, and the first one by the log alone where that begins with the first entry.
func TestPromise7Chain(t *testing.T) {
	c := newChain(t)
	expectPassed(t, c.check(c.ids[1]), "with what backup "+c.ids[0], "up to raft index 11 give", "HashKV of both is", "every revision of every key")
	last := c.check(c.ids[2])
	expectPassed(t, last, "with what backup "+c.ids[1], "not compacted at revision 10", "lease 2,")
	if last.Bytes == 0 || last.Took == 0 || len(last.Phases) < 3 {
		t.Errorf("check %+v", last)
	}
	expectPassed(t, c.check(c.first()), "the empty database before the first entry", "8 entries")
}

// A value that was altered in a snapshot is found, whatever sums were made to fit
// again; so is one that vanished, and a lease.
func TestAlteredSnapshot(t *testing.T) {
	healthy := newChain(t)
	for _, test := range []struct {
		name   string
		change func(*bbolt.Tx) error
		where  string
		text   string
	}{
		{"value", func(tx *bbolt.Tx) error { return alterValue(tx, "/k1", "s3cond") }, `key "/k1", revision 8`, "the value is another one"},
		{"revision", func(tx *bbolt.Tx) error { return deleteLast(tx.Bucket([]byte("key")), 0) }, `key "/k3", revision 11`, "this write is in the replay"},
		{"lease", func(tx *bbolt.Tx) error { return deleteLast(tx.Bucket([]byte("lease")), 0) }, "lease 0000000000000008", "this lease is in the replay"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := &world{rig: healthy.clone(t)}
			c.alter(healthy.ids[2], test.change)
			check := c.check(healthy.ids[2])
			if test.name == "revision" { // the manifest says otherwise: no need to replay
				expect(t, check, report.KindFacts, "", "revision 10")
				return
			}
			expect(t, check, report.KindDifference, test.where, test.text)
			if len(check.Findings) != 1 || !strings.Contains(check.Compared, "One of the three is wrong") || !strings.Contains(check.Compared, "so it is this one that is wrong, or the log") {
				t.Errorf("check %+v", check)
			}
		})
	}
	// With the hash that a live member served in the manifest, the check knows which.
	c := healthy.clone(t)
	m := *c.manifest(healthy.ids[2])
	path, _ := healthy.database(healthy.indexes[2])
	d := database{path: path, size: mustSize(t, path)}
	h, err := d.hash(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	m.HashKV = h
	m.HashKV.Obtained = "from member m1 after the snapshot"
	c.store(m, path)
	c.alter(m.ID, func(tx *bbolt.Tx) error { return alterValue(tx, "/k1", "s3cond") })
	if check := c.check(m.ID); !strings.Contains(check.Compared, "so it is backup "+m.ID+" that is wrong") {
		t.Errorf("compared %q", check.Compared)
	}
}

// An altered snapshot does not make the next one wrong, where an older one is
// there to ask: and whichever comes first shows it.
func TestAlteredBase(t *testing.T) {
	healthy := newChain(t)
	c := healthy.clone(t)
	c.alter(healthy.ids[1], func(tx *bbolt.Tx) error { return alterValue(tx, "/k1", "s3cond") })
	check, others := c.checkAll(healthy.ids[2])
	expectPassed(t, check, "with what backup "+healthy.ids[0], "so it is backup "+healthy.ids[1]+" that is wrong")
	if len(others) != 1 || others[0].Object != c.id.String()+"/full/"+healthy.ids[1] || others[0].Rung != report.Replay {
		t.Fatalf("the snapshot that is wrong has no check: %+v", others)
	}
	expect(t, others[0], report.KindDifference, `key "/k1", revision 8`, "so it is this one that is wrong")
	expect(t, c.check(healthy.ids[1]), report.KindDifference, `key "/k1", revision 8`, "the value is another one")
	if err := os.RemoveAll(filepath.Join(c.dir, c.id.String(), "full", healthy.ids[0])); err != nil {
		t.Fatal(err)
	}
	c.archive(healthy.entries[healthy.indexes[0]:], 4)
	check, others = c.checkAll(healthy.ids[2])
	if len(others) > 0 {
		t.Errorf("nobody knows which is wrong: %+v", others)
	}
	expect(t, check, report.KindDifference, `key "/k1", revision 8`, "the value is another one")
	if !strings.Contains(check.Compared, "One of the three is wrong") || strings.Contains(check.Compared, "so it is") {
		t.Errorf("compared %q", check.Compared)
	}
}

// The log is replayed by the rules of the etcd that the base was read from, and
// where that was upgraded until the snapshot, of the later one too.
func TestUpgraded(t *testing.T) {
	healthy := newChain(t)
	c := healthy.clone(t)
	m := *c.manifest(healthy.ids[1])
	m.Source.Version = "3.5.9"
	path, _ := healthy.database(healthy.indexes[1])
	c.store(m, path)
	expectPassed(t, c.check(m.ID), "3 entries")
	c.alter(m.ID, func(tx *bbolt.Tx) error { return alterValue(tx, "/k1", "s3cond") })
	check := c.check(m.ID)
	expect(t, check, report.KindDifference, `key "/k1", revision 8`, "the value is another one")
	if len(check.Findings) != 1 || strings.Count(check.Compared, "One of the three") != 1 {
		t.Errorf("check %+v", check)
	}
}

// alterValue changes the value of a key's newest revision.
func alterValue(tx *bbolt.Tx, key, value string) error {
	b := tx.Bucket([]byte("key"))
	c := b.Cursor()
	for k, v := c.Last(); k != nil; k, v = c.Prev() {
		var kv mvccpb.KeyValue
		if err := proto.Unmarshal(v, &kv); err != nil {
			return err
		}
		if string(kv.Key) != key {
			continue
		}
		kv.Value = []byte(value)
		data, err := proto.Marshal(&kv)
		if err != nil {
			return err
		}
		return b.Put(append([]byte{}, k...), data)
	}
	return errors.New("no such key: nothing was altered")
}

func deleteLast(b *bbolt.Bucket, _ int) error {
	k, _ := b.Cursor().Last()
	return b.Delete(append([]byte{}, k...))
}

// A log entry that was altered, with its chain and sums fixed up, is found where
// it shows in the state; where its key was overwritten and compacted before the
// snapshot it is not, which the check says, unless a live member's stamp is on the
// way.
func TestAlteredEntry(t *testing.T) {
	healthy := newChain(t)
	altered := func(t *testing.T, index uint64, key string) *world {
		c := &world{rig: healthy.clone(t), entries: append(healthy.entries[:0:0], healthy.entries...)}
		c.entries[index-1] = entryOf(t, index, putOf(key, "altered"))
		c.archive(c.entries, 4)
		return c
	}
	t.Run("seen", func(t *testing.T) {
		c := altered(t, healthy.kept, "/k1")
		expect(t, c.check(healthy.ids[1]), report.KindDifference, `key "/k1", revision 8`, "the value is another one: 7 bytes in the replay")
		if check := c.check(healthy.ids[2]); check.Status != report.Passed {
			t.Errorf("the part of the log that was not altered: %+v", check)
		}
	})
	t.Run("another key", func(t *testing.T) {
		c := altered(t, healthy.kept, "/k9")
		expect(t, c.check(healthy.ids[1]), report.KindDifference, `key "/k9", revision 8`, `the key is "/k9" in`)
	})
	remove := func(c *world) {
		if err := os.RemoveAll(filepath.Join(c.dir, c.id.String(), "full", healthy.ids[1])); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("overwritten and compacted", func(t *testing.T) {
		c := altered(t, healthy.gone, "/k0")
		remove(c)
		expectPassed(t, c.check(healthy.ids[2]), "with what backup "+healthy.ids[0], "not compacted at revision 10 (of what was overwritten or deleted by then, nothing is left to compare)")
	})
	t.Run("overwritten, compacted, and stamped on the way", func(t *testing.T) {
		c := altered(t, healthy.gone, "/k0")
		remove(c)
		was := c.entries
		c.entries = healthy.entries
		c.stamp(healthy.indexes[1])
		c.entries = was
		expect(t, c.check(healthy.ids[2]), report.KindStamp, "revision 9", "served HashKV")
		c.o.Stops = -1
		expectPassed(t, c.check(healthy.ids[2]), "1 hashes that live members served on the way could not be compared")
	})
	t.Run("healthy stamps", func(t *testing.T) {
		c := &world{rig: healthy.clone(t), entries: healthy.entries}
		remove(c)
		c.stamp(healthy.indexes[1])
		c.stamp(healthy.indexes[1] - 1)
		c.stamp(healthy.indexes[2])
		expectPassed(t, c.check(healthy.ids[2]), "3 hashes that live members served on the way are the replay's")
	})
	t.Run("no request", func(t *testing.T) {
		c := &world{rig: healthy.clone(t), entries: append(healthy.entries[:0:0], healthy.entries...)}
		c.entries[healthy.kept-1].Data = []byte{0xff, 0xff}
		c.archive(c.entries, 4)
		expect(t, c.check(healthy.ids[1]), report.KindApply, fmt.Sprintf("index %d", healthy.kept), "cannot be applied")
	})
	t.Run("another term", func(t *testing.T) {
		c := &world{rig: healthy.clone(t), entries: append(healthy.entries[:0:0], healthy.entries...)}
		for i := healthy.indexes[1] - 1; i < uint64(len(c.entries)); i++ {
			c.entries[i].Term++
		}
		c.archive(c.entries, 4)
		expect(t, c.check(healthy.ids[1]), report.KindDifference, fmt.Sprintf("raft index %d", healthy.indexes[1]), "another history")
	})
}

// What cannot be proved is unchecked, with the reason; and damage of what would
// be begun from is not the snapshot's.
func TestPromise4Unchecked(t *testing.T) {
	healthy := newChain(t)
	t.Run("gap", func(t *testing.T) {
		c := healthy.clone(t)
		c.archive(healthy.entries[healthy.indexes[0]+1:], 4)
		expectUnchecked(t, c.check(healthy.ids[1]), "goes on to raft index 8 only")
		expectPassed(t, c.check(healthy.ids[2]), "with what backup "+healthy.ids[1])
		expectUnchecked(t, c.check(healthy.ids[0]), "no full snapshot before it")
	})
	t.Run("no log", func(t *testing.T) {
		c := healthy.clone(t)
		c.archive(nil, 4)
		expectUnchecked(t, c.check(healthy.ids[1]), "where there is a gap (`requorum list` shows it)")
	})
	t.Run("a cluster that was restored", func(t *testing.T) {
		c := healthy.clone(t)
		own := slices.Clone(healthy.entries)
		own[2].Data = nil // what it wrote was restored: the new leader's empty entry is there
		c.archive(own, 4)
		expectUnchecked(t, c.check(healthy.ids[0]), "was itself restored")
	})
	t.Run("a branch", func(t *testing.T) {
		c := healthy.clone(t)
		catalog := c.catalog()
		catalog.Timelines[0].Parent = &repository.Branch{Timeline: repository.TimelineID{ClusterID: 1, N: 1}}
		check, _, err := Check(t.Context(), c.repo, catalog, c.manifest(healthy.ids[0]), c.o)
		if err != nil {
			t.Fatal(err)
		}
		expectUnchecked(t, check, "no full snapshot before it")
	})
	t.Run("the base is damaged", func(t *testing.T) {
		c := healthy.clone(t)
		c.flip(c.manifest(healthy.ids[1]).Object.Name)
		expectPassed(t, c.check(healthy.ids[2]), "backup "+healthy.ids[1]+" is damaged itself", "an older one was begun from", "with what backup "+healthy.ids[0])
		expect(t, c.check(healthy.ids[1]), report.KindObject, "", "")
	})
	t.Run("the only base is damaged", func(t *testing.T) {
		c := healthy.clone(t)
		c.archive(healthy.entries[healthy.indexes[0]:], 4)
		c.flip(c.manifest(healthy.ids[0]).Object.Name)
		expectUnchecked(t, c.check(healthy.ids[1]), "no other one before it")
	})
	t.Run("the log is damaged", func(t *testing.T) {
		c := healthy.clone(t)
		c.flip(repository.SegmentName{Timeline: c.id, First: 9}.String())
		expect(t, c.check(healthy.ids[1]), report.KindSegment, "", "")
	})
	t.Run("a header of the log is damaged", func(t *testing.T) {
		c := healthy.clone(t)
		c.write(repository.SegmentName{Timeline: c.id, First: 9}.String(), make([]byte, 4096))
		expect(t, c.check(healthy.ids[1]), report.KindSegment, "", "")
	})
	t.Run("encrypted", func(t *testing.T) {
		identity, err := age.GenerateX25519Identity()
		if err != nil {
			t.Fatal(err)
		}
		c := &world{rig: healthy.clone(t), entries: healthy.entries}
		if err := os.RemoveAll(filepath.Join(c.dir, c.id.String(), "full", healthy.ids[1])); err != nil {
			t.Fatal(err)
		}
		id := c.backup(healthy.indexes[1], identity.Recipient())
		expectUnchecked(t, c.check(id), "--identity")
		c.o.Identities = []age.Identity{identity}
		expectPassed(t, c.check(id))
	})
	t.Run("space", func(t *testing.T) {
		c := &checking{}
		if err := c.settle(fmt.Errorf("copy: %w", syscall.ENOSPC)); err != nil || c.Reason == "" {
			t.Errorf("a full disk: %v, %+v", err, c)
		}
	})
}

// flip damages one bit in the middle of an object.
func (r *rig) flip(name string) {
	r.t.Helper()
	path := filepath.Join(r.dir, filepath.FromSlash(name))
	data, err := os.ReadFile(path)
	if err != nil {
		r.t.Fatal(err)
	}
	at := len(data) / 2
	if strings.Contains(name, "/l0/") {
		at = 2048 + (len(data)-2048)/2
	}
	data[at] ^= 1
	r.write(name, data)
}

// Another snapshot of the same state is compared as it is, where there is nothing
// before it.
func TestSameIndex(t *testing.T) {
	healthy := newChain(t)
	c := healthy.clone(t)
	c.archive(nil, 4)
	twin := *c.manifest(healthy.ids[1])
	path, _ := healthy.database(healthy.indexes[1])
	twin.ID = twin.ID[:len(twin.ID)-6] + "ffffff"
	c.store(twin, path)
	expectPassed(t, c.check(twin.ID), "nothing was replayed")
	c.alter(twin.ID, func(tx *bbolt.Tx) error { return alterValue(tx, "/k1", "s3cond") })
	expect(t, c.check(twin.ID), report.KindDifference, `key "/k1", revision 8`, "the value is another one")
}

// etcd 3.4 keeps the raft index with changes of keys only: what came after it and
// is in the database already is no difference, but what never was is one.
func TestLaggingIndex(t *testing.T) {
	w := newWorld(t)
	first := w.put("/a", "1")
	w.put("/b", "1")
	w.put("/a", "2")
	index := w.put("/a", "3")
	w.lease(5, 600)
	w.lease(6, 600)
	w.compact(3)
	at := w.request(&etcdserverpb.InternalRaftRequest{LeaseRevoke: &etcdserverpb.LeaseRevokeRequest{ID: 5}})
	w.lease(7, 600)
	w.put("/c", "1")
	w.archive(w.entries, 4)
	w.backup(first)
	path, _ := w.database(at)
	lag := func(tx *bbolt.Tx) error {
		meta := tx.Bucket([]byte("meta"))
		if err := meta.Delete([]byte("term")); err != nil {
			return err
		}
		return meta.Put([]byte("consistent_index"), binary.BigEndian.AppendUint64(nil, index))
	}
	changeFile(t, path, lag)
	id := w.backupOf(path)
	expectPassed(t, w.check(id), fmt.Sprintf("the database is the one after entry %d", at), "HashKV of both is")

	changeFile(t, path, func(tx *bbolt.Tx) error { return deleteLast(tx.Bucket([]byte("lease")), 0) })
	w.backupOf(path)
	if c := w.check(id); c.Status != report.Damaged {
		t.Errorf("a lease that is gone: %+v", c)
	}
}

// The plan says what it takes, and reads no entry.
func TestPlan(t *testing.T) {
	c := newChain(t)
	p, err := PlanOf(t.Context(), c.repo, c.catalog(), c.manifest(c.ids[2]), c.o)
	if err != nil || p.Base == nil || p.Base.ID != c.ids[1] || p.Entries != c.indexes[2]-c.indexes[1] || p.Memory < memoryFixed || p.Scratch <= 0 || p.Log <= 0 {
		t.Errorf("plan %+v, %v", p, err)
	}
	c.archive(nil, 4)
	if p, err = PlanOf(t.Context(), c.repo, c.catalog(), c.manifest(c.ids[2]), c.o); err != nil || p.Base != nil || p.Reason == "" {
		t.Errorf("plan without a log %+v, %v", p, err)
	}
}

// A context's end is an error, and leaves nothing behind.
func TestCancelled(t *testing.T) {
	c := newChain(t)
	for _, phase := range []string{"fetch", "base", "replay", "compare"} {
		ctx, cancel := context.WithCancel(t.Context())
		fired := false
		c.o.Progress = func(p string, _, _ int64) {
			if p == phase {
				fired = true
				cancel()
			}
		}
		_, _, err := Check(ctx, c.repo, c.catalog(), c.manifest(c.ids[2]), c.o)
		cancel()
		if !errors.Is(err, context.Canceled) || !fired {
			t.Errorf("cancelled in %s (%v): %v", phase, fired, err)
		}
		c.empty()
	}
}
