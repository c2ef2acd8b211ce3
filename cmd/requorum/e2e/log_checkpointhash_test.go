package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// TestLogStamps: a live hash that the archive keeps is held against what a
// restore rebuilt. The right one passes; of a wrong one member, time and index are
// named, the exit code is that of damage, and nothing is restored, unless the user
// says so.
func TestLogStamps(t *testing.T) {
	t.Parallel() // much of it waits
	for _, version := range logVersions() {
		t.Run(version, func(t *testing.T) { stampedLog(t, version) })
	}
}

func stampedLog(t *testing.T, version string) {
	c := storetest.Start(t, storetest.Options{Version: version})
	u := newUser(t)
	repo := u.Path("repo")
	a := u.archive(t, c, 0, "file://"+repo)
	u.awaitArchived(t, "file://"+repo, 1)
	acks := putSome(t, c, "/some/", 20)
	index := applied(t, c, 0)
	covered := u.awaitArchived(t, "file://"+repo, index)
	live := hashAt(t, c, 0, acks[len(acks)-1].Revision)
	a.stop(t)
	c.Kill(0)

	stamp := func(member uint64, at time.Time, h snapshot.HashKV) {
		t.Helper()
		m := raftlog.Mark{Index: index, Term: 2, Time: at, Member: member, Revision: h.Revision}
		err := segment.WriteMark(t.Context(), openRepo(t, repo), covered.Timeline, m, &segment.CheckpointHash{Hash: h.Hash, HashRevision: h.Revision, CompactedRevision: h.CompactedRevision})
		require.NoError(t, err)
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	stamp(7, now, live)
	u.rebuild(t, "--repo", "file://"+repo, "--latest")

	wrong := live
	wrong.Hash++
	stamp(9, now.Add(time.Millisecond), wrong)
	args := []string{"restore", "--repo", "file://" + repo, "--latest", "--to-snapshot", u.Path("never.db")}
	e := u.Must(t, exitDamaged, args...)
	for _, part := range []string{"member 0000000000000009", now.Add(time.Millisecond).Format("2006-01-02T15:04:05"), fmt.Sprintf("raft index %d", index), "Nothing was restored"} {
		if !strings.Contains(e.Stderr, part) {
			t.Errorf("%q is not named: %s", part, e)
		}
	}
	if left := tree(t, u.Dir); strings.Contains(strings.Join(left, " "), "never.db") {
		t.Errorf("left: %v", left)
	}
	u.Must(t, exitOK, append(args, "--ignore-checkpoint-hashes")...)
}
