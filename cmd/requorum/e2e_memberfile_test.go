package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/verify/report"
)

// TestMemberFileReplays: snapshots out of members' files under a load, with compactions
// and a defragmentation beside them, have the raft log lead from each to the next.
func TestMemberFileReplays(t *testing.T) {
	t.Parallel()
	for _, version := range storetest.Some("3.7") {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			members := storetest.Amount(1, 1, 3)
			c := storetest.Start(t, storetest.Options{Version: version, Members: members, ExtraArgs: []string{"--unsafe-no-fsync"}})
			c.Fill(t, storetest.Load{Keys: 4200, ValueSize: 8 << 10})
			u := newUser(t)
			repo := "file://" + u.path("repo")
			a := u.archive(t, c, 0, repo)
			u.awaitArchived(t, repo, applied(t, c, 0), a)

			plan := decode[backupPlanReport](t, u.must(t, exitOK, "backup", "--output", "json", "--dry-run", "--repo", repo, "--endpoints", c.Endpoints()[0], "--data-dir", c.Member(0).DataDir))
			require.True(t, strings.HasSuffix(plan.File, "/member/snap/db"), "%+v", plan)
			u.must(t, exitUsage, "backup", "--repo", repo, "--wal-dir", "x")

			client := c.Client(t)
			w := storetest.StartWriter(t, client, "/more/")
			backups := storetest.Amount(2, 4, 60)
			for n := range backups {
				member := c.Member(n % members)
				w.WaitFor(t, len(w.Acknowledged())+20)
				switch n % 4 {
				case 1:
					_, err := client.Compact(t.Context(), w.Acknowledged()[len(w.Acknowledged())-10].Revision, clientv3.WithCompactPhysical())
					require.NoError(t, err)
				case 3:
					_, err := client.Defragment(t.Context(), member.ClientURL)
					require.NoError(t, err)
				}
				e := u.must(t, exitOK, append(backupArgs(c.Endpoints(), []string{repo}), "--data-dir", member.DataDir)...)
				made := decode[backupReport](t, e)
				require.Empty(t, made.Streamed)
				require.Equal(t, member.Name, made.Repositories[0].Backup.Source.Name)
			}
			e := u.must(t, exitOK, append(backupArgs(c.Endpoints(), []string{repo}), "--data-dir", t.TempDir())...)
			require.Contains(t, e.stderr, "the snapshot is streamed")
			w.Stop()
			u.awaitArchived(t, repo, applied(t, c, 0), a)
			a.stop(t)

			replays := 0
			for _, check := range u.verify(t, exitOK, "all", "--repo", repo, "--level", "replay").Checks {
				if check.Level == report.Replay && check.Status == report.Passed {
					replays++
				}
			}
			if replays < backups+1 { // each, and the streamed one
				t.Errorf("%d replays of %d backups", replays, backups)
			}
			figure(t, "snapshots out of members' files, replayed", backups)
		})
	}
}
