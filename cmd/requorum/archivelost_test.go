package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay"
)

// TestArchiveLostSegment: somebody deletes objects of the archive. The archiver
// that starts next puts back what the member's log holds, and the log can be
// restored from its first full snapshot on again. Where no log holds it any
// more a full snapshot is taken.
func TestArchiveLostSegment(t *testing.T) {
	t.Parallel()
	c := storetest.Start(t, storetest.Options{Version: "3.7", Members: 1})
	u := newUser(t)
	repo := "file://" + u.path("repo")
	a := u.archive(t, c, 0, repo)
	acks := putSome(t, c, "/first/", 20)
	u.awaitArchived(t, repo, applied(t, c, 0), a)
	acks = append(acks, putSome(t, c, "/second/", 300)...)
	u.awaitArchived(t, repo, applied(t, c, 0), a)
	a.stop(t)
	small, err := filepath.Glob(filepath.Join(u.path("repo"), "*", "l0", "*"))
	if err != nil || len(small) < 3 {
		t.Fatalf("%d segments, %v: one in the middle is to be lost", len(small), err)
	}
	slices.Sort(small)
	if err := os.Remove(small[len(small)-2]); err != nil {
		t.Fatal(err)
	}
	if ranges := u.list(t, repo).Ranges; !slices.ContainsFunc(ranges[1:], func(r walreplay.Range) bool { return r.Gap }) {
		t.Fatalf("no gap after %s was removed: %+v", small[len(small)-2], ranges)
	}
	a.start(t)
	a.says(t, "alarm gap")
	a.says(t, "alarm gap is over")
	report := u.list(t, repo)
	expectOneRange(t, report)
	if len(report.Backups) != 1 {
		t.Errorf("%d full snapshots: none was due", len(report.Backups))
	}
	latest := u.rebuild(t, "--repo", repo, "--latest")
	expectAcks(t, latest, "the archive", acks)
	a.stop(t)
	if !strings.Contains(a.output.String(), "not in the archive") {
		t.Errorf("the alarm does not say what is missing:\n%s", a.output)
	}
}
