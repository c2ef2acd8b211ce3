package walreplay

import (
	"strings"
	"testing"
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
