package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay"
)

// TestArchiveLostSegment: somebody deletes an object of the archive. The archiver that
// starts next records the gap and takes a full snapshot at once; what comes behind it
// can be restored, and the listing shows the gap with its reason.
func TestArchiveLostSegment(t *testing.T) {
	t.Parallel()
	c := storetest.Start(t, storetest.Options{Version: "3.7", Members: 1})
	u := newUser(t)
	repo := "file://" + u.Path("repo")
	a := u.archive(t, c, 0, repo)
	var acks []storetest.Ack
	for _, name := range []string{"/a/", "/b/", "/c/", "/d/"} { // what was awaited is in a segment of its own
		acks = append(acks, putSome(t, c, name, 20)...)
		u.awaitArchived(t, repo, applied(t, c, 0))
	}
	a.stop(t)
	small, err := filepath.Glob(filepath.Join(u.Path("repo"), "*", "l0", "*"))
	if err != nil || len(small) < 3 {
		t.Fatalf("%d segments, %v: one in the middle is to be lost", len(small), err)
	}
	slices.Sort(small)
	require.NoError(t, os.Remove(small[len(small)-2]))
	if ranges := u.list(t, repo).Ranges; !slices.ContainsFunc(ranges[1:], func(r walreplay.Range) bool { return r.Gap }) {
		t.Fatalf("no gap after %s was removed: %+v", small[len(small)-2], ranges)
	}
	a.start(t)
	a.says(t, "alarm gap")
	a.says(t, "alarm gap is over")
	acks = append(acks, putSome(t, c, "/third/", 20)...)
	u.awaitArchived(t, repo, applied(t, c, 0))
	report := u.list(t, repo)
	ranges := report.Ranges
	if n := len(ranges); len(report.Backups) != 2 || n < 3 || ranges[n-1].Gap || !ranges[n-2].Gap || !strings.Contains(ranges[n-2].Reason, "deleted or lost") {
		t.Errorf("%d full snapshots, ranges %+v", len(report.Backups), ranges)
	}
	latest := u.rebuild(t, "--repo", repo, "--latest")
	expectAcks(t, latest, "the archive", acks)
	a.stop(t)
	if !strings.Contains(readOrNone(t, a.log), "not in the archive") {
		t.Error("the alarm does not say what is missing")
	}
}
