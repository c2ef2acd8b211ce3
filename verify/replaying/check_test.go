package replaying

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify/report"
)

// Promise 7 of the design: each snapshot is proved by the one before it and the
// log, and the first one by the log alone where that begins with the first entry.
func TestPromise7Chain(t *testing.T) {
	c := newChain(t)
	expectPassed(t, c.check(c.ids[1]), "with what backup "+c.ids[0], "up to raft index 11 give", "HashKV of both is")
	last := c.check(c.ids[2])
	expectPassed(t, last, "with what backup "+c.ids[1], "compacted revision 10", "every row of the other buckets")
	if last.Bytes == 0 || last.Took == 0 || len(last.Phases) < 3 {
		t.Errorf("check %+v", last)
	}
	expectPassed(t, c.check(c.first()), "the empty database before the first entry", "8 entries")
}

// The log is replayed by the rules of the etcd that the base was read from, and
// where that was upgraded until the snapshot, of the later one too.
func TestUpgraded(t *testing.T) {
	healthy := newChain(t)
	c := healthy.clone(t)
	m := *c.manifest(healthy.ids[1])
	m.Source.Version = "3.5.9"
	image, _ := healthy.database(healthy.indexes[1])
	c.store(m, image.Name())
	expectPassed(t, c.check(m.ID), "3 entries")
	c.alter(m.ID, func(tx *bbolt.Tx) error { return alterValue(tx, "/k1", "s3cond") })
	check := c.check(m.ID)
	expect(t, check, report.KindDifference, `key "/k1", revision 8`, "it is another one")
	if len(check.Findings) != 1 || strings.Count(check.Compared, "One of the three") != 1 {
		t.Errorf("check %+v", check)
	}
}

// What cannot be proved is unchecked, with the reason; and damage of what would
// be begun from is not the snapshot's.
func TestPromise4Unchecked(t *testing.T) {
	healthy := newChain(t)
	run := func(name string, check func(*testing.T, *rig)) {
		t.Run(name, func(t *testing.T) { check(t, healthy.clone(t)) })
	}
	run("gap", func(t *testing.T, c *rig) {
		c.archive(healthy.entries[healthy.indexes[0]+1:], 4)
		expectUnchecked(t, c.check(healthy.ids[1]), "goes on to raft index 8 only")
		expectPassed(t, c.check(healthy.ids[2]), "with what backup "+healthy.ids[1])
		expectUnchecked(t, c.check(healthy.ids[0]), "not yet: a replay needs two full snapshots")
	})
	run("no log", func(t *testing.T, c *rig) {
		c.archive(nil, 4)
		expectUnchecked(t, c.check(healthy.ids[1]), "where there is a gap (`requorum list` shows it)")
	})
	run("a cluster that was restored", func(t *testing.T, c *rig) {
		own := slices.Clone(healthy.entries)
		own[2].Data = nil // what it wrote was restored: the new leader's empty entry is there
		c.archive(own, 4)
		expectUnchecked(t, c.check(healthy.ids[0]), "was itself restored")
	})
	run("a branch", func(t *testing.T, c *rig) {
		catalog := c.catalog()
		catalog.Timelines[0].Parent = &repository.Branch{Timeline: repository.TimelineID{ClusterID: 1, N: 1}}
		check, _, err := Check(t.Context(), c.repo, catalog, c.manifest(healthy.ids[0]), c.with(healthy.ids[0]))
		require.NoError(t, err)
		expectUnchecked(t, check, "not yet: a replay needs two full snapshots")
	})
	run("the base is damaged", func(t *testing.T, c *rig) {
		c.flip(c.manifest(healthy.ids[1]).Object.Name)
		expectPassed(t, c.check(healthy.ids[2]), "backup "+healthy.ids[1]+" is damaged itself", "an older one was begun from", "with what backup "+healthy.ids[0])
	})
	t.Run("it could not be unpacked", func(t *testing.T) {
		check, _, err := Check(t.Context(), healthy.repo, healthy.catalog(), healthy.manifest(healthy.ids[1]), healthy.o)
		require.NoError(t, err)
		expectUnchecked(t, check, "it could not be unpacked")
	})
	run("the only base is damaged", func(t *testing.T, c *rig) {
		c.archive(healthy.entries[healthy.indexes[0]:], 4)
		c.flip(c.manifest(healthy.ids[0]).Object.Name)
		expectUnchecked(t, c.check(healthy.ids[1]), "no other one before it")
	})
	run("the log is damaged", func(t *testing.T, c *rig) {
		c.flip(repository.SegmentName{Timeline: c.id, First: 9}.String())
		expect(t, c.check(healthy.ids[1]), report.KindSegment, "", "")
	})
	run("a header of the log is damaged", func(t *testing.T, c *rig) {
		c.write(repository.SegmentName{Timeline: c.id, First: 9}.String(), make([]byte, 4096))
		expect(t, c.check(healthy.ids[1]), report.KindSegment, "", "")
	})
	t.Run("encrypted", func(t *testing.T) {
		identity, err := age.GenerateX25519Identity()
		require.NoError(t, err)
		c := &world{rig: healthy.clone(t), entries: healthy.entries}
		require.NoError(t, os.RemoveAll(filepath.Join(c.dir, c.id.String(), "full", healthy.ids[1])))
		id := c.backup(healthy.indexes[1], identity.Recipient())
		// Log in the clear after it may be anybody's.
		expect(t, c.check(healthy.ids[2]), report.KindSegment, "", "")
		c.archive(healthy.entries, 4, identity.Recipient())
		expectUnchecked(t, c.check(healthy.ids[2]), "--identity")
		c.o.Identities = []age.Identity{identity}
		expectPassed(t, c.check(healthy.ids[2]), "with what backup "+id)
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
	require.NoError(r.t, err)
	at := len(data) / 2
	if strings.Contains(name, "/l0/") {
		at = 2048 + (len(data)-2048)/2
	}
	data[at] ^= 1
	r.write(name, data)
}

// Another snapshot of the same state proves nothing of it: no log is replayed.
func TestSameIndex(t *testing.T) {
	healthy := newChain(t)
	c := healthy.clone(t)
	c.archive(nil, 4)
	require.NoError(t, os.RemoveAll(filepath.Join(c.dir, c.id.String(), "full", healthy.ids[0])))
	twin := *c.manifest(healthy.ids[1])
	image, _ := healthy.database(healthy.indexes[1])
	twin.ID = twin.ID[:len(twin.ID)-6] + "ffffff"
	c.store(twin, image.Name())
	check := c.check(twin.ID)
	expectUnchecked(t, check, "not yet: a replay needs two full snapshots")
	if !check.NotYet {
		t.Error("it is called a failure")
	}
}

// A check says whether there was anything to begin from, and what else it lacked is no
// lack of that.
func TestNoBase(t *testing.T) {
	c := newChain(t)
	if check := c.check(c.ids[2]); check.NoBase || check.Status != report.Passed {
		t.Errorf("%+v", check)
	}
	check, _, err := Check(t.Context(), c.repo, c.catalog(), c.manifest(c.ids[1]), c.o)
	if err != nil || check.NoBase || check.Status != report.Unchecked {
		t.Errorf("it could not be unpacked: %+v, %v", check, err)
	}
	c.archive(nil, 4)
	if check := c.check(c.ids[2]); !check.NoBase || check.NotYet || check.Status != report.Unchecked {
		t.Errorf("%+v", check)
	}
}

// A context's end is an error, and leaves nothing behind.
func TestCancelled(t *testing.T) {
	c := newChain(t)
	c.o = c.with(c.ids[2])
	for _, phase := range []string{"base", "replay", "compare"} {
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
