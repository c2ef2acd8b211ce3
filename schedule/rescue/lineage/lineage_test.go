package lineage

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
)

const (
	oldCluster, newCluster = 0xa, 0xb
	foreign                = 0xf
)

func line(cluster uint64, n int) repository.TimelineID {
	return repository.TimelineID{ClusterID: cluster, N: n}
}

// site is a repository in memory with the old cluster's timelines in it, and one
// of another cluster.
type site struct {
	*testing.T
	faulty *sinktest.Faulty
	repo   *repository.Repository
}

func newSite(t *testing.T, timelines int) *site {
	t.Helper()
	s := &site{T: t, faulty: sinktest.NewFaulty(sinktest.NewMemory())}
	var err error
	if s.repo, err = repository.Init(t.Context(), s.faulty, time.Now()); err != nil {
		t.Fatal(err)
	}
	s.open(line(foreign, 1))
	for n := range timelines {
		s.open(line(oldCluster, n+1))
	}
	return s
}

func (s *site) open(id repository.TimelineID) {
	s.Helper()
	if err := s.repo.OpenTimeline(s.Context(), repository.Timeline{ID: id, Created: time.Now(), Reason: "a test"}); err != nil {
		s.Fatal(err)
	}
}

// ended is by what a timeline was superseded; zero where it lives.
func (s *site) ended(id repository.TimelineID) repository.TimelineID {
	s.Helper()
	by, _, err := s.repo.Superseded(s.Context(), id)
	if err != nil {
		s.Fatal(err)
	}
	return by.By
}

func request(repos ...*repository.Repository) Request {
	return Request{
		Repositories: repos, NewCluster: newCluster, Members: []string{"m1", "m2"}, OldCluster: oldCluster,
		Branch: repository.Branch{Timeline: line(oldCluster, 2), RaftIndex: 77, Revision: 70, Chain: "ab"},
		Reason: "recovered", Now: func() time.Time { return time.Unix(1000, 0) },
	}
}

func all(t *testing.T, done []Done) []Done {
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
	s := newSite(t, 3)
	earlier := line(0xc, 1)
	if err := s.repo.Supersede(t.Context(), repository.Superseded{Timeline: line(oldCluster, 1), By: earlier, Reason: "long ago"}); err != nil {
		t.Fatal(err)
	}
	r := request(s.repo)
	for range 2 {
		if d := all(t, Open(t.Context(), r)); d[0].Timeline != line(newCluster, 1) || len(d[0].Superseded)+len(d[0].Warnings) > 0 {
			t.Errorf("open: %+v", d)
		}
	}
	opened, err := s.repo.Timeline(t.Context(), line(newCluster, 1))
	if err != nil || *opened.Parent != r.Branch || opened.Reason != r.Reason || !slices.Equal(opened.Members, r.Members) {
		t.Errorf("%+v, %v", opened, err)
	}
	if by := s.ended(line(oldCluster, 2)); by != (repository.TimelineID{}) {
		t.Errorf("it ended by %s when the new one was opened", by)
	}
	for range 2 {
		d := all(t, Supersede(t.Context(), r))
		if want := []repository.TimelineID{line(oldCluster, 2), line(oldCluster, 3)}; !slices.Equal(d[0].Superseded, want) || d[0].Timeline != line(newCluster, 1) {
			t.Errorf("supersede: %+v", d)
		}
	}
	for id, want := range map[repository.TimelineID]repository.TimelineID{
		line(oldCluster, 1): earlier, line(oldCluster, 2): line(newCluster, 1), line(oldCluster, 3): line(newCluster, 1),
		line(foreign, 1): {}, line(newCluster, 1): {},
	} {
		if got := s.ended(id); got != want {
			t.Errorf("%s ended by %s, want %s", id, got, want)
		}
	}
	at, _, err := s.repo.Superseded(t.Context(), line(oldCluster, 2))
	if err != nil || at.At != 77 {
		t.Errorf("%+v, %v", at, err)
	}
}

// Promise 6: taken back and made again, with the same cluster ID even, and each
// step twice.
func TestPromise6TakenBackAndMadeAgain(t *testing.T) {
	s := newSite(t, 2)
	r := request(s.repo)
	for round := 1; round <= 3; round++ {
		if d := all(t, Supersede(t.Context(), r)); d[0].Timeline != line(newCluster, round) || len(d[0].Superseded) != 2 {
			t.Fatalf("round %d: %+v", round, d)
		}
		for range 2 {
			d := all(t, Reinstate(t.Context(), r))
			if want := []repository.TimelineID{line(oldCluster, 1), line(oldCluster, 2)}; !slices.Equal(d[0].Reinstated, want) {
				t.Errorf("round %d: %+v", round, d)
			}
		}
		for _, id := range []repository.TimelineID{line(oldCluster, 1), line(oldCluster, 2)} {
			if by := s.ended(id); by != (repository.TimelineID{}) {
				t.Errorf("round %d: %s ended by %s", round, id, by)
			}
		}
		if by := s.ended(line(newCluster, round)); by != line(oldCluster, 2) {
			t.Errorf("round %d: the new one ended by %s", round, by)
		}
	}
}

// Taken back before anything was superseded: what was opened ends all the same, so
// that a new member that still runs is recognised.
func TestReinstateBeforeSupersede(t *testing.T) {
	s := newSite(t, 2)
	r := request(s.repo)
	all(t, Open(t.Context(), r))
	if d := all(t, Reinstate(t.Context(), r)); len(d[0].Reinstated) > 0 || d[0].Timeline != line(newCluster, 1) {
		t.Errorf("%+v", d)
	}
	if by := s.ended(line(newCluster, 1)); by != line(oldCluster, 2) {
		t.Errorf("ended by %s", by)
	}
	all(t, Reinstate(t.Context(), request(newSite(t, 1).repo))) // nothing was opened there
}

// An agent was there first: its timeline is the one, and that its origin is not
// recorded is told.
func TestOpenedBySomebodyElse(t *testing.T) {
	s := newSite(t, 2)
	s.open(line(newCluster, 1))
	d := all(t, Open(t.Context(), request(s.repo)))
	if d[0].Timeline != line(newCluster, 1) || len(d[0].Warnings) != 1 || !strings.Contains(d[0].Warnings[0], line(oldCluster, 2).String()) {
		t.Errorf("%+v", d)
	}
}

// A repository that has nothing of the old cluster learns that it ended.
func TestPromise6OldClusterUnknown(t *testing.T) {
	s := newSite(t, 0)
	r := request(s.repo)
	r.Branch = repository.Branch{}
	if d := all(t, Supersede(t.Context(), r)); !slices.Equal(d[0].Superseded, []repository.TimelineID{line(oldCluster, 1)}) {
		t.Errorf("%+v", d)
	}
	if by := s.ended(line(oldCluster, 1)); by != line(newCluster, 1) {
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
				sick := newSite(t, 0)
				for n := 1; n <= 3; n++ {
					sick.open(line(oldCluster, n))
				}
				broken := sinktest.NewFaulty(copyOf(t, sick.repo.Sink(), memory), fault(sinktest.Commit, step, errors.New("gone")))
				repo, err := repository.Open(t.Context(), broken)
				if err != nil {
					t.Fatal(err)
				}
				well := newSite(t, 2)
				r := request(repo, well.repo)
				first := Supersede(t.Context(), r)
				if first[0].Failed == "" || first[1].Failed != "" || len(first[1].Superseded) != 2 {
					t.Fatalf("%+v", first)
				}
				if d := all(t, Supersede(t.Context(), r)); len(d[0].Superseded) != 3 || d[0].Timeline != line(newCluster, 1) {
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
		if err != nil {
			t.Fatal(err)
		}
		data, err := sinks.Get(t.Context(), from, o.Name, o.Size)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sinks.Put(t.Context(), to, o.Name, data, sinks.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// A cluster does not supersede itself.
func TestSameCluster(t *testing.T) {
	r := request(newSite(t, 1).repo)
	r.NewCluster = r.OldCluster
	if d := Supersede(t.Context(), r); !strings.Contains(d[0].Failed, "ID of its own") {
		t.Errorf("%+v", d)
	}
}
