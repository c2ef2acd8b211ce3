package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/schedule/web"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay"
)

// TestAgentAttacked: whoever may add objects to a repository under everybody's nose, and
// has not the key, keeps an agent that signs and trusts from nothing: it archives, takes
// full snapshots and prunes what is its own, and what is restored is its cluster's.
// When objects are deleted, or an older copy is put in their place, it says so.
func TestAgentAttacked(t *testing.T) {
	t.Parallel() // much of it waits
	if testing.Short() {
		t.Skip("TestScripts/signed has the same objects against each command")
	}
	c := storetest.Start(t, storetest.Options{Version: "3.7", Members: 1})
	other := storetest.Start(t, storetest.Options{Version: "3.7", Members: 1})
	u := newUser(t)
	sinktest.WriteKey(t, u.Path("key"))
	sinktest.WriteKey(t, u.Path("stranger"))
	// Without a lease, which TestForeignLease attacks, and which takes minutes to take.
	u.keys = fmt.Sprintf(", lease: off, signing-key-file: %s, trust-file: %s", u.Path("key"), u.Path("key.trust"))
	trusting := *u
	trusting.Env = append(slices.Clone(u.Env), "REQUORUM_TRUST="+u.Path("key.trust"), "REQUORUM_SIGNING_KEY="+u.Path("key"))
	dir, repo := u.Path("repo"), "file://"+u.Path("repo")
	put := func(c *storetest.Cluster, key string) {
		t.Helper()
		_, err := c.Client(t).Put(t.Context(), key, "x")
		require.NoError(t, err)
	}
	put(c, "/before")
	put(other, "/another cluster's")

	a := u.agent(t, c, 0, repo, `
jobs:
  full: {schedule: "* * * * *", jitter: 0s}
  prune: {schedule: "* * * * *", jitter: 5s}
  checksum: {run: off}
  structure: {run: off}
  replay: {run: off}
  merge: {run: off}
  divergence: {run: off}
retention: {any-point: 1m, last: 2, daily: 0, weekly: 0, monthly: 0, minimum: 1}
`)
	// Once the attack has begun, list names what was planted, and ends as for damage.
	list := func() catalogReport {
		t.Helper()
		e := trusting.Run(t, "list", "--output", "json", "--repo", repo)
		report := decode[catalogReport](t, e)
		if (len(report.Unusable) > 0) != (e.Code == exitDamaged) || slices.ContainsFunc(report.Ranges, func(r walreplay.Range) bool { return r.Damage }) {
			t.Fatalf("listed: %s", e)
		}
		return report
	}
	backups := func() []string {
		var all []string
		for _, b := range list().Backups {
			all = append(all, b.ID)
		}
		return all
	}
	storetest.Eventually(t, "there is a full snapshot", func() error {
		if s, ok := a.status(t); !ok || len(s.Repository.Backups) == 0 {
			return errors.New("none is listed")
		}
		return nil
	})
	archived := func() {
		t.Helper()
		end := applied(t, c, 0)
		storetest.Eventually(t, "all is archived", func() error {
			ranges := list().Ranges
			if len(ranges) == 0 || ranges[len(ranges)-1].Gap || ranges[len(ranges)-1].LastIndex < end {
				return fmt.Errorf("want %d: %+v", end, ranges)
			}
			return nil
		})
	}
	began := backups()
	archived()

	attack := newAttack(t, dir, repo, u, c, other)
	attack.everything(t)
	forging, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		attack.goOn(forging)
	}()
	put(c, "/under attack")

	// The next slots have results already, by their names.
	storetest.Eventually(t, "full snapshots are taken and pruned", func() error {
		now := list()
		pruned := slices.ContainsFunc(now.Incomplete, func(f incompleteReport) bool { return f.Pruned })
		if len(now.Backups) < len(began)+1 || !pruned {
			return fmt.Errorf("backups before %v, now %+v", began, now)
		}
		return nil
	})
	stop()
	<-ended
	if attack.segments == 0 {
		t.Error("no segment was forged")
	}
	put(c, "/after")
	archived()
	restored, err := newestKeys(trusting.rebuild(t, "--repo", repo, "--latest"))
	require.NoError(t, err)
	if got := slices.Sorted(maps.Keys(restored)); !slices.Equal(got, []string{"/after", "/before", "/under attack"}) {
		t.Errorf("restored: %v", got)
	}
	if code, body := a.get(t, "/readyz"); code != http.StatusOK {
		t.Errorf("the agent is not ready: %d %s", code, body)
	}
	trusting.Must(t, exitOK, "host", "may-start", "--data-dir", c.Member(0).DataDir, "--repo", dir, "--state-dir", u.Path("host"))

	// The newest objects are deleted while it does not look. It looks when it starts.
	a.restart(t)
	storetest.Eventually(t, "the agent has seen all that there is", func() error {
		s, _ := a.status(t)
		if end := applied(t, c, 0); !slices.ContainsFunc(s.Repository.Ranges, func(r walreplay.Range) bool { return r.LastIndex >= end }) {
			return fmt.Errorf("ranges %+v, want %d", s.Repository.Ranges, end)
		}
		return nil
	})
	a.stop(t)
	c.Kill(0)
	attack.deleteAllBut(t, began[0])
	a.start(t)
	storetest.Eventually(t, "the agent says that objects are gone", func() error {
		s, _ := a.status(t)
		if !slices.ContainsFunc(s.Problems, func(p web.Problem) bool {
			return p.Kind == web.KindRepository && p.Severity == web.Critical && strings.Contains(p.Text, "holds less than before") && strings.Contains(p.Next, "newer copy")
		}) {
			return fmt.Errorf("problems: %+v", s.Problems)
		}
		return nil
	})
	if e := trusting.Run(t, "restore", "--repo", repo, "--to-snapshot", u.Path("no.db")); e.Code != exitFailed || !strings.Contains(e.Stderr, "holds less than before") {
		t.Errorf("a restore: %+v", e)
	}
}

// attack is what somebody does who may add objects to a repository on a disk.
type attack struct {
	dir, url string
	user     *user
	c, other *storetest.Cluster
	repo     *repository.Repository
	timeline repository.TimelineID
	segments int
}

func newAttack(t *testing.T, dir, url string, u *user, c, other *storetest.Cluster) *attack {
	t.Helper()
	repo := openRepo(t, dir)
	ids, err := repo.TimelineIDs(t.Context())
	require.NoError(t, err)
	require.Len(t, ids, 1)
	return &attack{dir: dir, url: url, user: u, c: c, other: other, repo: repo, timeline: ids[0]}
}

// everything adds one of each kind of document.
func (a *attack) everything(t *testing.T) {
	t.Helper()
	ctx, now := t.Context(), time.Now()
	stranger := []string{"--signing-key", a.user.Path("stranger")}
	for _, more := range [][]string{nil, stranger} {
		a.user.backup(t, a.c.Endpoints(), a.url, more...)
		a.user.backup(t, a.other.Endpoints(), a.url, append(more, "--new-lineage")...)
		a.user.Must(t, exitOK, append([]string{"verify", "all", "--level", "structure", "--repo", a.url}, more...)...)
	}
	own, err := a.repo.Fulls(ctx, a.timeline)
	require.NoError(t, err)
	for _, f := range own {
		require.NoError(t, errors.Join(
			a.repo.WritePin(ctx, repository.Pin{Timeline: a.timeline, Backup: f.ID, Created: now}),
			a.repo.RecordPruned(ctx, repository.Pruned{Timeline: a.timeline, Backup: f.ID, Reason: "forged", Created: now}),
		))
	}
	bad := repository.TimelineID{ClusterID: 0xbad, N: 1}
	require.NoError(t, errors.Join(
		a.repo.Supersede(ctx, repository.Superseded{Timeline: a.timeline, By: bad, Reason: "forged", Created: now}),
		a.repo.OpenTimeline(ctx, repository.Timeline{ID: bad, Created: now.Add(time.Hour), Reason: "forged"}),
		a.repo.OpenTimeline(ctx, repository.Timeline{ID: repository.TimelineID{ClusterID: a.timeline.ClusterID, N: a.timeline.N + 1}, Created: now, Reason: "forged", Parent: &repository.Branch{Timeline: a.timeline, RaftIndex: 1}}),
	))
	soon := time.Now()      // the commands above took a while
	for minute := range 5 { // the next slots are done, and the names of their backups taken
		slot := repository.SlotName(soon.Truncate(time.Minute).Add(time.Duration(minute+1) * time.Minute))
		id, err := repository.SlotBackupID("full", slot)
		require.NoError(t, err)
		_, err = sinks.Put(ctx, a.repo.Sink(), repository.ManifestName(a.timeline, id), []byte("forged"), sinks.CreateOptions{})
		require.NoError(t, err)
		for _, job := range []string{"full", "prune"} {
			require.NoError(t, a.repo.WriteJob(ctx, repository.JobName{Job: job, Slot: slot}, repository.JobRecord{Job: job, Slot: slot, Attempt: 1, Holder: "x", Started: now, Finished: now, OK: true}))
		}
	}
}

// goOn takes names that the agent would use next for segments, until ctx ends.
func (a *attack) goOn(ctx context.Context) {
	for ctx.Err() == nil {
		if all, err := a.repo.SmallSegments(ctx, a.timeline, 0); err == nil && len(all) > 0 && a.segments < 3 {
			last := all[len(all)-1]
			if data, err := os.ReadFile(a.dir + "/" + last.Object.Name); err == nil {
				name := last.SegmentName
				name.First, name.Previous = last.First+1, last.First
				if _, err := sinks.Put(ctx, a.repo.Sink(), name.String(), data, sinks.CreateOptions{}); err == nil {
					a.segments++
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// deleteAllBut deletes the log, and all full snapshots but one.
func (a *attack) deleteAllBut(t *testing.T, backup string) {
	t.Helper()
	all, err := a.repo.Segments(t.Context(), a.timeline)
	require.NoError(t, err)
	fulls, err := a.repo.Fulls(t.Context(), a.timeline)
	require.NoError(t, err)
	var gone []sinks.Object
	for _, s := range all {
		gone = append(gone, s.Object)
	}
	for _, f := range fulls {
		if f.ID != backup {
			gone = append(gone, f.Objects...)
		}
	}
	for _, o := range gone {
		require.NoError(t, os.Remove(a.dir+"/"+o.Name))
	}
}
