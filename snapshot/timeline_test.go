package snapshot

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/store/client"
)

// Promise 6: a backup goes to the timeline that the cluster can be a later
// state of; among several, to the one that got furthest if it is also the newest.
func TestPromise6ChooseTimeline(t *testing.T) {
	id := func(n int) repository.TimelineID { return repository.TimelineID{ClusterID: 7, N: n} }
	at := func(n int, index uint64) knownTimeline {
		return knownTimeline{id: id(n), reached: backupPoint(&Manifest{ID: "x", Facts: Facts{RaftIndex: index, RaftTerm: 2, Revision: int64(index)}})}
	}
	cluster := client.Barrier{Index: 100, Term: 3, Revision: 100}
	for _, c := range []struct {
		name   string
		known  []knownTimeline
		want   repository.TimelineID
		fresh  bool
		parent *repository.TimelineID
	}{
		{"the first", nil, id(1), true, nil},
		{"goes on", []knownTimeline{at(1, 90)}, id(1), false, nil},
		{"an empty one", []knownTimeline{{id: id(1)}}, id(1), false, nil},
		{"behind: a new one", []knownTimeline{at(1, 900)}, id(2), true, ptr(id(1))},
		{"behind the first, on with the second", []knownTimeline{at(1, 900), at(2, 50)}, id(2), false, nil},
		{"it outgrew the first, or the second is a copy: kept apart", []knownTimeline{at(1, 90), at(2, 50)}, id(3), true, ptr(id(2))},
		{"on with the one that was kept apart", []knownTimeline{at(1, 90), at(2, 50), at(3, 95)}, id(3), false, nil},
		{"the same, at the index of the first", []knownTimeline{at(1, 100), at(2, 90), at(3, 100)}, id(3), false, nil},
		{"the copy goes on, behind the others", []knownTimeline{at(1, 900), at(2, 50), at(3, 950)}, id(2), false, nil},
		{"the first, and an interrupted one", []knownTimeline{at(1, 90), {id: id(2)}}, id(1), false, nil},
		{"behind the first, the second is empty", []knownTimeline{at(1, 900), {id: id(2)}}, id(2), false, nil},
		{"behind both", []knownTimeline{at(1, 900), at(2, 500)}, id(3), true, ptr(id(2))},
	} {
		taking := &taking{survey: client.Survey{ClusterID: 7}, barrier: cluster, known: c.known}
		taking.furthestTimeline()
		if taking.timeline.ID != c.want || taking.fresh != c.fresh {
			t.Errorf("%s: got %s, fresh %v", c.name, taking.timeline.ID, taking.fresh)
		}
		if p := taking.timeline.Parent; (p == nil) != (c.parent == nil) || p != nil && p.Timeline != *c.parent {
			t.Errorf("%s: parent %+v, want %v", c.name, p, c.parent)
		}
	}
}

// Promise 6: the archived log counts as well. A cluster that is ahead of the
// last backup and behind the archive has lost what was between them.
func TestPromise6ArchivedLogCounts(t *testing.T) {
	id := repository.TimelineID{ClusterID: 7, N: 1}
	cluster := client.Barrier{Index: 100, Term: 3, Revision: 100}
	backup := &Manifest{ID: "x", Facts: Facts{RaftIndex: 90, RaftTerm: 2, Revision: 90}}
	for _, c := range []struct {
		name        string
		backup      *Manifest
		index, term uint64
		fresh       bool
	}{
		{"no log", backup, 0, 0, false},
		{"the cluster is ahead of it", backup, 99, 3, false},
		{"the cluster is behind it", backup, 120, 3, true},
		{"a later term", backup, 95, 4, true},
		{"without a backup", nil, 120, 3, true},
		{"older than the backup", backup, 50, 2, false},
	} {
		k := knownTimeline{id: id}
		if c.backup != nil {
			k.reached = backupPoint(c.backup)
		}
		err := k.addArchive(t.Context(), nil, func(context.Context, *repository.Repository, repository.TimelineID) (uint64, uint64, int64, error) {
			return c.index, c.term, 0, nil
		})
		require.NoError(t, err)
		taking := &taking{survey: client.Survey{ClusterID: 7}, barrier: cluster, known: []knownTimeline{k}}
		taking.furthestTimeline()
		if taking.fresh != c.fresh {
			t.Errorf("%s: fresh is %v (%s)", c.name, taking.fresh, taking.timeline.Reason)
		}
	}
}

func ptr[T any](v T) *T { return &v }
