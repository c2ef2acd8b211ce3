package recovery

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
)

const (
	oldCluster, newCluster = 0xa, 0xb
	foreign                = 0xf
)

func timelineID(cluster uint64, n int) repository.TimelineID {
	return repository.TimelineID{ClusterID: cluster, N: n}
}

// timelinesSite is a repository in memory with the old cluster's timelines in it, and one
// of another cluster.
type timelinesSite struct {
	*testing.T
	faulty *sinktest.Faulty
	repo   *repository.Repository
}

func newTimelinesSite(t *testing.T, timelines int) *timelinesSite {
	t.Helper()
	s := &timelinesSite{T: t, faulty: sinktest.NewFaulty(sinktest.NewMemory())}
	var err error
	s.repo, err = repository.Init(t.Context(), s.faulty, time.Now())
	require.NoError(t, err)
	s.open(timelineID(foreign, 1))
	for n := range timelines {
		s.open(timelineID(oldCluster, n+1))
	}
	return s
}

func (s *timelinesSite) open(id repository.TimelineID) {
	s.Helper()
	require.NoError(s, s.repo.OpenTimeline(s.Context(), repository.Timeline{ID: id, Created: time.Now(), Reason: "a test"}))
}

// ended is by what a timeline was superseded; zero where it lives.
func (s *timelinesSite) ended(id repository.TimelineID) repository.TimelineID {
	s.Helper()
	by, _, err := s.repo.Superseded(s.Context(), id)
	require.NoError(s, err)
	return by.By
}

func timelinesRequest(repos ...*repository.Repository) TimelinesRequest {
	return TimelinesRequest{
		Repositories: repos, NewCluster: newCluster, Members: []string{"m1", "m2"}, OldCluster: oldCluster,
		Branch: repository.Branch{Timeline: timelineID(oldCluster, 2), RaftIndex: 77, Revision: 70, Chain: "ab"},
		Reason: "recovered", Now: func() time.Time { return time.Unix(1000, 0) },
	}
}

func allTimelines(t *testing.T, done []TimelinesDone) []TimelinesDone {
	t.Helper()
	for _, d := range done {
		if d.Failed != "" {
			t.Fatalf("%s: %s", d.Repository, d.Failed)
		}
	}
	return done
}

// Promise 6: the new cluster's timeline has its parent and branch point, and all
// living timelines of the old cluster end by it, and no other cluster's. Every step
// done again is the same step.
func TestPromise6OpenAndSupersede(t *testing.T) {
	s := newTimelinesSite(t, 3)
	earlier := timelineID(0xc, 1)
	require.NoError(t, s.repo.Supersede(t.Context(), repository.Superseded{Timeline: timelineID(oldCluster, 1), By: earlier, Reason: "long ago"}))
	r := timelinesRequest(s.repo)
	for range 2 {
		if d := allTimelines(t, OpenTimelines(t.Context(), r)); d[0].Timeline != timelineID(newCluster, 1) || len(d[0].Superseded)+len(d[0].Warnings) > 0 {
			t.Errorf("open: %+v", d)
		}
	}
	opened, err := s.repo.Timeline(t.Context(), timelineID(newCluster, 1))
	if err != nil || *opened.Parent != r.Branch || opened.Reason != r.Reason || !slices.Equal(opened.Members, r.Members) {
		t.Errorf("%+v, %v", opened, err)
	}
	if by := s.ended(timelineID(oldCluster, 2)); by != (repository.TimelineID{}) {
		t.Errorf("it ended by %s when the new one was opened", by)
	}
	for range 2 {
		d := allTimelines(t, SupersedeTimelines(t.Context(), r))
		if want := []repository.TimelineID{timelineID(oldCluster, 2), timelineID(oldCluster, 3)}; !slices.Equal(d[0].Superseded, want) || d[0].Timeline != timelineID(newCluster, 1) {
			t.Errorf("supersede: %+v", d)
		}
	}
	for id, want := range map[repository.TimelineID]repository.TimelineID{
		timelineID(oldCluster, 1): earlier, timelineID(oldCluster, 2): timelineID(newCluster, 1), timelineID(oldCluster, 3): timelineID(newCluster, 1),
		timelineID(foreign, 1): {}, timelineID(newCluster, 1): {},
	} {
		if got := s.ended(id); got != want {
			t.Errorf("%s ended by %s, want %s", id, got, want)
		}
	}
	at, _, err := s.repo.Superseded(t.Context(), timelineID(oldCluster, 2))
	if err != nil || at.At != 77 {
		t.Errorf("%+v, %v", at, err)
	}
}

// Promise 6: taken back and made again, with the same cluster ID even, and each
// step twice.
func TestPromise6TakenBackAndMadeAgain(t *testing.T) {
	s := newTimelinesSite(t, 2)
	r := timelinesRequest(s.repo)
	for round := 1; round <= 3; round++ {
		if d := allTimelines(t, SupersedeTimelines(t.Context(), r)); d[0].Timeline != timelineID(newCluster, round) || len(d[0].Superseded) != 2 {
			t.Fatalf("round %d: %+v", round, d)
		}
		for range 2 {
			d := allTimelines(t, ReinstateTimelines(t.Context(), r))
			if want := []repository.TimelineID{timelineID(oldCluster, 1), timelineID(oldCluster, 2)}; !slices.Equal(d[0].Reinstated, want) {
				t.Errorf("round %d: %+v", round, d)
			}
		}
		for _, id := range []repository.TimelineID{timelineID(oldCluster, 1), timelineID(oldCluster, 2)} {
			if by := s.ended(id); by != (repository.TimelineID{}) {
				t.Errorf("round %d: %s ended by %s", round, id, by)
			}
		}
		if by := s.ended(timelineID(newCluster, round)); by != timelineID(oldCluster, 2) {
			t.Errorf("round %d: the new one ended by %s", round, by)
		}
	}
}

// Taken back before anything was superseded: what was opened ends all the same, so
// that a new member that still runs is recognised.
func TestReinstateBeforeSupersede(t *testing.T) {
	s := newTimelinesSite(t, 2)
	r := timelinesRequest(s.repo)
	allTimelines(t, OpenTimelines(t.Context(), r))
	if d := allTimelines(t, ReinstateTimelines(t.Context(), r)); len(d[0].Reinstated) > 0 || d[0].Timeline != timelineID(newCluster, 1) {
		t.Errorf("%+v", d)
	}
	if by := s.ended(timelineID(newCluster, 1)); by != timelineID(oldCluster, 2) {
		t.Errorf("ended by %s", by)
	}
	allTimelines(t, ReinstateTimelines(t.Context(), timelinesRequest(newTimelinesSite(t, 1).repo))) // nothing was opened there
}

// An agent was there first: its timeline is the one, and that its origin is not
// recorded is reported.
func TestOpenedBySomebodyElse(t *testing.T) {
	s := newTimelinesSite(t, 2)
	s.open(timelineID(newCluster, 1))
	d := allTimelines(t, OpenTimelines(t.Context(), timelinesRequest(s.repo)))
	if d[0].Timeline != timelineID(newCluster, 1) || len(d[0].Warnings) != 1 || !strings.Contains(d[0].Warnings[0], timelineID(oldCluster, 2).String()) {
		t.Errorf("%+v", d)
	}
}

// A repository that has nothing of the old cluster learns that it ended.
func TestPromise6OldClusterUnknown(t *testing.T) {
	s := newTimelinesSite(t, 0)
	r := timelinesRequest(s.repo)
	r.Branch = repository.Branch{}
	if d := allTimelines(t, SupersedeTimelines(t.Context(), r)); !slices.Equal(d[0].Superseded, []repository.TimelineID{timelineID(oldCluster, 1)}) {
		t.Errorf("%+v", d)
	}
	if by := s.ended(timelineID(oldCluster, 1)); by != timelineID(newCluster, 1) {
		t.Errorf("ended by %s", by)
	}
}

// Stopped at each of its writes, with and without the write being done, the
// next run ends in the same state; and a repository that fails keeps nothing from
// the other.
func TestPromise6StoppedAnywhere(t *testing.T) {
	for step := 1; step <= 4; step++ {
		for what, fault := range map[string]func(sinktest.Op, int, error) sinktest.Fault{"fails": sinktest.Fail, "answer lost": sinktest.Lose} {
			t.Run(fmt.Sprintf("write %d %s", step, what), func(t *testing.T) {
				memory := sinktest.NewMemory()
				sick := newTimelinesSite(t, 0)
				for n := 1; n <= 3; n++ {
					sick.open(timelineID(oldCluster, n))
				}
				broken := sinktest.NewFaulty(copyOf(t, sick.repo.Sink(), memory), fault(sinktest.Commit, step, errors.New("gone")))
				repo, err := repository.Open(t.Context(), broken)
				require.NoError(t, err)
				well := newTimelinesSite(t, 2)
				r := timelinesRequest(repo, well.repo)
				first := SupersedeTimelines(t.Context(), r)
				if first[0].Failed == "" || first[1].Failed != "" || len(first[1].Superseded) != 2 {
					t.Fatalf("%+v", first)
				}
				if d := allTimelines(t, SupersedeTimelines(t.Context(), r)); len(d[0].Superseded) != 3 || d[0].Timeline != timelineID(newCluster, 1) {
					t.Errorf("%+v", d)
				}
				broken.AllFired(t)
			})
		}
	}
}

func copyOf(t *testing.T, from, to sinks.Sink) sinks.Sink {
	t.Helper()
	for o, err := range from.List(t.Context(), "", "") {
		require.NoError(t, err)
		data, err := sinks.Get(t.Context(), from, o.Name, o.Size)
		require.NoError(t, err)
		_, err = sinks.Put(t.Context(), to, o.Name, data, sinks.CreateOptions{})
		require.NoError(t, err)
	}
	return to
}

// A cluster does not supersede itself.
func TestSameCluster(t *testing.T) {
	r := timelinesRequest(newTimelinesSite(t, 1).repo)
	r.NewCluster = r.OldCluster
	if d := SupersedeTimelines(t.Context(), r); !strings.Contains(d[0].Failed, "ID of its own") {
		t.Errorf("%+v", d)
	}
}
