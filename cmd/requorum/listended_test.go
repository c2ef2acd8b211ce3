package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/store/storetest"
)

// Promise 6: who backs up a cluster that a recovery has replaced hears of it, and
// restoring the latest goes on to mean the other one.
func TestPromise6BackupOfEndedTimeline(t *testing.T) {
	dir := t.TempDir()
	replaced := storetest.Start(t, storetest.Options{Version: "3.7"})
	young := storetest.Start(t, storetest.Options{Version: "3.7"})
	backup := func(c *storetest.Cluster) (ended, *backupReport) {
		t.Helper()
		e := runHere(t.Context(), "backup", "--output", "json", "--repo", "file://"+dir, "--endpoints", c.Endpoints()[0])
		var report backupReport
		if err := json.Unmarshal([]byte(e.stdout), &report); err != nil || e.code != exitOK {
			t.Fatal(err, e)
		}
		return e, &report
	}
	e, first := backup(replaced)
	if strings.Contains(e.stderr, "has ended") {
		t.Error(e)
	}
	sink, err := disk.New(dir)
	require.NoError(t, err)
	repo, err := repository.Open(t.Context(), sink)
	require.NoError(t, err)
	// As a recovery does.
	status, err := young.Client(t).Status(t.Context(), young.Endpoints()[0])
	require.NoError(t, err)
	old := first.Backup
	by := repository.TimelineID{ClusterID: status.Header.ClusterId, N: 1}
	if err := repo.OpenTimeline(t.Context(), repository.Timeline{ID: by, Created: time.Now(), Reason: "a recovery",
		Parent: &repository.Branch{Timeline: old.Timeline, RaftIndex: old.Facts.RaftIndex}}); err != nil {
		t.Fatal(err)
	}
	require.NoError(t, repo.Supersede(t.Context(), repository.Superseded{Timeline: old.Timeline, By: by, Reason: "its quorum was lost", Created: time.Now()}))
	e, _ = backup(replaced)
	for _, want := range []string{old.Timeline.String(), "has ended", "superseded by " + by.String(), "Stop the members"} {
		if !strings.Contains(e.stderr, want) {
			t.Errorf("%q is missing: %v", want, e)
		}
	}
	if e, _ := backup(young); strings.Contains(e.stderr, "has ended") {
		t.Error(e)
	}
	if e := runHere(t.Context(), "show", "latest", "--repo", "file://"+dir); !strings.Contains(e.stdout, by.String()) {
		t.Error(e)
	}
}

// Promise 6: a timeline that a recovery ended is listed as such, with the one that
// goes on; and when that was taken back, it is the other way round.
func TestPromise6ListEndedTimelines(t *testing.T) {
	dir := t.TempDir()
	sink, err := disk.New(dir)
	require.NoError(t, err)
	repo, err := repository.Init(t.Context(), sink, time.Now())
	require.NoError(t, err)
	old, young := repository.TimelineID{ClusterID: 1, N: 1}, repository.TimelineID{ClusterID: 2, N: 1}
	for _, id := range []repository.TimelineID{old, young} {
		require.NoError(t, repo.OpenTimeline(t.Context(), repository.Timeline{ID: id, Created: time.Now(), Reason: "a test"}))
		require.NoError(t, repo.WriteDocument(t.Context(), repository.ManifestName(id, "20260102T150405Z-3f9a2c"), map[string]string{}))
	}
	list := func(output string) string {
		t.Helper()
		// The manifests are empty, which is damage, and beside the point here.
		return runHere(t.Context(), "list", "--repo", "file://"+dir, "--output", output).stdout
	}
	if text := list("table"); strings.Contains(text, "It has ended") {
		t.Error(text)
	}
	require.NoError(t, repo.Supersede(t.Context(), repository.Superseded{Timeline: old, By: young, Reason: "its quorum was lost", Created: time.Now()}))
	if text := list("table"); strings.Count(text, "It has ended") != 1 || !strings.Contains(text, "superseded by "+young.String()) || !strings.Contains(text, "its quorum was lost") {
		t.Error(text)
	}
	require.NoError(t, repo.Reinstate(t.Context(), repository.Superseded{Timeline: young, By: old, Reason: "second thoughts", Created: time.Now()}))
	if text := list("table"); strings.Count(text, "It has ended") != 1 || !strings.Contains(text, "was taken back") || !strings.Contains(text, old.String()+" goes on") {
		t.Error(text)
	}
	var report catalogReport
	require.NoError(t, json.Unmarshal([]byte(list("json")), &report))
	if len(report.Superseded) != 1 || report.Superseded[0].Timeline != young || !report.Superseded[0].Undone {
		t.Errorf("%+v", report.Superseded)
	}
}
