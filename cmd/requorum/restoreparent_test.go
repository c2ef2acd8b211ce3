package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
)

// Promise 6: a point that a timeline does not cover is looked for in the one that it
// goes on from. What that has behind the branch is called another history, and its
// nearest point is named only where the timeline has none before.
func TestPromise6PointInParent(t *testing.T) {
	dir := t.TempDir()
	repoURL := "file://" + filepath.Join(dir, "repo")
	backup := func(c *storetest.Cluster, writes int) *snapshot.Manifest {
		t.Helper()
		for i := range writes {
			_, err := c.Client(t).Put(t.Context(), fmt.Sprint("k", i), "v")
			require.NoError(t, err)
		}
		e := runHere(t.Context(), "backup", "--output", "json", "--repo", repoURL, "--endpoints", c.Endpoints()[0])
		var report backupReport
		if err := json.Unmarshal([]byte(e.stdout), &report); err != nil || e.code != exitOK {
			t.Fatal(err, e)
		}
		return report.Backup
	}
	replaced := storetest.Start(t, storetest.Options{Version: "3.7"})
	first, last := backup(replaced, 1), backup(replaced, 40)
	sink, err := disk.New(filepath.Join(dir, "repo"))
	require.NoError(t, err)
	repo, err := repository.Open(t.Context(), sink)
	require.NoError(t, err)
	young := storetest.Start(t, storetest.Options{Version: "3.7"})
	status, err := young.Client(t).Status(t.Context(), young.Endpoints()[0])
	require.NoError(t, err)
	by := repository.TimelineID{ClusterID: status.Header.ClusterId, N: 1}
	if err := repo.OpenTimeline(t.Context(), repository.Timeline{ID: by, Created: time.Now(), Reason: "a recovery",
		Parent: &repository.Branch{Timeline: first.Timeline, RaftIndex: first.Facts.RaftIndex, Revision: first.Facts.Revision}}); err != nil {
		t.Fatal(err)
	}
	require.NoError(t, repo.Supersede(t.Context(), repository.Superseded{Timeline: first.Timeline, By: by, Reason: "its quorum was lost", Created: time.Now()}))
	one, two := backup(young, 6), backup(young, 6)
	if one.Facts.RaftIndex <= first.Facts.RaftIndex || last.Facts.RaftIndex <= two.Facts.RaftIndex {
		t.Fatalf("the indexes are %d, %d and %d, %d", first.Facts.RaftIndex, last.Facts.RaftIndex, one.Facts.RaftIndex, two.Facts.RaftIndex)
	}
	for _, c := range []struct {
		what  string
		index uint64
		want  string // empty where the parent is not to be named
	}{
		{"what both have in common", first.Facts.RaftIndex, ", has that point: --timeline " + first.Timeline.String() + " restores it"},
		{"between two points of the child", one.Facts.RaftIndex + 1, ""},
		{"behind the branch", last.Facts.RaftIndex, "that is another history"},
		{"between the branch and the child's first point", one.Facts.RaftIndex - 1, fmt.Sprintf("--index %d)", first.Facts.RaftIndex)},
	} {
		e := runHere(t.Context(), "restore", "--repo", repoURL, "--index", fmt.Sprint(c.index), "--to-snapshot", filepath.Join(dir, "state.db"))
		if named := strings.Contains(e.stderr, "--timeline"); e.code != exitNothing || named != (c.want != "") || !strings.Contains(e.stderr, c.want) {
			t.Errorf("%s (raft index %d): %v", c.what, c.index, e)
		}
	}
}
