package replaying

import (
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

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
