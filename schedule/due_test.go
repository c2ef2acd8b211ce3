package schedule

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/archive"
	"github.com/requorum/requorum/walreplay/logtest"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// storeRuns stores a log of one history that has these entries only: from the
// first to the second of each pair.
func storeRuns(t *testing.T, repo *repository.Repository, id repository.TimelineID, runs [][2]uint64) {
	t.Helper()
	var sum raftlog.Sum
	sums := map[uint64]raftlog.Sum{0: sum}
	entry := func(i uint64) raftlog.Entry {
		return raftlog.Entry{Index: i, Term: 2, Type: raftpb.EntryNormal, Data: []byte("entry")}
	}
	for i := uint64(1); i <= 100; i++ {
		sum = sum.Next(entry(i))
		sums[i] = sum
	}
	for _, r := range runs {
		var b segment.Batch
		for i := r[0]; i <= r[1]; i++ {
			b.Entries = append(b.Entries, entry(i))
		}
		logtest.Archive(t, repo, id, sums[r[0]-1], b, time.Now(), codec.Options{})
	}
}

// A full snapshot covers a gap when the log goes on from it to its end, and it is
// surely of the history behind the gap.
func TestSnapshotCoversGap(t *testing.T) {
	id := repository.TimelineID{ClusterID: 1, N: 1}
	found := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	whole := [][2]uint64{{1, 100}}
	for name, c := range map[string]struct {
		timeline int
		index    uint64
		started  time.Time
		gap      archive.Gap
		log      [][2]uint64
		want     bool
	}{
		"just before":                  {1, 40, found.Add(time.Second), archive.Gap{First: 41, Found: found}, [][2]uint64{{1, 20}, {41, 100}}, true},
		"in the hole":                  {1, 39, found.Add(time.Second), archive.Gap{First: 41, Found: found}, [][2]uint64{{1, 20}, {41, 100}}, false},
		"of another timeline":          {2, 50, found.Add(time.Second), archive.Gap{First: 41, Found: found}, whole, false},
		"from before a restart":        {1, 50, found.Add(-time.Hour), archive.Gap{First: 4, Found: found}, whole, false},
		"the first, whenever it began": {1, 50, found.Add(-time.Hour), archive.Gap{First: 1}, whole, true},
		"before a hole":                {1, 50, found.Add(time.Second), archive.Gap{First: 1}, [][2]uint64{{1, 60}, {71, 100}}, false},
		"before a second hole":         {1, 50, found.Add(time.Second), archive.Gap{First: 41}, [][2]uint64{{1, 20}, {41, 60}, {71, 100}}, false},
		"in a later hole":              {1, 70, found.Add(time.Second), archive.Gap{First: 41}, [][2]uint64{{1, 20}, {41, 60}, {71, 100}}, true},
		"beyond the log":               {1, 200, found.Add(time.Second), archive.Gap{First: 41}, [][2]uint64{{1, 60}, {71, 100}}, true},
		"without a log":                {1, 50, found, archive.Gap{First: 1}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			sink := sinktest.NewMemory()
			repo, err := repository.Init(t.Context(), sink, found)
			require.NoError(t, err)
			storeRuns(t, repo, id, c.log)
			m := &snapshot.Manifest{Timeline: repository.TimelineID{ClusterID: 1, N: c.timeline}, Started: c.started}
			m.Facts.RaftIndex, m.Facts.RaftTerm = c.index, 2
			got, err := covers(t.Context(), repo, &snapshot.Catalog{Manifests: []*snapshot.Manifest{m}}, id, c.gap)
			if got != c.want || err != nil {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

// oneArchiver has archived something, and counts how often it is asked to look.
type oneArchiver struct {
	timeline repository.TimelineID
	looked   chan struct{}
}

func (a *oneArchiver) State() archive.State {
	return archive.State{Member: "b", Timeline: a.timeline, Role: archive.Follower, Archived: 100, Checked: time.Now()}
}
func (a *oneArchiver) LookAgain() { close(a.looked) }

// The first full snapshot that another agent takes is seen soon after it is there:
// until then this one reports that nothing can be restored.
func TestBegunElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := repository.TimelineID{ClusterID: 1, N: 1}
		sink := sinktest.NewMemory()
		repo, err := repository.Init(t.Context(), sink, time.Now())
		require.NoError(t, err)
		storeRuns(t, repo, id, [][2]uint64{{1, 100}})
		require.NoError(t, repo.OpenTimeline(t.Context(), repository.Timeline{ID: id, Created: time.Now()}))
		a := &oneArchiver{id, make(chan struct{})}
		heard := make(chan string, 1)
		k := &keeper{Sink: sink, State: a.State, LookAgain: a.LookAgain, Notify: func(text string) { heard <- text },
			Take: func(context.Context, repository.TimelineID) error { return errors.New("taken twice") }}
		go k.KeepBeginning(t.Context())
		if text := <-heard; text != archive.ErrElsewhere.Error() {
			t.Fatal(text)
		}
		time.Sleep(3 * time.Second)
		began := time.Now()
		const backup = "20260101T000000Z-aaaaaa"
		object := repository.SnapshotName(id, backup, 1, false)
		_, err = sinks.Put(t.Context(), sink, object, []byte("x"), sinks.CreateOptions{})
		require.NoError(t, err)
		m := snapshot.Manifest{Format: 1, Kind: snapshot.KindFull, ID: backup, Timeline: id, Started: began, Finished: began,
			Object: snapshot.StoredObject{Name: object, Encoding: codec.Encoding{StoredSize: 1}}, Facts: snapshot.Facts{RaftIndex: 50, RaftTerm: 2, Revision: 50}}
		require.NoError(t, repo.WriteDocument(t.Context(), repository.ManifestName(id, backup), m))
		<-a.looked
		if waited := time.Since(began); waited > 10*time.Second {
			t.Errorf("the snapshot was seen %s after it was there", waited)
		}
	})
}
