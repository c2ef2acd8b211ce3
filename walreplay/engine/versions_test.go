package engine

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// Promise 1: a snapshot from the middle of the history with the entries that
// follow, and an empty database with all of them, are what a real member of each
// version had at the end, but for what doc.go lists. The member goes on from it.
func TestPromise1EqualsMembers(t *testing.T) {
	for _, version := range storetest.Some(storetest.Versions()...) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := storetest.Start(t, storetest.Options{Version: version})
			client := c.Client(t)
			status, err := client.Status(t.Context(), c.Member(0).ClientURL)
			require.NoError(t, err)
			o := Options{SourceVersion: status.Version}
			(&mixed{t, c, client, "first/"}).run()
			snapshot := fullSnapshot(t, client)
			second := &mixed{t, c, client, "second/"}
			second.shrink(second.grow())
			second.run()
			c.StopAll()

			dir := c.Member(0).DataDir
			db := filepath.Join(dir, "member", "snap", "db")
			want := storetest.ReadContents(t, db)
			t.Run("from a snapshot", func(t *testing.T) {
				expectExplained(t, replayLog(t, snapshot, dir, o), want)
			})
			t.Run("from nothing", func(t *testing.T) {
				expectExplained(t, replayLog(t, empty(t), dir, o), want)
			})
			t.Run("goes on", func(t *testing.T) {
				data, err := os.ReadFile(snapshot)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(db, data, 0o600))
				c.Restart(t, 0)
				storetest.Eventually(t, "it goes on", func() error {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					defer cancel()
					_, err := client.Put(ctx, "goes", "on")
					return err
				})
				(&mixed{t, c, client, "second/"}).keys()
				_, err = client.AuthEnable(t.Context())
				second.must(err)
				_, err = second.login("usersecond/0000", "second").Put(t.Context(), "elsewhere", "v")
				require.Error(t, err, "a user may do what he must not")
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
