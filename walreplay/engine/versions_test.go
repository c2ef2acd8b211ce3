package engine

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/store/storetest"

	"github.com/requorum/requorum/walreplay/engine/enginetest"
)

// Promise 1: a snapshot from the middle of the history with the entries that
// follow, and an empty database with all of them, are what a real member of each
// version had at the end, but for what doc.go lists. The member goes on from it.
func TestPromise1EqualsMembers(t *testing.T) {
	for _, version := range storetest.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := storetest.Start(t, storetest.Options{Version: version})
			client := c.Client(t)
			status, err := client.Status(t.Context(), c.Member(0).ClientURL)
			if err != nil {
				t.Fatal(err)
			}
			o := Options{SourceVersion: status.Version}
			(&mixed{t, c, client, "first/"}).run()
			snapshot := fullSnapshot(t, client)
			second := &mixed{t, c, client, "second/"}
			number, id := second.grow()
			second.run()
			second.shrink(number, id)
			c.StopAll()

			dir := c.Member(0).DataDir
			db := filepath.Join(dir, "member", "snap", "db")
			want := enginetest.Read(t, db)
			t.Run("from a snapshot", func(t *testing.T) {
				expectExplained(t, version, replayLog(t, snapshot, dir, o), want)
			})
			t.Run("from nothing", func(t *testing.T) {
				got := replayLog(t, empty(t), dir, o)
				// Written when the member started for the first time.
				delete(want["meta"], "storageVersion")
				expectExplained(t, version, got, want)
			})
			t.Run("goes on", func(t *testing.T) {
				data, err := os.ReadFile(snapshot)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(db, data, 0o600); err != nil {
					t.Fatal(err)
				}
				c.Restart(t, 0)
				second.eventually(func(ctx context.Context) error { _, err := client.Put(ctx, "goes", "on"); return err })
				(&mixed{t, c, client, "second/"}).keys()
				_, err = client.AuthEnable(t.Context())
				second.must(err)
				_, err = second.login("usersecond/0000", "second").Put(t.Context(), "elsewhere", "v")
				if err == nil {
					t.Error("a user may do what he must not")
				}
			})
		})
	}
}

// replayLog replays what a member's log has beyond the database.
func replayLog(t *testing.T, path, dataDir string, o Options) contents {
	t.Helper()
	e := open(t, path, o)
	applied, _ := e.Applied()
	entries := walEntries(t, dataDir, applied+1)
	if len(entries) < 300 {
		t.Fatalf("only %d entries to replay", len(entries))
	}
	stopped, err := Run(t.Context(), e, seq(entries), RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if last := entries[len(entries)-1]; stopped.Index != last.Index || stopped.Term != last.Term || stopped.Reason != ReasonEnd {
		t.Errorf("stopped at %+v, want %s", stopped, last)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	return enginetest.Read(t, path)
}

// expectExplained takes from both what doc.go says need not be equal, and sees
// that etcd 3.4 still does differ in it.
func expectExplained(t *testing.T, version string, got, want contents) {
	t.Helper()
	got, want = maps.Clone(got), maps.Clone(want)
	for _, c := range []contents{got, want} {
		for bucket := range c {
			c[bucket] = maps.Clone(c[bucket])
		}
		delete(c["meta"], "consistent_index")
	}
	if version == "3.4" {
		for _, k := range []string{"term", "confState"} {
			if want["meta"][k] != nil {
				t.Errorf("etcd 3.4 keeps meta/%s", k)
			}
			delete(got["meta"], k)
		}
		if n := dropPasswords(t, got, want); n == 0 {
			t.Error("no hash of a password differs")
		}
		if n := dropTombstones(got, want); n == 0 {
			t.Error("no tombstone at the compacted revision differs")
		}
	}
	expectEqual(t, got, want)
}

// dropPasswords takes the hashes out, and counts those that differ.
func dropPasswords(t *testing.T, got, want contents) int {
	t.Helper()
	n := 0
	for name := range want["authUsers"] {
		var users [2]authpb.User
		for i, c := range []contents{got, want} {
			if err := proto.Unmarshal(c["authUsers"][name], &users[i]); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(users[0].Password, users[1].Password) {
			n++
		}
		for i, c := range []contents{got, want} {
			users[i].Password = nil
			data, err := proto.Marshal(&users[i])
			if err != nil {
				t.Fatal(err)
			}
			c["authUsers"][name] = data
		}
	}
	return n
}

// dropTombstones takes those out that only the replay has, at the compacted
// revision.
func dropTombstones(got, want contents) int {
	n := 0
	compacted := mvcc.BytesToRev(want["meta"]["finishedCompactRev"])
	for k := range got["key"] {
		if want["key"][k] == nil && mvcc.IsTombstone([]byte(k)) && mvcc.BytesToRev([]byte(k)).Main == compacted.Main {
			delete(got["key"], k)
			n++
		}
	}
	return n
}
