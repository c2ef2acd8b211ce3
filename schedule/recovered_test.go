package schedule

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/schedule/web"
	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay/archive"
	"github.com/requorum/requorum/walreplay/segment"
)

// archiverState is what the agent's archiver says, of whichever there is now.
func archiverState(a *Agent) archive.State {
	_, _, archiver := a.session().opened()
	if archiver == nil {
		return archive.State{}
	}
	return archiver.State()
}

// within waits for what takes an agent some rounds.
func within(t *testing.T, limit time.Duration, what string, is func() bool) {
	t.Helper()
	began := time.Now()
	for !is() {
		if time.Since(began) > limit {
			t.Fatalf("%s: not within %s", what, limit)
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Logf("%s: after %s", what, time.Since(began).Round(100*time.Millisecond))
}

// Promise 6: an agent that goes on running beside a member whose directory is set
// aside and built anew, as a recovery does it, archives the new cluster into its
// own timeline without a restart. What it had spooled for the old one is stored
// there, and nowhere else. Beside the old member, when that comes back, it raises
// the alarm, which names the timeline that goes on.
func TestPromise6AgentGoesOnBesideARecoveredMember(t *testing.T) {
	t.Parallel()
	old := storetest.Start(t, storetest.Options{Version: "3.7"})
	member, dir := old.Member(0), t.TempDir()
	place, away := filepath.Join(dir, "repo"), filepath.Join(dir, "away")
	text := strings.NewReplacer(
		"http://127.0.0.1:1", member.ClientURL, "{data-dir: /nowhere}", fmt.Sprintf("{data-dir: %q}", member.DataDir),
		"file:///nowhere", "file://"+place, "{spool-dir: /nowhere/spool}", fmt.Sprintf("{spool-dir: %q, interval: 1s}", filepath.Join(dir, "spool")),
		"resources: {", fmt.Sprintf("resources: {scratch-dir: %q, ", filepath.Join(dir, "scratch")),
	).Replace(beside) + "jobs: {full: {run: off}, divergence: {run: off}}\n"
	log := &lines{}
	a, stop := start(t, text, log)
	write := func(n int) uint64 {
		t.Helper()
		client := old.Client(t)
		for i := range n {
			_, err := client.Put(t.Context(), fmt.Sprintf("key%d", i), "v")
			must(t, err)
		}
		s, err := client.Status(t.Context(), member.ClientURL)
		must(t, err)
		return s.RaftAppliedIndex
	}
	last := write(20)
	within(t, 20*time.Second, "the old cluster is archived", func() bool { return archiverState(a).Archived >= last })
	before := archiverState(a).Timeline
	must(t, os.Rename(place, away))
	last = write(20)
	within(t, 30*time.Second, "the spool holds the rest", func() bool { s := archiverState(a); return s.Spooled > 0 && s.Released >= last })

	// The recovery.
	old.Kill(0)
	image := filepath.Join(dir, "image.db")
	data, err := os.ReadFile(filepath.Join(member.DataDir, "member", "snap", "db"))
	must(t, err)
	must(t, os.WriteFile(image, data, 0o600))
	source, err := snapshot.OpenFile(image)
	must(t, err)
	plan, err := restore.NewPlan(t.Context(), restore.Request{
		Image: source, InitialCluster: "m1=" + member.PeerURL, DataDir: member.DataDir, SetAside: true, Bump: restore.BumpRequest{Mode: restore.BumpNone},
	})
	must(t, err)
	result, err := restore.Execute(t.Context(), plan, source, restore.ExecOptions{})
	must(t, err)
	must(t, os.Rename(away, place))
	sink, err := disk.New(place)
	must(t, err)
	repo, err := repository.Open(t.Context(), sink)
	must(t, err)
	request := recovery.TimelinesRequest{
		Repositories: []*repository.Repository{repo}, NewCluster: uint64(plan.ClusterID), OldCluster: before.ClusterID,
		Branch: repository.Branch{Timeline: before, RaftIndex: last}, Reason: "recovered by a test", Members: []string{"m1"},
	}
	// The agent sees the new log before the member runs, and leaves it to the recovery
	// to open the timeline, with its parent.
	within(t, 30*time.Second, "the agent waits for the new member", func() bool {
		return strings.Contains(archiverState(a).LastError, "has not answered since")
	})
	if ids, err := repo.TimelineIDs(t.Context()); err != nil || slices.ContainsFunc(ids, func(id repository.TimelineID) bool { return id.ClusterID == request.NewCluster }) {
		t.Fatalf("timelines %v, %v: one of cluster %x is there before it runs", ids, err, request.NewCluster)
	}
	opened := recovery.OpenTimelines(t.Context(), request)
	old.Restart(t, 0)
	old.WaitReady(t)
	if done := recovery.SupersedeTimelines(t.Context(), request); done[0].Failed != "" || len(done[0].Superseded) != 1 {
		t.Fatalf("%+v", done)
	}
	after := opened[0].Timeline
	if after.ClusterID == before.ClusterID {
		t.Fatalf("the new cluster has the old one's ID")
	}
	newLast := write(20)
	within(t, 60*time.Second, "the new cluster is archived", func() bool { s := archiverState(a); return s.Timeline == after && s.Archived >= newLast })
	holds(t, repo, before, last)
	holds(t, repo, after, newLast)
	if _, is, err := repo.Superseded(t.Context(), after); is || err != nil {
		t.Errorf("the new timeline has ended: %v", err)
	}

	// An old member comes back at its place.
	alarmed := func() bool {
		return slices.ContainsFunc(a.Status().Problems, func(p web.Problem) bool { return strings.Contains(p.Text, "superseded by "+after.String()) })
	}
	if alarmed() {
		t.Errorf("alarmed beside the new member: %+v", a.Status().Problems)
	}
	old.Stop(0)
	must(t, os.RemoveAll(filepath.Join(member.DataDir, "member")))
	must(t, os.Rename(result.Members[0].SetAside[0], filepath.Join(member.DataDir, "member")))
	old.Restart(t, 0)
	old.WaitReady(t)
	write(5)
	within(t, 60*time.Second, "the alarm names the timeline that goes on", alarmed)
	holds(t, repo, before, last)
	holds(t, repo, after, newLast)
	must(t, stop())
}

// holds makes sure that the archived log of a timeline goes up to an index, without
// a hole or a contradiction, and no further than a moment's entries.
func holds(t *testing.T, repo *repository.Repository, id repository.TimelineID, last uint64) {
	t.Helper()
	l, err := segment.OpenLog(t.Context(), repo, id, nil)
	must(t, err)
	spans := l.Coverage()
	if len(spans) != 1 || len(l.Damaged()) > 0 || spans[0].LastIndex < last || spans[0].LastIndex > last+3 {
		t.Errorf("timeline %s: spans %+v, want one up to %d; gaps %+v, damaged %v", id, spans, last, l.Gaps(), l.Damaged())
	}
}
