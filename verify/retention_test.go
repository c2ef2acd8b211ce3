package verify

import (
	"testing"

	"github.com/requorum/requorum/sinks/repository"
)

// A log that is pruned is not missing, however far that has come, and whichever
// older full snapshots stay: the record of it is written first. Without it holes
// are damage.
func TestPrunedLog(t *testing.T) {
	w := provenWorld(t)
	w.remove(w.one(worldTimeline.String() + "/l1/"))
	w.remove(l0(1))
	w.remove(l0(11))
	// The log begins at 21, with a full snapshot at 10 before it, and joins only
	// that at 35.
	wantKinds(t, w.verify(Request{}), "gap log")
	w.must(w.repo.RecordPrunedLog(t.Context(), repository.PrunedLog{Timeline: worldTimeline, Index: 35, Reason: "test", Created: worldStart}))
	r := w.verify(Request{})
	wantKinds(t, r)
	w.remove(l0(21))
	wantKinds(t, w.verify(Request{}))
	// What is behind the record is missed.
	w.remove(l0(31))
	w.remove(l0(41))
	wantKinds(t, w.verify(Request{}), "gap log")
	// No record excuses that log is missing behind the newest full snapshot.
	w.must(w.repo.RecordPrunedLog(t.Context(), repository.PrunedLog{Timeline: worldTimeline, Index: 50, Reason: "test", Created: worldStart}))
	for _, backup := range []string{All, Latest} {
		wantKinds(t, w.verify(Request{Backup: backup}), "gap log")
	}
	// But that of a timeline which was superseded goes whole.
	w.must(w.repo.Supersede(t.Context(), repository.Superseded{Timeline: worldTimeline, By: repository.TimelineID{ClusterID: 9, N: 1}, Created: worldStart}))
	wantKinds(t, w.verify(Request{}))
}

// A record that was altered, or moved to another name, excuses nothing.
func TestPrunedLogIsRead(t *testing.T) {
	for what, spoil := range map[string]func(w *world, name string){
		"altered": func(w *world, name string) { w.flip(name, 150) },
		"moved": func(w *world, name string) {
			other := repository.TimelineID{ClusterID: 9, N: 1}
			w.must(w.repo.RecordPrunedLog(w.Context(), repository.PrunedLog{Timeline: other, Index: 35, Reason: "test", Created: worldStart}))
			data := w.get(repository.PrunedLogName(other, 35))
			w.remove(repository.PrunedLogName(other, 35))
			w.remove(name)
			w.put(name, data)
		},
		"of a lower index": func(w *world, name string) {
			w.must(w.repo.RecordPrunedLog(w.Context(), repository.PrunedLog{Timeline: worldTimeline, Index: 5, Reason: "test", Created: worldStart}))
			data := w.get(repository.PrunedLogName(worldTimeline, 5))
			w.remove(name)
			w.put(name, data)
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := provenWorld(t)
			w.remove(l0(21))
			record := repository.PrunedLog{Timeline: worldTimeline, Index: 35, Reason: "test", Created: worldStart}
			w.must(w.repo.RecordPrunedLog(t.Context(), record))
			wantKinds(t, w.verify(Request{}))
			name := repository.PrunedLogName(worldTimeline, 35)
			spoil(w, name)
			wantKinds(t, w.verify(Request{}), "gap log", "mark "+name)
		})
	}
}

// Pins, and the records that log was pruned, are known, and looked at.
func TestRetentionDocuments(t *testing.T) {
	w := provenWorld(t)
	w.must(w.repo.WritePin(t.Context(), repository.Pin{Timeline: worldTimeline, Backup: oldBackup, Reason: "test", Created: worldStart}))
	w.must(w.repo.RecordPrunedLog(t.Context(), repository.PrunedLog{Timeline: worldTimeline, Index: 5, Reason: "test", Created: worldStart}))
	r := w.verify(Request{})
	wantKinds(t, r)
	if len(r.Notes) > 0 {
		t.Errorf("notes: %q", r.Notes)
	}
	for _, name := range []string{repository.PinName(worldTimeline, oldBackup), repository.PrunedLogName(worldTimeline, 5)} {
		w.flip(name, 150)
		wantKinds(t, w.verify(Request{}), "mark "+name)
		w.flip(name, 150)
	}
}
