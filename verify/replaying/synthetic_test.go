package replaying

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// synthesise makes a backup of a chain one that was made of the one before it.
func (c *chain) synthesise(i int) {
	c.t.Helper()
	m := *c.manifest(c.ids[i])
	image, _ := c.database(c.indexes[i])
	m.Synthesis = &snapshot.Synthesis{Base: c.ids[i-1], BaseIndex: c.indexes[i-1], Origin: c.ids[0], Generation: 1}
	m.Source = snapshot.Source{Version: "3.6.0"}
	hash, err := image.HashKV(c.t.Context(), 0)
	require.NoError(c.t, err)
	m.HashKV = hash
	c.store(m, image.Name())
}

// Promise 1: a proof begins from what a member sent, as long as the log leads on
// from there, and from a synthetic snapshot otherwise, which is then said.
func TestPromise1SyntheticBases(t *testing.T) {
	c := newChain(t)
	c.synthesise(1)
	expectPassed(t, c.check(c.ids[2]), "with what backup "+c.ids[0]+" ")
	expectPassed(t, c.check(c.ids[1]), "with what backup "+c.ids[0]+" ")

	t.Run("an altered one", func(t *testing.T) {
		altered := &chain{world: &world{rig: c.clone(t), entries: c.entries}, ids: c.ids, indexes: c.indexes}
		altered.alter(c.ids[1], func(tx *bbolt.Tx) error { return alterValue(tx, "/k1", "s3cond") })
		expectPassed(t, altered.check(c.ids[2]), "with what backup "+c.ids[0]+" ")
		check := altered.check(c.ids[1])
		expect(t, check, report.KindDifference, `key "/k1", revision 8`, "it is another one")
		if strings.Contains(check.Compared, "that member") || !strings.Contains(check.Compared, "so it is this one that is wrong, or the log") {
			t.Errorf("compared %q", check.Compared)
		}
	})
	t.Run("the only one left", func(t *testing.T) {
		left := &chain{world: &world{rig: c.clone(t), entries: c.entries}, ids: c.ids, indexes: c.indexes}
		require.NoError(t, os.RemoveAll(filepath.Join(left.dir, c.id.String(), "full", c.ids[0])))
		left.archive(c.entries[c.indexes[0]:], 4)
		expectPassed(t, left.check(c.ids[2]), "with what backup "+c.ids[1]+" ")
		left.alter(c.ids[1], func(tx *bbolt.Tx) error { return alterValue(tx, "/k1", "s3cond") })
		expect(t, left.check(c.ids[2]), report.KindDifference, `key "/k1", revision 8`, "it is another one")
	})
	t.Run("before the empty database", func(t *testing.T) {
		young := &chain{world: &world{rig: c.clone(t), entries: c.entries}, ids: c.ids, indexes: c.indexes}
		require.NoError(t, os.RemoveAll(filepath.Join(young.dir, c.id.String(), "full", c.ids[0])))
		expectPassed(t, young.check(c.ids[2]), "the empty database before the first entry")
	})
}
