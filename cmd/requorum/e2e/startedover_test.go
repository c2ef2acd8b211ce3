package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/store/storetest"
)

// emptied starts members that have lost their disks again as new ones, under the same
// token: those of a majority, of one, or of three.
func emptied(t *testing.T, c *storetest.Cluster, members ...int) {
	t.Helper()
	for _, i := range members {
		require.NoError(t, os.RemoveAll(c.Member(i).DataDir))
		c.Restart(t, i)
	}
	for _, i := range members {
		storetest.Eventually(t, "the new cluster serves", func() error {
			_, err := c.Client(t, i).Get(t.Context(), "x")
			return err
		})
	}
}

// startedOver waits until an agent is not ready because the cluster started over, and
// says how to answer.
func (a *agent) startedOver(t *testing.T, older, newer repository.TimelineID) {
	t.Helper()
	storetest.Eventually(t, "the agent of "+a.member.Name+" says that the cluster started over", func() error {
		code, body := a.get(t, "/readyz")
		for _, part := range []string{"started-over: ", older.String(), "reached revision", "requorum accept " + newer.String() + " --repo", "restore --repo"} {
			if code != http.StatusServiceUnavailable || !strings.Contains(body, part) {
				return fmt.Errorf("no %q: %d %s", part, code, body)
			}
		}
		return nil
	})
	if _, metrics := a.get(t, "/metrics"); !strings.Contains(metrics, `requorum_problems{kind="started-over"} 1`) || !strings.Contains(metrics, "requorum_ready 0") {
		t.Errorf("metrics of the agent of %s: %s", a.member.Name, metrics)
	}
}

// A member that lost its disk starts again as a new cluster of the same ID. Nothing of the
// old history is deleted, no command takes the new one by itself, and no agent is ready,
// until somebody says that this is a new cluster.
func TestEmptiedMember_UntilAccepted_IsNoDefault(t *testing.T) {
	t.Parallel() // much of it waits
	c := storetest.Start(t, storetest.Options{Version: "3.7", Token: "the-same"})
	u := newUser(t)
	repo := "file://" + u.Path("repo")
	a := u.agent(t, c, 0, repo, "jobs: {structure: {run: off}, checksum: {run: off}, prune: {run: off}}")
	first := putSome(t, c, "/first/", 60)
	u.backup(t, c.Endpoints(), repo)
	first = append(first, putSome(t, c, "/more/", 60)...)
	u.awaitArchived(t, repo, applied(t, c, 0))
	a.awaitReady(t)
	c.Kill(0)
	emptied(t, c, 0)
	putSome(t, c, "/second/", 20)
	timelines := u.awaitTimelines(t, repo, 2)
	older, newer := timelines[0].ID, timelines[1].ID
	a.startedOver(t, older, newer)
	a.restart(t)
	a.startedOver(t, older, newer)
	before := filesIn(t, u.Path("repo", older.String()))

	l := u.list(t, repo)
	require.Nil(t, l.Current)
	require.Contains(t, l.StartedOver, "requorum accept")
	plan := []string{"restore", "--repo", repo, "--dry-run", "--initial-cluster", "m1=http://127.0.0.1:1", "--data-dir", u.Path("new")}
	once := []string{"agent", "--once", "--data-dir", c.Member(0).DataDir, "--endpoints", c.Endpoints()[0], "--repo", repo, "--spool-dir", u.Path("spool")}
	for _, args := range [][]string{
		plan, append(plan, "--at", timelines[1].Created.Format("2006-01-02T15:04:05.999Z")), {"verify", "--repo", repo}, {"show", "--repo", repo}, {"pin", "latest", "--repo", repo}, once,
		{"backup", "--repo", repo, "--endpoints", c.Endpoints()[0]},
	} {
		e := u.Must(t, exitStartedOver, args...)
		for _, part := range []string{older.String() + ": members m1", "reached revision 121", newer.String() + ": members m1", "reached revision 21", "database", "last observed", "--timeline"} {
			if !strings.Contains(e.Stderr, part) {
				t.Errorf("no %q: %s", part, e)
			}
		}
	}
	survivor := []string{"recover", "--local", "m1=" + c.Member(0).DataDir, "--repo", repo, "--dry-run", "--data-dir", u.Path("recovered")}
	c.Stop(0)
	if e := u.Must(t, exitUsage, survivor...); !strings.Contains(e.Stderr, older.String()) || !strings.Contains(e.Stderr, "--source") {
		t.Errorf("recover takes the emptied one: %s", e)
	}
	c.Restart(t, 0)
	c.WaitReady(t)
	prune := []string{"prune", "--repo", repo, "--keep-last", "1", "--grace", "0s"}
	if e := u.Must(t, exitOK, prune...); !strings.Contains(e.Stdout, "nothing of timeline "+older.String()+" is deleted") {
		t.Error(e)
	}
	require.Subset(t, filesIn(t, u.Path("repo", older.String())), before, "retention deleted of the older timeline")
	expectAcks(t, u.rebuild(t, "--repo", repo, "--timeline", older.String(), "--latest"), "the older timeline", first)

	u.Must(t, exitUsage, "accept", older.String()+"0", "--repo", repo)
	u.Must(t, exitOK, "accept", newer.String(), "--repo", repo, "--reason", "it's a test")
	u.Must(t, exitNothing, "accept", newer.String(), "--repo", repo) // it is answered
	a.awaitReady(t)
	require.Equal(t, &newer, u.list(t, repo).Current)
	u.Must(t, exitOK, plan...)
	u.Must(t, exitOK, once...)
	u.Must(t, exitOK, "verify", "--repo", repo)
	require.Equal(t, newer, u.backup(t, c.Endpoints(), repo).Timeline)
	a.stop(t)
	c.Stop(0)
	u.Must(t, exitOK, survivor...)
}

// Two members of three lost their disks and start again as new ones. The answer is a
// restore: its first full snapshot ends the alarm.
func TestEmptiedMajority_UntilRestored_IsNoDefault(t *testing.T) {
	t.Parallel() // much of it waits
	c := storetest.Start(t, storetest.Options{Version: "3.7", Members: 3, Token: "the-same"})
	u := newUser(t)
	repo := "file://" + u.Path("repo")
	agents := u.agents(t, c, repo, "jobs: {structure: {run: off}, checksum: {run: off}, prune: {run: off}}")
	first := putSome(t, c, "/first/", 60)
	u.awaitArchived(t, repo, settled(t, c, 0, 1, 2))
	for i, a := range agents {
		c.Kill(i)
		a.stop(t)
	}
	emptied(t, c, 0, 1)
	putSome(t, c, "/second/", 20, 0, 1)
	for _, a := range agents[:2] {
		a.start(t)
	}
	timelines := u.awaitTimelines(t, repo, 2)
	older, newer := timelines[0].ID, timelines[1].ID
	for _, a := range agents[:2] {
		a.startedOver(t, older, newer)
	}
	// The third one is of the old history: nothing shows which one is right.
	dirs := []string{"recover", "--local", strings.Join([]string{"m1=" + c.Member(0).DataDir, "m2=" + c.Member(1).DataDir, "m3=" + c.Member(2).DataDir}, ","), "--repo", repo, "--dry-run", "--data-dir", dataDirs(u.Path("recovered"))}
	for i, a := range agents[:2] {
		a.stop(t)
		c.Stop(i)
	}
	if e := u.Must(t, exitUsage, dirs...); !strings.Contains(e.Stderr, "--source") {
		t.Error(e)
	}
	restore := []string{"restore", "--repo", repo, "--initial-cluster", storetest.InitialCluster(t, "m1"), "--data-dir", dataDirs(u.Path("new")), "--output", "json"}
	u.Must(t, exitStartedOver, restore...)
	e := u.Must(t, exitOK, append(restore, "--timeline", older.String())...)
	restored := startRestored(t, "3.7", decode[restoreReport](t, e))
	b := u.agent(t, restored, 0, repo, "archive: {spool-dir: "+u.Path("spool-new")+"}", "jobs: {structure: {run: off}, checksum: {run: off}, prune: {run: off}}")
	storetest.Eventually(t, "the restored cluster's agent is ready", func() error {
		if code, body := b.get(t, "/readyz"); code != http.StatusOK {
			return errors.New(body)
		}
		return nil
	})
	l := u.list(t, repo)
	require.Empty(t, l.StartedOver)
	require.NotNil(t, l.Current)
	require.NotContains(t, []repository.TimelineID{older, newer}, *l.Current)
	b.stop(t)
	expectAcks(t, u.rebuild(t, "--repo", repo, "--latest"), "the restored cluster", first)
}

// filesIn lists the files of a directory of a repository.
func filesIn(t *testing.T, dir string) []string {
	t.Helper()
	return slices.DeleteFunc(tree(t, dir), func(name string) bool {
		info, err := os.Stat(filepath.Join(dir, name))
		return err != nil || info.IsDir()
	})
}

// One member of three is restored by hand, with the old token, and put back beside the two
// others, whose log it applies to its restored database: it serves other keys at the same raft
// index. Its agent archives nothing of it, no backup reads it, and a recovery uses the others.
func TestMemberRestoredByHand_BesideTheOthers_IsNotRead(t *testing.T) {
	t.Parallel() // much of it waits
	c := storetest.Start(t, storetest.Options{Version: "3.7", Members: 3, Token: "the-same"})
	u := newUser(t)
	repo := "file://" + u.Path("repo")
	all := "etcd: {endpoints: [" + strings.Join(c.Endpoints(), ", ") + "]}"
	agents := u.agents(t, c, repo, all+"\njobs: {checksum: {run: off}, prune: {run: off}}")
	acks := putSome(t, c, "/one/", 100)
	file := u.Path("snapshot.db")
	storetest.Etcdctl(t, "3.7", "--endpoints", c.Endpoints()[0], "snapshot", "save", file)
	acks = append(acks, putSome(t, c, "/two/", 100)...)
	u.awaitArchived(t, repo, settled(t, c, 0, 1, 2))

	c.Kill(2)
	c.MoveLeader(t, 1, 0, 1)
	c.MoveLeader(t, 0, 0, 1) // a leader that knew the member's end would make it panic
	m := c.Member(2)
	restored := filepath.Join(t.TempDir(), "restored")
	storetest.Etcdutl(t, "3.7", "snapshot", "restore", file, "--name", m.Name, "--data-dir", restored,
		"--initial-cluster", c.InitialCluster(), "--initial-advertise-peer-urls", m.PeerURL, "--initial-cluster-token", "the-same")
	swapData(t, c, 2, restored)
	c.Restart(t, 2)
	c.WaitReady(t)
	acks = append(acks, putSome(t, c, "/three/", 50, 0, 1)...)
	end := settled(t, c, 0, 1, 2)
	u.awaitArchived(t, repo, end)
	for i, problem := range []string{"divergent: ", "divergent: ", "rolled-back: "} {
		storetest.Eventually(t, "the agent of "+agents[i].member.Name+" names the member", func() error {
			code, body := agents[i].get(t, "/readyz")
			if code != http.StatusServiceUnavailable || !strings.Contains(body, problem) || !strings.Contains(body, "not the one that most members have") {
				return fmt.Errorf("%d %s", code, body)
			}
			return nil
		})
	}
	id := u.list(t, repo).Timelines[0].ID
	for _, h := range openLog(t, repo, id).Headers() {
		if before := acks[199].Revision; h.Revision > before+50 {
			t.Errorf("%s has the revision of the restored member, %d", h.Name(), h.Revision)
		}
	}
	for range 4 {
		if b := u.backup(t, c.Endpoints(), repo); b.Source.Name == m.Name || b.Timeline != id {
			t.Errorf("%s was read, into timeline %s", b.Source.Name, b.Timeline)
		}
	}
	for i, a := range agents {
		a.stop(t)
		c.Stop(i)
	}
	l := u.list(t, repo)
	require.Len(t, l.Timelines, 1)
	require.Empty(t, l.StartedOver)
	local := []string{"recover", "--local", survivors(c, 0, 1, 2), "--data-dir", dataDirs(u.Path("recovered")), "--dry-run", "--output", "json"}
	r := decode[recoveryReport](t, u.Must(t, exitOK, local...))
	last := r.Plan.Candidates[len(r.Plan.Candidates)-1]
	if !r.Plan.Proven || r.Plan.Chosen == m.Name || last.Name != m.Name || last.Rank != 0 || len(r.Plan.Histories) != 2 {
		t.Errorf("%+v", r.Plan)
	}
	local[2] = survivors(c, 0, 2) // the restored one forgot what it acknowledged: no majority
	u.Must(t, exitUsage, append(local, "--declare-dead", "m2")...)
	expectAcks(t, u.rebuild(t, "--repo", repo, "--latest"), "the archive", acks)
}

// An emptied cluster that outgrows what it lost does not continue the older timeline,
// though all that its backups know is how far it is.
func TestEmptiedCluster_OutgrowingTheOldEnd_StaysApart(t *testing.T) {
	t.Parallel()
	c := storetest.Start(t, storetest.Options{Version: "3.6", Token: "the-same"})
	u := newUser(t)
	repo := "file://" + u.Path("repo")
	putSome(t, c, "/first/", 60)
	older := u.backup(t, c.Endpoints(), repo).Timeline
	c.Kill(0)
	emptied(t, c, 0)
	putSome(t, c, "/second/", 20)
	u.Must(t, exitStartedOver, backupArgs(c.Endpoints(), repo)...)
	before := filesIn(t, u.Path("repo", older.String()))
	putSome(t, c, "/third/", 60)
	for range 2 {
		u.Must(t, exitStartedOver, backupArgs(c.Endpoints(), repo)...)
		putSome(t, c, "/fourth/", 5)
	}
	require.Equal(t, before, filesIn(t, u.Path("repo", older.String())), "in the older timeline")
	timelines := u.list(t, repo).Timelines
	require.Len(t, timelines, 3)
	u.Must(t, exitOK, "accept", timelines[2].ID.String(), "--repo", repo)
	require.Equal(t, timelines[2].ID, u.backup(t, c.Endpoints(), repo).Timeline)
}
