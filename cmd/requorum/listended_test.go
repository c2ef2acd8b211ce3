package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
)

// Promise 6: a timeline that a recovery ended is listed as such, with the one that
// goes on; and when that was taken back, it is the other way round.
func TestPromise6ListEndedTimelines(t *testing.T) {
	dir := t.TempDir()
	sink, err := disk.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	repo, err := repository.Init(t.Context(), sink, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	old, young := repository.TimelineID{ClusterID: 1, N: 1}, repository.TimelineID{ClusterID: 2, N: 1}
	for _, id := range []repository.TimelineID{old, young} {
		if err := repo.OpenTimeline(t.Context(), repository.Timeline{ID: id, Created: time.Now(), Reason: "a test"}); err != nil {
			t.Fatal(err)
		}
		if err := repo.WriteDocument(t.Context(), repository.ManifestName(id, "20260102T150405Z-3f9a2c"), map[string]string{}); err != nil {
			t.Fatal(err)
		}
	}
	list := func(output string) string {
		t.Helper()
		// The manifests are empty, which is damage, and beside the point here.
		return runHere(t.Context(), "list", "--repo", "file://"+dir, "--output", output).stdout
	}
	if text := list("table"); strings.Contains(text, "It has ended") {
		t.Error(text)
	}
	if err := repo.Supersede(t.Context(), repository.Superseded{Timeline: old, By: young, Reason: "its quorum was lost", Created: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if text := list("table"); strings.Count(text, "It has ended") != 1 || !strings.Contains(text, "superseded by "+young.String()) || !strings.Contains(text, "its quorum was lost") {
		t.Error(text)
	}
	if err := repo.Reinstate(t.Context(), repository.Superseded{Timeline: young, By: old, Reason: "second thoughts", Created: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if text := list("table"); strings.Count(text, "It has ended") != 1 || !strings.Contains(text, "was taken back") || !strings.Contains(text, old.String()+" goes on") {
		t.Error(text)
	}
	var report catalogReport
	if err := json.Unmarshal([]byte(list("json")), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Superseded) != 1 || report.Superseded[0].Timeline != young || !report.Superseded[0].Undone {
		t.Errorf("%+v", report.Superseded)
	}
}
