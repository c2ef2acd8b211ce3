package snapshot

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/store/client"
)

func tl(n int) repository.TimelineID { return repository.TimelineID{ClusterID: uint64(n), N: 1} }

func backupOf(id string, timeline repository.TimelineID, index uint64) *Manifest {
	return &Manifest{ID: id, Timeline: timeline, Facts: Facts{RaftIndex: index, Revision: int64(index), RaftTerm: 2}, Started: time.Unix(int64(index), 0)}
}

func TestFind(t *testing.T) {
	child := repository.Timeline{ID: tl(2), Parent: &repository.Branch{Timeline: tl(1), RaftIndex: 20}}
	chain := &Catalog{
		Timelines: []repository.Timeline{{ID: tl(1)}, child},
		Manifests: []*Manifest{backupOf("20260101T000000Z-aaaaaa", tl(1), 10), backupOf("20260102T000000Z-bbbbbb", tl(1), 20), backupOf("20260103T000000Z-cccccc", tl(2), 5)},
	}
	forks := &Catalog{
		Timelines: []repository.Timeline{{ID: tl(1)}, {ID: tl(2)}},
		Manifests: chain.Manifests,
	}
	empty := &Catalog{Timelines: []repository.Timeline{{ID: tl(1)}, child}, Manifests: chain.Manifests[:2]}
	damaged := &DamagedError{Object: "manifest", Offset: -1, Err: errors.New("x")}
	broken := &Catalog{Timelines: chain.Timelines, Damaged: []Unusable{{Timeline: tl(1), ID: "20260101T000000Z-dddddd", Err: damaged}}}
	spoil := func(timeline repository.TimelineID, id string) *Catalog {
		return &Catalog{Timelines: empty.Timelines, Manifests: empty.Manifests, Damaged: []Unusable{{Timeline: timeline, ID: id, Err: damaged}}}
	}
	spoilt, spoiltChild, oldSpoilt := spoil(tl(1), "20260102T000001Z-dddddd"), spoil(tl(2), "20260103T000000Z-dddddd"), spoil(tl(1), "20260101T000000Z-dddddd")

	// A drill: a test cluster was restored from the newest backup and backed up
	// here; the cluster itself went on, or did not.
	opened := time.Unix(1_000_000, 0)
	drill := repository.Timeline{ID: tl(2), Created: opened, Parent: &repository.Branch{Timeline: tl(1), RaftIndex: 20}}
	after := backupOf("20260104T000000Z-dddddd", tl(1), 30)
	after.Started = opened.Add(time.Minute)
	before := backupOf("20260104T000000Z-eeeeee", tl(1), 30)
	before.Started = opened.Add(-2 * time.Hour)
	both := []repository.Timeline{{ID: tl(1)}, drill}
	wentOn := &Catalog{Timelines: both, Manifests: append([]*Manifest{after}, chain.Manifests[2])}
	skewed := &Catalog{Timelines: both, Manifests: append([]*Manifest{{ID: "x", Timeline: tl(1), Facts: after.Facts, Started: opened.Add(-time.Minute)}}, chain.Manifests[2])}
	wentBack := &Catalog{Timelines: both, Manifests: append([]*Manifest{before}, chain.Manifests[2])}
	// The cluster went on, and all that shows it is its archived log; or that one
	// ends before the other begins, or a recovery has ended it.
	archived := func(a Archived) *Catalog {
		return &Catalog{Timelines: both, Manifests: chain.Manifests, Archived: map[repository.TimelineID]Archived{tl(1): a}}
	}

	later := archived(Archived{Seen: opened.Add(time.Second)})
	since := *chain.Manifests[2]
	since.Started = opened.Add(2 * time.Hour)
	later.Manifests = append(slices.Clone(chain.Manifests[:2]), &since)
	archivedBoth := archived(Archived{Seen: opened.Add(time.Second)})
	archivedBoth.Archived[tl(2)] = Archived{Seen: opened.Add(time.Minute)}

	// The child was a recovery that was taken back.
	undone := &Catalog{Timelines: both, Manifests: chain.Manifests, Archived: map[repository.TimelineID]Archived{tl(2): {Superseded: true, Undone: true}}}

	for _, c := range []struct {
		name          string
		catalog       *Catalog
		ref, timeline string
		want          string
		err           error
	}{
		{"the newest of the last timeline", chain, Latest, "", "20260103T000000Z-cccccc", nil},
		{"the newest of a named timeline", chain, Latest, tl(1).String(), "20260102T000000Z-bbbbbb", nil},
		{"a child without backups does not hide its parent", empty, Latest, "", "20260102T000000Z-bbbbbb", nil},
		{"promise 6: separate histories are not ranked", forks, Latest, "", "", ErrAmbiguous},
		{"promise 6: a drill does not hide the cluster that goes on", wentOn, Latest, "", "", ErrAmbiguous},
		{"promise 6: nor does it when clocks differ", skewed, Latest, "", "", ErrAmbiguous},
		{"restored from an older backup than the newest", wentBack, Latest, "", "20260103T000000Z-cccccc", nil},
		{"promise 6: nor does it hide one that only archives", archived(Archived{Seen: opened.Add(time.Second)}), Latest, "", "20260102T000000Z-bbbbbb", nil},
		{"which is found by its timeline", archived(Archived{Seen: opened.Add(time.Second)}), Latest, tl(1).String(), "20260102T000000Z-bbbbbb", nil},
		{"promise 6: one that archives, and another that was backed up since", later, Latest, "", "", ErrAmbiguous},
		{"promise 6: two that archive", archivedBoth, Latest, "", "", ErrAmbiguous},
		{"restored from before the end of the log", archived(Archived{Seen: opened.Add(-time.Second)}), Latest, "", "20260103T000000Z-cccccc", nil},
		{"a recovery ended it", archived(Archived{Seen: opened.Add(time.Hour), Superseded: true}), Latest, "", "20260103T000000Z-cccccc", nil},
		{"promise 6: a recovery that was taken back does not continue it", undone, Latest, "", "20260102T000000Z-bbbbbb", nil},
		{"whole ID", chain, "20260101T000000Z-aaaaaa", "", "20260101T000000Z-aaaaaa", nil},
		{"start of an ID", chain, "20260102", "", "20260102T000000Z-bbbbbb", nil},
		{"start of several", chain, "2026010", "", "", ErrAmbiguous},
		{"start of several, one in the timeline", chain, "2026010", tl(2).String(), "20260103T000000Z-cccccc", nil},
		{"unknown", chain, "2027", "", "", ErrNoBackup},
		{"unknown timeline", chain, Latest, tl(9).String(), "", ErrNoBackup},
		{"damaged by ID", broken, "20260101", "", "", damaged},
		{"only damaged ones", broken, Latest, "", "", damaged},
		{"promise 4: an older one does not pass for a damaged newest", spoilt, Latest, "", "", damaged},
		{"nor one of the parent timeline", spoiltChild, Latest, "", "", damaged},
		{"an old damaged one does not matter", oldSpoilt, Latest, "", "20260102T000000Z-bbbbbb", nil},
		{"nothing at all", &Catalog{}, Latest, "", "", ErrNoBackup},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := c.catalog.Find(c.ref, c.timeline)
			require.ErrorIs(t, err, c.err)
			if c.want != "" && m.ID != c.want {
				t.Fatalf("got %s, want %s", m.ID, c.want)
			}
		})
	}
}

// A circle of parents, which no honest writer makes, ends all the same.
func TestFindInACircle(t *testing.T) {
	c := &Catalog{
		Timelines: []repository.Timeline{
			{ID: tl(1), Parent: &repository.Branch{Timeline: tl(2)}},
			{ID: tl(2), Parent: &repository.Branch{Timeline: tl(1)}},
		},
		Manifests: []*Manifest{backupOf("20260101T000000Z-aaaaaa", tl(1), 10)},
	}
	if m, err := c.Find(Latest, ""); err != nil || m.ID != "20260101T000000Z-aaaaaa" {
		t.Fatalf("got %v, %v", m, err)
	}
}

func TestOlder(t *testing.T) {
	c := &Catalog{Manifests: []*Manifest{backupOf("a", tl(1), 10), backupOf("b", tl(1), 20), backupOf("c", tl(2), 15)}}
	if m := c.Older(c.Manifests[1]); m == nil || m.ID != "a" {
		t.Errorf("got %v, want a", m)
	}
	if m := c.Older(c.Manifests[0]); m != nil {
		t.Errorf("got %v, want none", m)
	}
}

// Promise 6: a history that restarted under the same cluster ID is noticed by
// whichever of index, term and revision went back.
func TestPromise6RestartedHistoryIsNoticed(t *testing.T) {
	last := &Manifest{Facts: Facts{RaftIndex: 100, RaftTerm: 5, Revision: 50}}
	for _, c := range []struct {
		b    client.Barrier
		want bool
	}{
		{client.Barrier{Index: 100, Term: 5, Revision: 50}, false},
		{client.Barrier{Index: 101, Term: 5, Revision: 50}, false},
		{client.Barrier{Index: 200, Term: 9, Revision: 80}, false},
		{client.Barrier{Index: 99, Term: 5, Revision: 50}, true},
		{client.Barrier{Index: 200, Term: 4, Revision: 80}, true},
		{client.Barrier{Index: 200, Term: 9, Revision: 49}, true},
	} {
		if got := restarted(backupPoint(last), c.b); got != c.want {
			t.Errorf("restarted(%+v) = %v, want %v", c.b, got, c.want)
		}
	}
}
