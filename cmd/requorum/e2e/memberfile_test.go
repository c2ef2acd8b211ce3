package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/verify/report"
)

// TestMemberFileReplays: snapshots out of members' files under a load, while members are
// compacted, defragmented, killed, upgraded and put on alarm, have the raft log lead from
// each to the next, or there is none.
func TestMemberFileReplays(t *testing.T) {
	t.Parallel()
	for _, version := range storetest.Some("3.7") {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			members := storetest.Amount(1, 3, 3)
			// etcd 3.7 panics over requests of 3.5 that its log holds behind the last snapshot: it needs
			// one between two upgrades.
			c := storetest.Start(t, storetest.Options{Version: version, Members: members, ExtraArgs: []string{"--unsafe-no-fsync", "--snapshot-count=1000"}})
			c.Fill(t, storetest.Load{Keys: 4200, ValueSize: 8 << 10})
			u := newUser(t)
			repo := "file://" + u.Path("repo")
			a := u.archive(t, c, 0, repo)
			u.awaitArchived(t, repo, applied(t, c, 0))

			plan := decode[backupPlanReport](t, u.Must(t, exitOK, "backup", "--output", "json", "--dry-run", "--repo", repo, "--endpoints", c.Endpoints()[0], "--data-dir", c.Member(0).DataDir))
			require.True(t, strings.HasSuffix(plan.File, "/member/snap/db"), "%+v", plan)
			u.Must(t, exitUsage, "backup", "--repo", repo, "--wal-dir", "x")

			client := c.Client(t)
			w := storetest.StartWriter(t, client, "/more/")
			versions := make([]string, members)
			for i := range versions {
				versions[i] = version
			}
			rounds := storetest.Amount(2, 6, 170)
			read, streamed, refused := 0, 0, 0
			for n := range rounds {
				i, fault := n/memberFaults%members, memberFault(n%memberFaults)
				if members == 1 && fault == memberKilled {
					fault = memberDefragmented // there is nobody else to go on
				}
				upgraded := versions
				if 3*n < 2*rounds {
					upgraded = nil
				}
				w.WaitFor(t, len(w.Acknowledged())+20)
				// As slow as that the fault comes while it is read.
				sent := c.AwaitLog(t, i, "sending database snapshot to client")
				b := u.Start(t, append(backupArgs(c.Endpoints(), repo), "--data-dir", c.Member(i).DataDir, "--limit-upload", "16MiB")...)
				over := make(chan struct{})
				var e ended
				go func() { defer close(over); e = b.Wait(t) }()
				sent(over)
				fault.inject(t, c, client, i, upgraded)
				<-over
				if fault == memberKilled {
					revive(t, c, i)
				}
				if e.Code != exitOK {
					refused++
					t.Logf("%d: refused: %s", n, e.Stderr)
					continue
				}
				if made := decode[backupReport](t, e); made.Streamed == "" {
					read++
					require.Equal(t, c.Member(i).Name, made.Backup.Source.Name)
				} else {
					streamed++
					t.Logf("%d: %s", n, made.Streamed)
				}
			}
			e := u.Must(t, exitOK, append(backupArgs(c.Endpoints(), repo), "--data-dir", t.TempDir())...)
			require.Contains(t, e.Stderr, "the snapshot is streamed")
			w.Stop()
			u.awaitArchived(t, repo, applied(t, c, 0))
			a.stop(t)

			replays := 0
			for _, check := range u.verify(t, exitOK, "all", "--repo", repo, "--level", "replay").Checks {
				if check.Level == report.Replay && check.Status == report.Passed {
					replays++
				}
			}
			if replays < read+streamed+1 { // each, and the streamed one
				t.Errorf("%d replays of %d backups", replays, read+streamed+1)
			}
			if read < rounds/3 {
				t.Errorf("only %d of %d were read from a file", read, rounds)
			}
			figure(t, "snapshots out of members' files, replayed", read)
			figure(t, "streamed instead, replayed", streamed)
			figure(t, "refused", refused)
			t.Logf("versions at the end: %v; %d writes", versions, len(w.Acknowledged()))
		})
	}
}

// memberFault is what may happen to a member while its database is read.
type memberFault int

const (
	memberCompacted memberFault = iota
	memberKilled                // and not started again
	memberDefragmented
	memberRestarted // after a kill
	memberAlarmed   // that no space is left, and no longer
	memberUpgraded  // else stopped and started
)

// memberFaults is how many there are.
const memberFaults = int(memberUpgraded) + 1

// inject has a fault befall a member. versions are those of all members, where they may be
// upgraded. What the cluster refuses is logged.
func (f memberFault) inject(t *testing.T, c *storetest.Cluster, kv *clientv3.Client, member int, versions []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	switch f {
	case memberCompacted:
		head, err := kv.Get(ctx, "x")
		if err == nil {
			_, err = kv.Compact(ctx, head.Header.Revision-20, clientv3.WithCompactPhysical())
		}
		if err != nil {
			t.Logf("compaction: %v", err)
		}
	case memberKilled:
		c.Kill(member)
	case memberRestarted:
		revive(t, c, member)
	case memberAlarmed:
		for _, action := range []pb.AlarmRequest_AlarmAction{pb.AlarmRequest_ACTIVATE, pb.AlarmRequest_DEACTIVATE} {
			status, err := kv.Status(ctx, c.Member(member).ClientURL)
			if err == nil {
				_, err = pb.NewMaintenanceClient(kv.ActiveConnection()).Alarm(ctx, &pb.AlarmRequest{Action: action, Alarm: pb.AlarmType_NOSPACE, MemberID: status.Header.MemberId})
			}
			if err != nil {
				t.Logf("alarm: %v", err)
			}
		}
	case memberDefragmented:
		await := c.AwaitLog(t, member, `"defragmenting"`)
		go kv.Defragment(context.WithoutCancel(ctx), c.Member(member).ClientURL) // it ends when the streams do
		await(nil)
	case memberUpgraded:
		c.Stop(member)
		if all := storetest.Versions(); versions != nil && versions[member] == slices.Min(versions) && versions[member] != all[len(all)-1] {
			versions[member] = all[slices.Index(all, versions[member])+1]
			c.RestartAs(t, member, versions[member])
			c.WaitReady(t)
			return
		}
		revive(t, c, member)
	}
}

// revive starts a member, which may run or not.
func revive(t *testing.T, c *storetest.Cluster, member int) {
	t.Helper()
	c.Kill(member)
	c.Restart(t, member)
	c.WaitReady(t)
}
