package main

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/requorum/requorum/store/storetest"
)

// TestLogGap: a member that was away so long that the leader sends it a snapshot
// has a hole in its log. With an archiver beside it alone the hole is recorded,
// shown, and closed by a new full snapshot, and a point in it is refused; an
// archiver beside another member leaves none.
func TestLogGap(t *testing.T) {
	for _, helped := range []bool{false, true} {
		t.Run(fmt.Sprintf("helped-%v", helped), func(t *testing.T) {
			t.Parallel()
			leaveGap(t, helped)
		})
	}
}

func leaveGap(t *testing.T, helped bool) {
	c := storetest.Start(t, storetest.Options{Version: "3.7", Members: 3, ExtraArgs: []string{"--snapshot-count=200", "--snapshot-catchup-entries=20"}})
	u := newUser(t)
	repo := "file://" + u.path("repo")
	away := 2
	archivers := []*archiver{u.archive(t, c, away, repo)}
	first := putSome(t, c, "/first/", 50)
	u.awaitArchived(t, repo, applied(t, c, away), archivers...)
	moveLeaderTo(t, c, 0, 0, 1, 2) // so that nobody waits for an election
	c.Kill(away)
	if helped {
		archivers = append(archivers, u.archive(t, c, 0, repo))
	}
	missed := putSome(t, c, "/missed/", 600, 0, 1)
	middle := applied(t, c, 0) - 100
	c.Restart(t, away)
	c.WaitReady(t)
	if found, err := filepath.Glob(filepath.Join(c.Member(away).DataDir, "member", "snap", "*.snap")); err != nil || len(found) == 0 {
		t.Fatalf("the leader sent no snapshot: nothing is proved: %v, %v", found, err)
	}
	last := putSome(t, c, "/last/", 50)
	u.awaitArchived(t, repo, applied(t, c, 0), archivers...)
	report := u.list(t, repo)
	latest := u.rebuild(t, "--repo", repo, "--latest")
	expectAcks(t, latest, "the archive", append(append(first, missed...), last...))
	if helped {
		expectOneRange(t, report)
		u.rebuild(t, "--repo", repo, "--index", fmt.Sprint(middle))
	} else {
		gap := false
		for _, r := range report.Ranges[1:] {
			gap = gap || r.Gap && r.FirstIndex <= middle && middle <= r.LastIndex && r.Reason != ""
		}
		if !gap || len(report.Timelines) != 1 {
			t.Errorf("index %d is in no gap that is shown: %+v", middle, report.Ranges)
		}
		u.must(t, exitNothing, "restore", "--repo", repo, "--index", fmt.Sprint(middle), "--to-snapshot", u.path("never.db"))
		archivers[0].says(t, "alarm gap")
	}
	for _, a := range archivers {
		a.stop(t)
	}
}
