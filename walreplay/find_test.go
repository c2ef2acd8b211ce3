package walreplay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// store puts a manifest and an object of its size where a backup has them.
func (w *world) store(t repository.TimelineID, id string, index uint64) {
	w.t.Helper()
	object := repository.SnapshotName(t, id, 1, false)
	_, err := sinks.Put(w.t.Context(), w.repo.Sink(), object, []byte("x"), sinks.CreateOptions{})
	require.NoError(w.t, err)
	m := &snapshot.Manifest{Format: 1, Kind: "full", ID: id, Timeline: t, Started: timeOf(index), Finished: timeOf(index),
		Object: snapshot.StoredObject{Name: object, Encoding: codec.Encoding{StoredSize: 1}}, Facts: snapshot.Facts{RaftIndex: index, Revision: int64(index)}}
	require.NoError(w.t, w.repo.WriteDocument(w.t.Context(), repository.ManifestName(t, id), m))
}

// Promise 6 of the design: a test cluster, restored from a backup and backed up
// here, does not pass for the newest state while the cluster that it was restored
// from is still observed, though that one only archives its log: that one is found. One that ended
// before, or that a recovery has ended, is continued by it.
func TestPromise6FindLatestBesideAnArchive(t *testing.T) {
	const old, young = "20260101T000000Z-aaaaaa", "20260102T000000Z-bbbbbb"
	child := repository.TimelineID{ClusterID: 8, N: 1}
	for _, c := range []struct {
		name  string
		goes  func(w *world, branch uint64)
		found string
	}{
		{"nothing archived", func(*world, uint64) {}, young},
		{"the log ends before", func(w *world, branch uint64) { w.archive(1, branch+1, true, branch+1) }, young},
		{"the log goes on", func(w *world, branch uint64) { w.archive(1, branch+4, true, branch+4) }, old},
		{"cut after it, without a mark", func(w *world, branch uint64) { w.archive(1, branch+4, true) }, old},
		{"quiet, but there", func(w *world, branch uint64) {
			m := raftlog.Mark{Index: branch, Term: 2, Time: timeOf(branch + 3), Member: 1}
			require.NoError(w.t, segment.WriteMark(w.t.Context(), w.repo, w.id, m))
		}, old},
		{"ended by a recovery", func(w *world, branch uint64) {
			w.archive(1, branch+4, true, branch+4)
			require.NoError(w.t, w.repo.Supersede(w.t.Context(), repository.Superseded{Timeline: w.id, By: child, Reason: "recovered", Created: timeOf(branch + 5)}))
		}, young},
		{"ended by a recovery that was taken back", func(w *world, branch uint64) {
			require.NoError(w.t, w.repo.Supersede(w.t.Context(), repository.Superseded{Timeline: w.id, By: child, Reason: "recovered", Created: timeOf(branch + 5)}))
			require.NoError(w.t, w.repo.Reinstate(w.t.Context(), repository.Superseded{Timeline: child, By: w.id, Reason: "taken back", Created: timeOf(branch + 6)}))
		}, old},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			branch := w.put("a", "1")
			for range 5 {
				w.put("a", "2")
			}
			for _, line := range []repository.Timeline{
				{ID: w.id, Created: clockStart, Reason: "first"},
				{ID: child, Created: timeOf(branch + 2), Reason: "restored", Parent: &repository.Branch{Timeline: w.id, Backup: old, RaftIndex: branch}},
			} {
				_, err := w.repo.EnsureTimeline(t.Context(), line)
				require.NoError(t, err)
			}
			w.store(w.id, old, branch)
			w.store(child, young, 5)
			c.goes(w, branch)
			all, err := ReadInventory(t.Context(), w.repo)
			require.NoError(t, err)
			m, err := all.Find(t.Context(), snapshot.Latest, "")
			if err != nil || m.ID != c.found {
				t.Errorf("found %v, %v; want %s", m, err, c.found)
			}
			if m, err := all.Find(t.Context(), snapshot.Latest, w.id.String()); err != nil || m.ID != old {
				t.Errorf("in its timeline: %v, %v", m, err)
			}
		})
	}
}
