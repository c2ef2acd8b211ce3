package e2e

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
)

// replayPuts are enough for a replay that lasts long enough to be killed.
const replayPuts = 40_000

// putMany writes keys as fast as one client can.
func putMany(t testing.TB, client *clientv3.Client, n int) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(128)
	for i := range n {
		group.Go(func() error {
			_, err := client.Put(t.Context(), fmt.Sprintf("/many/%06d", i%5000), strings.Repeat("x", 200))
			return err
		})
	}
	require.NoError(t, group.Wait())
}

// TestKilledReplay is promise 1 for a restore to a point in time: it is killed
// while it replays the log. Nothing is where a member would look, and the next
// run needs no cleaning: it leaves three members that serve what was asked for,
// and no scratch.
func TestKilledReplay(t *testing.T) {
	if testing.Short() {
		t.Skip("TestKilledRestore kills restores; restore kills them at each step")
	}
	t.Parallel()
	c := storetest.Start(t, storetest.Options{Version: "3.7", Members: 1})
	u := newUser(t)
	repo := u.Path("repo")
	client := c.Client(t)
	base := u.backup(t, c.Endpoints(), "file://"+repo)
	putMany(t, client, replayPuts)
	undo, err := client.Put(t.Context(), "/web", "up")
	require.NoError(t, err)
	want := hashAt(t, c, 0, undo.Header.Revision)
	_, err = client.Delete(t.Context(), "/web")
	require.NoError(t, err)
	for range 10 {
		_, err = client.Put(t.Context(), "/later", "x")
		require.NoError(t, err)
	}
	entries, err := readWAL(filepath.Join(c.Member(0).DataDir, "member", "wal"))
	require.NoError(t, err)
	_, _, err = archiveByHand(t.Context(), repo, entries, base.Facts.RaftIndex, undo.Header.Revision+11)
	require.NoError(t, err)

	dir := u.Path("data")
	args := []string{
		"restore", "--output", "json", "--repo", "file://" + repo, "--before", "/web",
		"--initial-cluster", storetest.InitialCluster(t, names(3)...), "--data-dir", dataDirs(dir),
	}
	scratch := func() []string {
		found, err := filepath.Glob(filepath.Join(dir, ".requorum-scratch-*", "db"))
		if err != nil {
			t.Error(err)
		}
		return found
	}
	kills := 0
	for round := 0; kills < short(3, 20); round++ {
		if round > 60 {
			t.Fatalf("only %d runs were killed while they replayed", kills)
		}
		// The search's scratch is there first, then that of the replay.
		before := scratch()
		fresh := func() bool {
			return slices.ContainsFunc(scratch(), func(s string) bool { return !slices.Contains(before, s) })
		}
		command := u.Start(t, args...)
		if !command.KillOnce(t, fresh, rand.N(150*time.Millisecond)) {
			t.Fatal("it ended before it was killed: the replay is too short")
		}
		if len(scratch()) > 1 {
			t.Errorf("what dead runs have left is not removed: %s", strings.Join(scratch(), ", "))
		}
		var other []string
		for _, name := range tree(t, dir) {
			if !strings.HasPrefix(name, ".requorum-scratch-") {
				other = append(other, name)
			}
		}
		if len(other) > 0 {
			t.Errorf("killed in the replay: %s", strings.Join(other, ", "))
		}
		if len(scratch()) > 0 {
			kills++
		}
	}
	figure(t, "replays killed", kills)
	nothingLeft := func(after string) {
		left, err := filepath.Glob(filepath.Join(dir, ".requorum-scratch-*"))
		if err != nil || len(left) > 0 {
			t.Errorf("after %s scratch is left: %s, %v", after, strings.Join(left, ", "), err)
		}
	}
	u.Must(t, exitOK, "restore", base.ID, "--repo", "file://"+repo, "--to-snapshot", filepath.Join(dir, "base.db"))
	nothingLeft("a restore that replays nothing")
	if !u.Start(t, args...).KillOnce(t, func() bool { return len(scratch()) > 0 }, 0) {
		t.Fatal("it ended before it was killed: the replay is too short")
	}
	r := decode[restoreReport](t, u.Must(t, exitOK, append(args, "--record")...))
	nothingLeft("the restore")
	if r.Restore.RevisionBefore != undo.Header.Revision {
		t.Errorf("restored revision %d, want %d", r.Restore.RevisionBefore, undo.Header.Revision)
	}
	recipe := r.Restore.Plan.Source.Recipe
	if got := (snapshot.HashKV{Hash: recipe.HashKV.Hash, Revision: recipe.HashKV.Revision, CompactedRevision: recipe.HashKV.CompactedRevision}); got != want {
		t.Errorf("HashKV of what was rebuilt %+v, the member served %+v", got, want)
	}
	restored := startRestored(t, "3.7", r)
	for i := range restored.Size() {
		got, err := restored.Client(t, i).Get(t.Context(), "/web")
		if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "up" {
			t.Errorf("%s: /web is %v, %v", restored.Member(i).Name, got, err)
		}
	}
	expectEqual(t, t.Context(), restored)
	expectBranch(t, repo, r)
}

// expectBranch wants the new timeline to begin where the replay ended, with the
// archive's chain value there.
func expectBranch(t *testing.T, dir string, r restoreReport) {
	t.Helper()
	id, err := repository.ParseTimelineID(r.Timeline)
	require.NoError(t, err)
	branch, err := openRepo(t, dir).Timeline(t.Context(), id)
	require.NoError(t, err)
	recipe := r.Restore.Plan.Source.Recipe
	want := repository.Branch{Timeline: recipe.Timeline, Backup: recipe.Base, RaftIndex: recipe.Index, Revision: recipe.Revision, Chain: recipe.Chain.String()}
	if branch.Parent == nil || *branch.Parent != want {
		t.Errorf("the new timeline branches off at %+v, want %+v", branch.Parent, want)
	}
}

// Promise 1: a restore that replays, killed when it has put all members in place and
// blocks them still, is completed by the same command. Another request is refused. Promise
// 2: it has nothing but the data directory of a member that was killed right after its last
// acknowledgement, and what it builds serves that.
func TestPromise1And2KilledAfterTheReplay(t *testing.T) {
	t.Parallel()
	c := storetest.Start(t, storetest.Options{Version: "3.7", Members: 1})
	u := newUser(t)
	client := c.Client(t)
	args := []string{
		"restore", "--output", "json", "--from-data-dir", c.Member(0).DataDir,
		"--initial-cluster", storetest.InitialCluster(t, names(3)...),
	}
	if e := u.Run(t, append(slices.Clone(args), "--data-dir", dataDirs(u.Path("none")))...); e.Code != exitFailed || !strings.Contains(e.Stderr, "is in use") {
		t.Errorf("a running member: %s", e)
	}
	var acked int64
	for i := range 500 {
		put, err := client.Put(t.Context(), fmt.Sprintf("/key/%03d", i), "x")
		require.NoError(t, err)
		acked = put.Header.Revision
	}
	c.Kill(0)
	for round := range 30 {
		dir := u.Path(fmt.Sprint("data", round))
		same := append(slices.Clone(args), "--data-dir", dataDirs(dir))
		sealed := func() bool {
			all, _ := filepath.Glob(filepath.Join(dir, "m1", "member", "requorum-restored.json")) // the pattern is right
			return len(all) > 0
		}
		if !u.Start(t, same...).KillOnce(t, sealed, 0) {
			continue // it was faster
		}
		blocked, err := restore.Incomplete(filepath.Join(dir, "m3"))
		require.NoError(t, err)
		if blocked == nil {
			continue
		}
		other := append(slices.Clone(same), "--initial-cluster", storetest.InitialCluster(t, names(3)...)) // at other ports
		if e := u.Must(t, exitFailed, other...); !strings.Contains(e.Stderr, "was restored there") {
			t.Errorf("another request: %s", e)
		}
		r := decode[restoreReport](t, u.Must(t, exitOK, same...))
		if !r.Restore.CompletedEarlier || r.Restore.Plan.ID != blocked.ID {
			t.Errorf("the same request: %+v", r.Restore)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, ".requorum*")); len(left) > 0 {
			t.Errorf("it leaves %q", left)
		}
		for _, m := range r.Restore.Members {
			require.NoError(t, restore.CheckStartable(m.DataDir, m.WALDir))
		}
		require.Equal(t, acked, r.Restore.RevisionBefore)
		restored := startRestored(t, "3.7", r)
		got, err := restored.Client(t).Get(t.Context(), "/key/499")
		require.NoError(t, err)
		require.Len(t, got.Kvs, 1)
		expectEqual(t, t.Context(), restored)
		return
	}
	t.Fatal("no run was killed while its members were blocked")
}
