package verify

import (
	"testing"

	"github.com/requorum/requorum/sinks/repository"
)

// Retention deletes a log from its beginning on, and old full snapshots before it may
// stay: that is noted. A hole within the log is damage, and so is a log that begins
// behind the newest full snapshot, unless the timeline has ended.
func TestPrunedLog(t *testing.T) {
	w := newWorld(t, onMemory())
	w.remove(w.one(worldTimeline.String() + "/l1/"))
	for _, first := range []uint64{1, 11, 21} {
		w.remove(l0(first))
		r := w.verify(Request{})
		wantKinds(t, r)
		if first > 1 {
			wantNote(t, r, "begins at index")
		}
	}
	w.remove(l0(31))
	for _, backup := range []string{All, Latest} {
		wantKinds(t, w.verify(Request{Backup: backup}), "gap log")
	}
	w.must(w.repo.Supersede(t.Context(), repository.Superseded{Timeline: worldTimeline, By: repository.TimelineID{ClusterID: 9, N: 1}, Created: worldStart}))
	wantKinds(t, w.verify(Request{}))
	w = newWorld(t, onMemory())
	w.remove(w.one(worldTimeline.String() + "/l1/"))
	w.remove(l0(21))
	wantKinds(t, w.verify(Request{}), "gap log")
}
