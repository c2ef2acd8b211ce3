package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/store/storetest"
)

// The tests here are the second half of point 4 of what the log must show, and
// promise 6: each trouble ends as "Timelines" in the design says.

// putSome writes keys one after the other.
func putSome(t *testing.T, c *storetest.Cluster, prefix string, n int, members ...int) []storetest.Ack {
	t.Helper()
	client := c.Client(t, members...)
	var acks []storetest.Ack
	for i := range n {
		a := storetest.Ack{Key: fmt.Sprintf("%s%04d", prefix, i), Value: prefix}
		storetest.Eventually(t, a.Key+" is written", func() error { // some while a new leader is found
			resp, err := client.Put(t.Context(), a.Key, a.Value)
			if err == nil {
				a.Revision = resp.Header.Revision
			}
			return err
		})
		acks = append(acks, a)
	}
	return acks
}

// swapData puts a copy of a data directory in the place of a stopped member's.
func swapData(t *testing.T, c *storetest.Cluster, member int, with string) {
	t.Helper()
	dir := c.Member(member).DataDir
	require.NoError(t, os.Rename(dir, dir+".aside"))
	if out, err := exec.Command("cp", "-a", with, dir).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v\n%s", err, out)
	}
}

// awaitTimelines waits until there are so many, each with something to restore.
func (u *user) awaitTimelines(t *testing.T, repo string, n int) []repository.Timeline {
	t.Helper()
	var found []repository.Timeline
	storetest.Eventually(t, fmt.Sprintf("there are %d timelines that can be restored", n), func() error {
		r := u.list(t, repo)
		found = r.Timelines
		restorable := map[repository.TimelineID]bool{}
		for _, one := range r.Ranges {
			if !one.Gap {
				restorable[one.Timeline] = true
			}
		}
		if len(found) == n && len(restorable) == n {
			return nil
		}
		return fmt.Errorf("timelines %+v, ranges %+v", found, r.Ranges)
	})
	return found
}

// A member's disk is set back to an older state, and the member goes on with
// the others' help: that is an alarm, no new timeline, and no gap.
func TestLogRolledBackMember(t *testing.T) {
	t.Parallel() // much of it waits
	c := storetest.Start(t, storetest.Options{Version: "3.7", Members: 3})
	u := newUser(t)
	repo := "file://" + u.Path("repo")
	c.MoveLeader(t, 1)
	// The only one: the others' logs cannot help. All endpoints: the member alone
	// could not know that the cluster is further.
	a := u.archive(t, c, 0, repo, "etcd: {endpoints: ["+strings.Join(c.Endpoints(), ", ")+"]}")
	acks := putSome(t, c, "/one/", 50)
	u.awaitArchived(t, repo, applied(t, c, 0))
	c.Stop(0)
	older := filepath.Join(t.TempDir(), "older")
	c.CopyData(t, 0, older)
	c.Restart(t, 0)
	c.WaitReady(t)
	acks = append(acks, putSome(t, c, "/two/", 50)...)
	u.awaitArchived(t, repo, applied(t, c, 0))

	c.Kill(0)
	swapData(t, c, 0, older)
	c.MoveLeader(t, 2, 1, 2) // a leader that knew the member's end would make it panic
	c.CutOff(t, 0)           // for as long as it takes to see that it is behind
	c.Restart(t, 0)
	a.says(t, "rolled-back")
	c.Rejoin(0)
	c.WaitReady(t)
	acks = append(acks, putSome(t, c, "/three/", 50)...)
	if _, err := c.Client(t, 0).Get(t.Context(), "/three/0000"); err != nil { // it has caught up
		t.Fatal(err)
	}
	u.awaitArchived(t, repo, applied(t, c, 0))
	a.says(t, "alarm rolled-back is over")
	expectOneRange(t, u.list(t, repo))
	expectAcks(t, u.rebuild(t, "--repo", repo, "--latest"), "the archive", acks)
	a.stop(t)
}

// A cluster that is restored by etcdutl with its old token and names has its old
// IDs, and begins at a low index again: that is another timeline, and both can
// be restored.
func TestLogSameToken(t *testing.T) {
	t.Parallel()
	for _, version := range logVersions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel() // much of it waits
			sameToken(t, version)
		})
	}
}

func sameToken(t *testing.T, version string) {
	c := storetest.Start(t, storetest.Options{Version: version, Token: "the-same"})
	u := newUser(t)
	repo := "file://" + u.Path("repo")
	a := u.archive(t, c, 0, repo)
	first := putSome(t, c, "/first/", 60)
	file := filepath.Join(t.TempDir(), "snapshot.db")
	storetest.Etcdctl(t, version, "--endpoints", c.Endpoints()[0], "snapshot", "save", file)
	first = append(first, putSome(t, c, "/lost-in-the-second/", 60)...)
	u.awaitArchived(t, repo, applied(t, c, 0))

	c.Stop(0)
	restored := filepath.Join(t.TempDir(), "restored")
	storetest.Etcdutl(t, version, "snapshot", "restore", file, "--name", c.Member(0).Name, "--data-dir", restored,
		"--initial-cluster", c.InitialCluster(), "--initial-advertise-peer-urls", c.Member(0).PeerURL, "--initial-cluster-token", "the-same")
	swapData(t, c, 0, restored)
	c.Restart(t, 0)
	c.WaitReady(t)
	second := putSome(t, c, "/second/", 60)
	timelines := u.awaitTimelines(t, repo, 2)
	if timelines[0].ID.ClusterID != timelines[1].ID.ClusterID {
		t.Fatalf("the cluster has another ID: nothing is proved: %+v", timelines)
	}
	a.says(t, "timeline")
	covered := u.awaitArchived(t, repo, applied(t, c, 0))
	if covered.Timeline != timelines[1].ID {
		t.Errorf("archived into %s, want %s", covered.Timeline, timelines[1].ID)
	}
	expectAcks(t, u.rebuild(t, "--repo", repo, "--timeline", timelines[0].ID.String(), "--latest"), "the first timeline", first)
	now := u.rebuild(t, "--repo", repo, "--timeline", timelines[1].ID.String(), "--latest")
	expectAcks(t, now, "the second timeline", append(first[:60:60], second...))
	if keys, err := newestKeys(now); err != nil || keys["/lost-in-the-second/0000"].Key != "" {
		t.Error("the second timeline has a key of the first")
	}
	a.stop(t)
}

// One member that missed a part goes on alone with --force-new-cluster, under
// the same IDs: what it writes takes indexes that the archive has already, so it
// is another timeline.
func TestLogForceNewCluster(t *testing.T) {
	t.Parallel()
	versions := []string{"3.6"}
	if storetest.Soak() {
		versions = storetest.Versions()
	}
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel() // much of it waits
			forceNewCluster(t, version)
		})
	}
}

func forceNewCluster(t *testing.T, version string) {
	c := storetest.Start(t, storetest.Options{Version: version, Members: 3})
	u := newUser(t)
	repo := "file://" + u.Path("repo")
	archivers := u.archiveAll(t, c, repo)
	common := putSome(t, c, "/common/", 60)
	u.awaitArchived(t, repo, applied(t, c, 0))
	c.Kill(0)
	archivers[0].Kill()
	lost := putSome(t, c, "/only-in-the-first/", 60, 1, 2)
	u.awaitArchived(t, repo, applied(t, c, 1))
	for _, i := range []int{1, 2} {
		c.Kill(i)
		archivers[i].Kill()
	}
	c.Restart(t, 0, "--force-new-cluster")
	alone := c.Client(t, 0)
	storetest.Eventually(t, "the member serves alone", func() error { _, err := alone.Get(t.Context(), "x"); return err })
	second := putSome(t, c, "/only-in-the-second/", 100, 0)
	archivers[0].start(t)
	timelines := u.awaitTimelines(t, repo, 2)
	u.awaitArchived(t, repo, applied(t, c, 0))
	if p := timelines[1].Parent; p == nil || p.Timeline != timelines[0].ID {
		t.Errorf("the second timeline has the parent %+v, want %s", p, timelines[0].ID)
	}
	expectAcks(t, u.rebuild(t, "--repo", repo, "--timeline", timelines[0].ID.String(), "--latest"), "the first timeline", append(common[:60:60], lost...))
	expectAcks(t, u.rebuild(t, "--repo", repo, "--timeline", timelines[1].ID.String(), "--latest"), "the second timeline", append(common[:60:60], second...))
	archivers[0].stop(t)
}

// The writer sleeps while it holds entries that nobody else has archived,
// another one takes over, and the late one wakes up: one history, and nothing
// twice.
func TestLogLateWriter(t *testing.T) {
	t.Parallel() // much of it waits
	c := storetest.Start(t, storetest.Options{Version: "3.7", Members: 3})
	u := newUser(t)
	repo := "file://" + u.Path("repo")
	archivers := u.archiveAll(t, c, repo)
	writers := startWriters(t, c)
	for round := range short(1, 10) {
		u.awaitArchived(t, repo, applied(t, c, 0))
		late := writing(t, repo, u, c)
		archivers[late].signal(t, syscall.SIGSTOP)
		before := applied(t, c, 0)
		u.awaitArchived(t, repo, before+100) // by another: it is late
		if now := writing(t, repo, u, c); now == late {
			t.Errorf("round %d: the archiver of %s still writes, and sleeps", round, c.Member(late).Name)
		}
		archivers[late].signal(t, syscall.SIGCONT)
		time.Sleep(time.Second)
	}
	acks := acknowledged(writers)
	figure(t, "take-overs", short(1, 10))
	figure(t, "acknowledged writes", len(acks))
	u.awaitArchived(t, repo, applied(t, c, 0))
	expectOneRange(t, u.list(t, repo))
	expectAcks(t, u.rebuild(t, "--repo", repo, "--latest"), "the archive", acks)
	for _, a := range archivers {
		a.stop(t)
	}
}

// writing is the member whose archiver stored the newest segment.
func writing(t *testing.T, repo string, u *user, c *storetest.Cluster) int {
	t.Helper()
	r := u.list(t, repo)
	headers := openLog(t, repo, r.Timelines[len(r.Timelines)-1].ID).Headers()
	newest := headers[0]
	for _, h := range headers {
		if h.Level == 0 && h.LastIndex > newest.LastIndex {
			newest = h
		}
	}
	for i := range c.Size() {
		s, err := c.Client(t, i).Status(t.Context(), c.Member(i).ClientURL)
		require.NoError(t, err)
		if s.Header.MemberId == uint64(newest.Member) {
			return i
		}
	}
	t.Fatalf("the newest segment %+v is of no member", newest)
	return 0
}

// The members are upgraded one after the other from 3.6 to 3.7 under load, each
// in its turn also the leader: one timeline without a gap.
func TestLogRollingUpgrade(t *testing.T) {
	t.Parallel() // much of it waits
	c := storetest.Start(t, storetest.Options{Version: "3.6", Members: 3})
	u := newUser(t)
	repo := "file://" + u.Path("repo")
	archivers := u.archiveAll(t, c, repo)
	writers := startWriters(t, c)
	u.awaitArchived(t, repo, 1) // with the first full snapshot
	for i := range c.Size() {
		c.Stop(i)
		c.RestartAs(t, i, "3.7")
		c.WaitReady(t)
	}
	storetest.Eventually(t, "the cluster is of version 3.7", func() error { // an entry of the log, some seconds later
		resp, err := http.Get(c.Member(0).ClientURL + "/version")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err == nil && !bytes.Contains(answer, []byte(`"etcdcluster":"3.7.`)) {
			err = fmt.Errorf("it is %s", answer)
		}
		return err
	})
	before := len(writers[0].Acknowledged())
	writers[0].WaitFor(t, before+20)
	acks := acknowledged(writers)
	u.awaitArchived(t, repo, settled(t, c, 0, 1, 2))
	for i := range archivers {
		c.WriteOut(t, i)
	}
	for i, a := range archivers {
		a.stop(t)
		c.Kill(i)
	}
	expectOneRange(t, u.list(t, repo))
	latest := u.rebuild(t, "--repo", repo, "--latest")
	expectAcks(t, latest, "the archive", acks)
	for i := range c.Size() {
		expectSameBuckets(t, "the archive against "+c.Member(i).Name, latest, filepath.Join(c.Member(i).DataDir, "member", "snap", "db"))
	}
}
