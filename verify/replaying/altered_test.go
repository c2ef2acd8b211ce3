package replaying

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/logtest"
)

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
		{"value", func(tx *bbolt.Tx) error { return alterValue(tx, "/k1", "s3cond") }, `key "/k1", revision 8`, "it is another one"},
		{"revision", func(tx *bbolt.Tx) error { return deleteLast(tx.Bucket([]byte("key")), 0) }, `key "/k3", revision 11`, "it is in the replay"},
		{"lease", func(tx *bbolt.Tx) error { return deleteLast(tx.Bucket([]byte("lease")), 0) }, "lease 0000000000000008", "it is in the replay"},
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
	image, _ := healthy.database(healthy.indexes[2])
	h, err := image.HashKV(t.Context(), 0)
	require.NoError(t, err)
	m.HashKV = h
	m.HashKV.Obtained = "from member m1 after the snapshot"
	c.store(m, image.Name())
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
	if len(others) != 1 || others[0].Object != c.id.String()+"/full/"+healthy.ids[1] || others[0].Level != report.Replay {
		t.Fatalf("the snapshot that is wrong has no check: %+v", others)
	}
	expect(t, others[0], report.KindDifference, `key "/k1", revision 8`, "so it is this one that is wrong")
	expect(t, c.check(healthy.ids[1]), report.KindDifference, `key "/k1", revision 8`, "it is another one")
	require.NoError(t, os.RemoveAll(filepath.Join(c.dir, c.id.String(), "full", healthy.ids[0])))
	c.archive(healthy.entries[healthy.indexes[0]:], 4)
	check, others = c.checkAll(healthy.ids[2])
	if len(others) > 0 {
		t.Errorf("nobody knows which is wrong: %+v", others)
	}
	expect(t, check, report.KindDifference, `key "/k1", revision 8`, "it is another one")
	if !strings.Contains(check.Compared, "One of the three is wrong") || strings.Contains(check.Compared, "so it is") {
		t.Errorf("compared %q", check.Compared)
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
// snapshot it is not, which the check says.
func TestAlteredEntry(t *testing.T) {
	healthy := newChain(t)
	altered := func(t *testing.T, index uint64, key string) *world {
		c := &world{rig: healthy.clone(t), entries: append(healthy.entries[:0:0], healthy.entries...)}
		c.entries[index-1] = logtest.Entry(t, index, logtest.Put(key, "altered"))
		c.archive(c.entries, 4)
		return c
	}
	t.Run("seen", func(t *testing.T) {
		c := altered(t, healthy.kept, "/k1")
		expect(t, c.check(healthy.ids[1]), report.KindDifference, `key "/k1", revision 8`, "it is another one: ")
		if check := c.check(healthy.ids[2]); check.Status != report.Passed {
			t.Errorf("the part of the log that was not altered: %+v", check)
		}
	})
	t.Run("another key", func(t *testing.T) {
		c := altered(t, healthy.kept, "/k9")
		expect(t, c.check(healthy.ids[1]), report.KindDifference, `key "/k9", revision 8`, "it is another one")
	})
	remove := func(c *world) {
		require.NoError(t, os.RemoveAll(filepath.Join(c.dir, c.id.String(), "full", healthy.ids[1])))
	}
	t.Run("overwritten and compacted", func(t *testing.T) {
		c := altered(t, healthy.gone, "/k0")
		remove(c)
		expectPassed(t, c.check(healthy.ids[2]), "with what backup "+healthy.ids[0], "compacted revision 10 (of what was overwritten or deleted by then, nothing is left to compare)")
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
