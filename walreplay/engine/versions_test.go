package engine

import (
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"

	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// Promise 1: a snapshot from the middle of the history with the entries that
// follow, and an empty database with all of them, are what a real member of each
// version had at the end, but for what doc.go lists. The members go on from it.
func TestPromise1EqualsMembers(t *testing.T) {
	for _, version := range storetest.Some(storetest.Versions()...) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := storetest.Start(t, storetest.Options{Version: version, Members: 3, ExtraArgs: storetest.MixedArgs()})
			client := c.Client(t)
			status, err := client.Status(t.Context(), c.Member(0).ClientURL)
			require.NoError(t, err)
			o := Options{SourceSettings: SourceSettings{SourceVersion: status.Version}}
			load := storetest.StartMixed(t, c, storetest.MixedOptions{Ops: 800, Seed: 9, Observations: 1})
			load.WaitFor(t, 0.5)
			snapshot := fullSnapshot(t, client)
			load.Wait(t)
			c.StopAll()

			dir := c.Member(0).DataDir
			want := storetest.ReadContents(t, filepath.Join(dir, "member", "snap", "db"))
			t.Run("from a snapshot", func(t *testing.T) {
				expectExplained(t, replayLog(t, snapshot, dir, o), want)
			})
			t.Run("from nothing", func(t *testing.T) {
				expectExplained(t, replayLog(t, empty(t), dir, o), want)
			})
			t.Run("goes on", func(t *testing.T) {
				for i := range c.Size() {
					require.NoError(t, os.WriteFile(filepath.Join(c.Member(i).DataDir, "member", "snap", "db"), readFile(t, snapshot), 0o600))
					c.Restart(t, i)
				}
				c.WaitReady(t)
				_, err := client.Put(t.Context(), "goes", "on")
				require.NoError(t, err)
				_, err = client.AuthEnable(t.Context())
				require.NoError(t, err, "root and its role are there")
				_, err = client.Put(t.Context(), "goes", "on")
				require.Error(t, err, "without a user one may do what one must not")
			})
		})
	}
}

// replayLog replays what a member's log has beyond the database, by both engines, which must come to
// the same. At path is then what Bulk made.
func replayLog(t *testing.T, path, dataDir string, o Options) contents {
	t.Helper()
	bulk := filepath.Join(t.TempDir(), "bulk")
	b, err := OpenBulk(t.Context(), path, bulk, o)
	require.NoError(t, err)
	applied, _ := b.Applied()
	entries := walEntries(t, dataDir, applied+1)
	if len(entries) < 300 {
		t.Fatalf("only %d entries to replay", len(entries))
	}
	bulkStopped, err := Run(t.Context(), b, seq(entries), RunOptions{})
	require.NoError(t, errors.Join(err, b.Close()))
	e := open(t, path, o)
	stopped, err := Run(t.Context(), e, seq(entries), RunOptions{})
	require.NoError(t, err)
	if last := entries[len(entries)-1]; stopped.Index != last.Index || stopped.Term != last.Term {
		t.Errorf("stopped at %+v, want %s", stopped, last)
	}
	require.NoError(t, e.Close())
	if bulkStopped != stopped {
		t.Errorf("in bulk it stopped at %+v, want %+v", bulkStopped, stopped)
	}
	expectEqual(t, storetest.ReadContents(t, bulk), storetest.ReadContents(t, path))
	require.NoError(t, Same(bulk, path))
	require.NoError(t, os.Rename(bulk, path))
	return storetest.ReadContents(t, path)
}

// expectExplained takes from both what doc.go says need not be equal.
func expectExplained(t *testing.T, got, want contents) {
	t.Helper()
	got, want = maps.Clone(got), maps.Clone(want)
	for _, c := range []contents{got, want} {
		for bucket := range c {
			c[bucket] = maps.Clone(c[bucket])
		}
		// The last one may come 4 s after a start, and so behind the snapshot.
		for _, key := range []string{"consistent_index", "term", "storageVersion"} {
			delete(c["meta"], key)
		}
	}
	expectEqual(t, got, want)
}

// fullSnapshot streams a member's database to a file, without the SHA-256 that
// comes behind it.
func fullSnapshot(t testing.TB, client *clientv3.Client) string {
	t.Helper()
	r, err := client.Snapshot(t.Context())
	require.NoError(t, err)
	data, err := io.ReadAll(r)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "snapshot")
	require.NoError(t, os.WriteFile(path, data[:len(data)-32], 0o600))
	return path
}

// walEntries are those in the log of a stopped member, from first on.
func walEntries(t testing.TB, dataDir string, first uint64) []raftlog.Entry {
	t.Helper()
	w, err := wal.OpenForRead(zap.NewNop(), filepath.Join(dataDir, "member", "wal"), &walpb.Snapshot{Index: new(uint64), Term: new(uint64)})
	require.NoError(t, err)
	defer w.Close()
	_, _, all, err := w.ReadAll()
	require.NoError(t, err)
	var entries []raftlog.Entry
	for _, e := range all {
		if e.GetIndex() >= first {
			entries = append(entries, raftlog.Entry{Index: e.GetIndex(), Term: e.GetTerm(), Type: e.GetType(), Data: slices.Clip(e.Data)})
		}
	}
	return entries
}
