package sources

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
)

func put(t *testing.T, c *storetest.Cluster, n int, members ...int) {
	t.Helper()
	client := c.Client(t, members...)
	for range n {
		_, err := client.Put(t.Context(), "k", strings.Repeat("v", 100))
		require.NoError(t, err)
	}
}

// copied is a copy of a member's directory, under another name.
func copied(t *testing.T, c *storetest.Cluster, i int, name string) Survivor {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	c.CopyData(t, i, dir)
	return Survivor{Name: name, DataDir: dir}
}

// quietCopy is a copy of a running member while nothing is written: a disk
// snapshot.
func quietCopy(t *testing.T, c *storetest.Cluster, i int) Survivor {
	t.Helper()
	waitEqual(t, c, 0, i)
	c.WriteOut(t, i)
	return copied(t, c, i, c.Member(i).Name)
}

func segmentOf(t *testing.T, s Survivor) string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(s.DataDir, "member", "wal", "*.wal"))
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	slices.Sort(all)
	return all[len(all)-1]
}

// alter changes one byte of what is found in a file, the n-th time or the last.
func alter(t *testing.T, path, what string, last bool) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	at := bytes.Index(data, []byte(what))
	if last {
		at = bytes.LastIndex(data, []byte(what))
	}
	if at < 0 {
		t.Fatalf("%s does not hold %q", path, what)
	}
	data[at] ^= 1
	require.NoError(t, os.WriteFile(path, data, 0o600))
}

func has(all []Finding, kind Kind) bool {
	return slices.ContainsFunc(all, func(f Finding) bool { return f.Kind == kind && f.Text != "" })
}

// Damage is recognised and named, whichever of the members it is in, and never
// used in silence: a flipped bit in a database, in the middle of a log, in the
// last record, a log that is gone, and one that was cut off.
func TestDamageIsRecognised(t *testing.T) {
	t.Parallel()
	c := storetest.Start(t, storetest.Options{Version: "3.6", Members: 3})
	c.WaitReady(t)
	put(t, c, 60)
	time.Sleep(250 * time.Millisecond) // until they are in the databases: a commit comes every 100 ms
	put(t, c, 20)
	c.KillAll()
	good := survivorsOf(c, 1, 2)
	whole := decide(t, surveyed(t, good...), DecideRequest{})
	end := whole.Candidate(whole.Chosen).LastIndex
	if !whole.Proven {
		t.Fatal(whole.Why)
	}
	for _, f := range []struct {
		name string
		kind Kind
		do   func(Survivor)
		// usable: it can be a candidate by itself; counts: its log is a witness.
		usable, counts bool
	}{
		// The log begins with the cluster's first entry. Without the database's index nothing
		// shows that it has its end.
		{"all pages of the database", KindDatabase, func(s Survivor) { flip(t, s) }, true, false},
		{"a page of keys", KindDatabase, func(s Survivor) {
			path := filepath.Join(s.DataDir, "member", "snap", "db")
			db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
			require.NoError(t, err)
			at := 0
			err = db.View(func(tx *bbolt.Tx) error {
				at = int(tx.Bucket([]byte("key")).Root()) * db.Info().PageSize
				return nil
			})
			require.NoError(t, errors.Join(err, db.Close()))
			require.NotZero(t, at, "the keys have no page of their own")
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			data[at+8] ^= 0xff // the page's head
			require.NoError(t, os.WriteFile(path, data, 0o600))
		}, true, true},
		{"a bit in the middle of the log", KindBrokenLog, func(s Survivor) { alter(t, segmentOf(t, s), "vvvvv", false) }, true, false},
		{"a bit of the last record", KindBrokenLog, func(s Survivor) { alter(t, segmentOf(t, s), "vvvvv", true) }, true, false},
		{"no log", KindNoLog, func(s Survivor) { os.RemoveAll(filepath.Join(s.DataDir, "member", "wal")) }, true, false},
	} {
		t.Run(f.name, func(t *testing.T) {
			bad := copied(t, c, 0, c.Member(0).Name)
			f.do(bad)
			// With a whole majority beside it nothing is lost, and it is not chosen.
			found := surveyed(t, append([]Survivor{bad}, good...)...)
			if !has(found.Survivors[0].Findings, f.kind) {
				t.Errorf("findings %+v, want %s", found.Survivors[0].Findings, f.kind)
			}
			p := decide(t, found, DecideRequest{})
			if !p.Proven || p.Chosen == bad.Name || p.Candidate(p.Chosen).LastIndex < end {
				t.Errorf("chosen %s, proven %t: %s", p.Chosen, p.Proven, p.Why)
			}
			if got := p.Candidate(bad.Name); (got.Source != nil) != f.usable || got.Rank == 1 {
				t.Errorf("its candidate: %+v", got)
			}
			// With one other, it counts only where its log is whole.
			p = decide(t, surveyed(t, bad, good[0]), DecideRequest{})
			if p.Proven != f.counts || !p.Proven && f.kind == KindBrokenLog && !strings.Contains(p.Why, "damaged") {
				t.Errorf("with one other: proven %t: %s", p.Proven, p.Why)
			}
			// Alone it is named where it is used.
			p, err := Decide(surveyed(t, bad), DecideRequest{})
			switch {
			case f.kind == KindNoLog:
				if err == nil || p.Chosen != "" {
					t.Errorf("a database without a log was chosen by itself")
				}
				if p, err = Decide(surveyed(t, bad), DecideRequest{Source: bad.Name}); err != nil || p.Proven || !p.Bump.Raise {
					t.Errorf("named: %+v, %v", p, err)
				}
			case err != nil:
				t.Error(err)
			case p.Proven || !strings.Contains(strings.Join(p.Doubts(), "\n"), "damaged"):
				t.Errorf("alone: proven %t, doubts %q", p.Proven, p.Doubts())
			}
		})
	}
}

// A directory that was put back from a copy is behind what it acknowledged. With
// the others' logs that is shown by counting who holds what was committed.
func TestRolledBackSurvivors(t *testing.T) {
	t.Parallel()
	c := storetest.Start(t, storetest.Options{Version: "3.7", Members: 3})
	c.WaitReady(t)
	put(t, c, 20)
	var olds []Survivor
	for _, i := range []int{1, 2} {
		olds = append(olds, quietCopy(t, c, i))
	}
	put(t, c, 30)
	c.WriteOut(t, 0) // a commit index has to reach a log or a database
	c.KillAll()
	first := survivorsOf(c, 0)[0]
	p := decide(t, surveyed(t, append(olds, first)...), DecideRequest{})
	if p.Proven || p.Chosen != first.Name || !strings.Contains(p.Why, "rolled back") || !p.Bump.Raise {
		t.Errorf("chosen %s, proven %t: %s", p.Chosen, p.Proven, p.Why)
	}
	if lost := p.Candidate(olds[0].Name).Lost.Entries; lost < 30 {
		t.Errorf("%s lost %d entries", olds[0].Name, lost)
	}
	if p := decide(t, surveyed(t, survivorsOf(c, 0, 1, 2)...), DecideRequest{}); !p.Proven {
		t.Errorf("as they were: %s", p.Why)
	}
	// A copy of a member beside itself is one voter, not two.
	p = decide(t, surveyed(t, first, copied(t, c, 0, "copy")), DecideRequest{})
	if p.Proven || !has(p.Candidate("copy").Findings, KindCopy) && !has(p.Candidate(first.Name).Findings, KindCopy) {
		t.Errorf("a copy counted: %s", p.Why)
	}
}

// --force-new-cluster begins another history, whoever has more entries: both are
// shown, none is chosen, and each can be named.
func TestForcedNewCluster(t *testing.T) {
	t.Parallel()
	for _, version := range storetest.Some("3.5", "3.7") {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := storetest.Start(t, storetest.Options{Version: version, Members: 3})
			c.WaitReady(t)
			put(t, c, 20)
			c.KillAll()
			others := survivorsOf(c, 1, 2)
			c.Restart(t, 0, "--force-new-cluster")
			client := c.Client(t, 0)
			storetest.Eventually(t, "it serves alone", func() error { _, err := client.Put(t.Context(), "after", "x"); return err })
			put(t, c, 5, 0)
			c.Kill(0)
			forced := survivorsOf(c, 0)[0]
			found := surveyed(t, append([]Survivor{forced}, others...)...)
			if !has(found.Survivors[0].Findings, KindForced) || len(found.Survivors[0].Membership.Members) != 1 {
				t.Errorf("%+v", found.Survivors[0])
			}
			p, err := Decide(found, DecideRequest{})
			var need *NeedSourceError
			if !errors.As(err, &need) || len(need.Histories) != 2 || p.Chosen != "" || !strings.Contains(err.Error(), "--force-new-cluster") {
				t.Fatalf("%v\n%+v", err, p)
			}
			p = decide(t, found, DecideRequest{Source: others[0].Name})
			if p.Proven || !p.Bump.Raise || p.Chosen != others[0].Name || len(p.Members) != 3 {
				t.Errorf("named: %+v", p)
			}
			// Without the forced one the others are a cluster; with it alone, it is.
			if p := decide(t, surveyed(t, others...), DecideRequest{}); !p.Proven {
				t.Errorf("the others: %s", p.Why)
			}
			p = decide(t, surveyed(t, forced), DecideRequest{})
			if !p.Proven || !strings.Contains(p.Why, "lost then") || !strings.Contains(strings.Join(p.Doubts(), "\n"), "--force-new-cluster") {
				t.Errorf("alone: %+v", p)
			}
		})
	}
}

// A member that was removed is used only when it is named, and does not count; a
// learner's data is as good as another's, and does not count either.
func TestRemovedMemberAndLearner(t *testing.T) {
	t.Parallel()
	c := storetest.Start(t, storetest.Options{Version: "3.5", Members: 3})
	c.WaitReady(t)
	put(t, c, 10)
	learner := c.AddLearner(t)
	client := c.Client(t, 0)
	list, err := client.MemberList(t.Context())
	require.NoError(t, err)
	removed := 2
	c.Stop(removed)
	for _, m := range list.Members {
		if m.Name == c.Member(removed).Name {
			remove(t, client, m.ID)
		}
	}
	put(t, c, 10, 0)
	waitEqual(t, c, 0, learner)
	c.KillAll()
	all := survivorsOf(c, 0, 1, removed, learner)
	p := decide(t, surveyed(t, all...), DecideRequest{})
	if !p.Proven || len(p.Members) != 3 {
		t.Errorf("proven %t, members %+v: %s", p.Proven, p.Members, p.Why)
	}
	gone, learns := p.Candidate(c.Member(removed).Name), p.Candidate(c.Member(learner).Name)
	if gone.Rank != 0 || !has(gone.Findings, KindRemoved) || !has(learns.Findings, KindLearner) || learns.Rank == 0 {
		t.Errorf("%+v\n%+v", gone, learns)
	}
	// One of two voters, the learner and the removed one are no majority.
	p = decide(t, surveyed(t, all[0], all[2], all[3]), DecideRequest{})
	if p.Proven || p.Fence.Enough || !strings.Contains(p.Fence.Why, c.Member(1).Name) {
		t.Errorf("%+v", p)
	}
	p = decide(t, surveyed(t, all[0], all[2], all[3]), DecideRequest{Source: c.Member(removed).Name, DeclareDead: []string{c.Member(1).Name}})
	if p.Chosen != gone.Name || p.Proven || !p.Fence.Enough || p.Loss.Entries == 0 || !strings.Contains(strings.Join(p.Doubts(), "\n"), "removed") {
		t.Errorf("named: %+v", p)
	}
	_, err = Decide(surveyed(t, all...), DecideRequest{DeclareDead: []string{"nobody"}})
	require.Error(t, err, "a member that is not known was declared dead")
}

func remove(t *testing.T, client *clientv3.Client, id uint64) {
	t.Helper()
	storetest.Reconfigure(t, func(ctx context.Context) error { _, err := client.MemberRemove(ctx, id); return err }, rpctypes.ErrMemberNotFound)
}

func waitEqual(t *testing.T, c *storetest.Cluster, a, b int) {
	t.Helper()
	client := c.Client(t, a)
	storetest.Eventually(t, "both have applied the same", func() error {
		x, err1 := client.Status(t.Context(), c.Member(a).ClientURL)
		y, err2 := client.Status(t.Context(), c.Member(b).ClientURL)
		err := errors.Join(err1, err2)
		if err == nil && x.RaftAppliedIndex != y.RaftAppliedIndex {
			err = fmt.Errorf("up to %d and %d", x.RaftAppliedIndex, y.RaftAppliedIndex)
		}
		return err
	})
}

// A database without its entry's term is etcd 3.4's: nothing is recovered from it.
func TestTooOldEtcdIsRefused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "m1")
	path := filepath.Join(dir, "member", "snap", "db")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	db, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, name := range []string{"key", "lease", "cluster", "members", "members_removed", "alarm", "auth", "authUsers", "authRoles"} {
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		meta, err := tx.CreateBucket([]byte("meta"))
		if err != nil {
			return err
		}
		return meta.Put([]byte("consistent_index"), []byte{0, 0, 0, 0, 0, 0, 0, 9})
	})
	require.NoError(t, errors.Join(err, db.Close()))
	require.ErrorIs(t, WriteSummary(t.Context(), io.Discard, Survivor{Name: "m1", DataDir: dir}, SummaryOptions{}), snapshot.ErrTooOld)
}
