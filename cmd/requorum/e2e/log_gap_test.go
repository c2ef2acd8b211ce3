package e2e

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/store/storetest"
)

// TestLogGap: a member that was away so long that the leader sends it a snapshot
// has a hole in its log. With an archiver beside it alone the hole is recorded,
// shown, and closed by a new full snapshot, and a point in it is refused; an
// archiver beside another member leaves none.
func TestLogGap(t *testing.T) {
	t.Parallel()
	kinds := []bool{false, true}
	if testing.Short() {
		kinds = kinds[:1] // that others fill what one missed TestLogKilled shows too
	}
	for _, helped := range kinds {
		t.Run(fmt.Sprintf("helped-%v", helped), func(t *testing.T) {
			t.Parallel()
			leaveGap(t, helped)
		})
	}
}

func leaveGap(t *testing.T, helped bool) {
	c := storetest.Start(t, storetest.Options{Version: "3.7", Members: 3, ExtraArgs: []string{"--snapshot-count=200", "--snapshot-catchup-entries=20"}})
	u := newUser(t)
	repo := "file://" + u.Path("repo")
	away := 2
	archivers := []*archiver{u.archive(t, c, away, repo)}
	first := putSome(t, c, "/first/", 50)
	u.awaitArchived(t, repo, applied(t, c, away))
	c.MoveLeader(t, 0) // so that nobody waits for an election
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
	u.awaitArchived(t, repo, applied(t, c, 0))
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
		u.Must(t, exitNothing, "restore", "--repo", repo, "--index", fmt.Sprint(middle), "--to-snapshot", u.Path("never.db"))
		archivers[0].says(t, "alarm gap")
	}
	for _, a := range archivers {
		a.stop(t)
	}
}

// TestLogSpoolOverflow: the repository is away until the spool is full and the member
// has purged what nobody read. That ends in a recorded gap and a full snapshot at
// once, and the listing says so; what was written before and since is there.
func TestLogSpoolOverflow(t *testing.T) {
	if testing.Short() {
		t.Skip("a member purges its log when hundreds of MiB are written; the archiver's own test has the same in fake time")
	}
	t.Parallel() // much of it waits
	server := sinktest.StartVersityGW(t, sinktest.VersityGWOptions{Buckets: []sinktest.S3Bucket{{Name: "backups"}}})
	c := storetest.Start(t, storetest.Options{Version: "3.7", Members: 1, ExtraArgs: []string{
		"--snapshot-count=20", "--snapshot-catchup-entries=5", "--max-wals=1", "--max-snapshots=1",
	}})
	u := newUser(t, "AWS_ACCESS_KEY_ID="+server.AccessKey, "AWS_SECRET_ACCESS_KEY="+server.SecretKey)
	repo := server.URL("backups", "etcd")
	a := u.archive(t, c, 0, repo, "repository: {retry-for: 1s}", "archive: {spool-limit: 64MiB}")
	acks := putSome(t, c, "/first/", 50)
	u.awaitArchived(t, repo, applied(t, c, 0))
	server.Kill()
	wal := filepath.Join(c.Member(0).DataDir, "member", "wal", "*.wal")
	client, value, random := c.Client(t), make([]byte, 1<<20), rand.NewChaCha8([32]byte{})
	for range 300 {
		_, err := random.Read(value)
		require.NoError(t, err)
		_, err = client.Put(t.Context(), "/large", string(value))
		require.NoError(t, err)
	}
	a.says(t, "alarm spool-full")
	storetest.Eventually(t, "the member has purged its log", func() error {
		files, err := filepath.Glob(wal)
		if err == nil && len(files) > 2 {
			err = fmt.Errorf("%d files", len(files))
		}
		return err
	})
	server.Restart(t)
	a.says(t, "alarm gap")
	a.says(t, "msg=done job=full")
	acks = append(acks, putSome(t, c, "/last/", 50)...)
	u.awaitArchived(t, repo, applied(t, c, 0))
	report := u.list(t, repo)
	ranges := report.Ranges
	if n := len(ranges); n < 3 || len(report.Timelines) != 1 || ranges[n-1].Gap || !ranges[n-2].Gap || !strings.Contains(ranges[n-2].Reason, "in no log that an archiver could read") {
		t.Errorf("ranges %+v", ranges)
	}
	expectAcks(t, u.rebuild(t, "--repo", repo, "--latest"), "the archive", acks)
	a.stop(t)
}
