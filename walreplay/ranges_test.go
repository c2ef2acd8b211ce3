package walreplay

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/snapshot"
)

// An archive without any full snapshot is one gap, and it says what is missing,
// whatever holes it has.
func TestRangesWithoutAFullSnapshot(t *testing.T) {
	w := story(t)
	w.bases = nil
	w.archive(2, 5, true)
	w.archive(8, 11, true, 11)
	got := w.history().ranges()
	if len(got) != 1 || !got[0].Gap || got[0].FirstIndex != 2 || got[0].LastIndex != 11 || !strings.Contains(got[0].Reason, "there is none yet") {
		t.Errorf("got %+v", got)
	}
}

// A full snapshot serves as long as no hole is between it and the log's end.
func TestUnbroken(t *testing.T) {
	w := story(t)
	w.bases = nil
	before, within, behind := w.backup(3), w.backup(7), w.backup(12)
	if h := w.history(); !h.Unbroken(before) {
		t.Error("broken without a log")
	}
	w.archive(2, 5, true)
	if h := w.history(); !h.Unbroken(before) || !h.Unbroken(within) {
		t.Error("broken without a hole")
	}
	w.archive(8, 11, true, 11)
	if h := w.history(); h.Unbroken(before) || !h.Unbroken(within) || !h.Unbroken(behind) {
		t.Errorf("before the hole %v, in it %v, after it %v", h.Unbroken(before), h.Unbroken(within), h.Unbroken(behind))
	}
}

// A synthetic snapshot, made long after its state, is no observation of the
// cluster: no point in time before it was made is taken for its state, and what can
// be restored does not end with it. Where it is the first one, points begin when
// a member was seen there.
func TestPromise2SyntheticIsNoObservation(t *testing.T) {
	w := story(t)
	w.bases = nil
	w.archive(2, 9, true, 4, 9)
	late := timeOf(9).Add(time.Hour)
	made := func(index uint64, seen time.Time) *snapshot.Manifest {
		_, facts := w.at(index)
		return &snapshot.Manifest{ID: "made", Timeline: w.id, Facts: facts, Started: late, Finished: late, Synthesis: &snapshot.Synthesis{Base: "b", Observed: seen}}
	}
	h, err := NewArchives(w.repo).History(t.Context(), &snapshot.Catalog{Manifests: []*snapshot.Manifest{made(9, time.Time{})}}, w.id)
	require.NoError(t, err)
	_, after, err := h.clock.around(t.Context(), late.Add(-time.Minute))
	if err != nil || after != nil {
		t.Errorf("a minute before it was made the cluster is taken to be at %v, %v", after, err)
	}
	if got := h.ranges(); len(got) != 2 || !got[1].From.IsZero() || !got[1].To.IsZero() {
		t.Errorf("without an observation: %+v", got)
	}
	seen, err := h.Observed(t.Context(), 4)
	if err != nil || !seen.Equal(timeOf(4)) {
		t.Errorf("entry 4 was seen at %s, %v", seen, err)
	}
	h, err = NewArchives(w.repo).History(t.Context(), &snapshot.Catalog{Manifests: []*snapshot.Manifest{made(4, seen)}}, w.id)
	require.NoError(t, err)
	if seen, err := h.Observed(t.Context(), 5); err != nil || !seen.IsZero() {
		t.Errorf("entry 5 was seen at %s, %v", seen, err)
	}
	got := h.ranges()
	if n := len(got); n == 0 || !got[n-1].From.Equal(timeOf(4)) || !got[n-1].To.Equal(timeOf(9)) || got[n-1].LastIndex != 9 {
		t.Errorf("with one: %+v", got)
	}
}
