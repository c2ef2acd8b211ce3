package verify

import (
	"testing"

	"github.com/requorum/requorum/sinks/repository"
)

// A log that is let go is not missing, however far that has come, and whichever
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
	w.must(w.repo.RecordPrunedLog(t.Context(), repository.PrunedLog{Timeline: worldTimeline, Index: 50, Reason: "test", Created: worldStart}))
	wantKinds(t, w.verify(Request{}))
}

// Pins, and the records that log was let go, are known, and looked at.
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
