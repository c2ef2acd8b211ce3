package repository

import (
	"testing"
	"time"
)

// What may be deleted at any time is not locked: a pin, what jobs leave, marks and gaps of
// the log, segments that merged ones replace. All else is.
func TestLocked(t *testing.T) {
	id, at := TimelineID{7, 1}, time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	backup := "20260102T150405Z-3f9a2c"
	for want, names := range map[bool][]string{
		true: {
			MarkerName, TimelineName(id), SupersededName(id, 1), SupersededName(id, 2), ManifestName(id, backup), SnapshotName(id, backup, 1, true),
			AttachmentsName(id, backup, 1), VerdictName{Timeline: id, Backup: backup}.String(), SegmentName{Timeline: id, Level: 1, First: 1, Last: 9}.String(),
		},
		false: {
			PinName(id, backup), PrunedName(id, backup), JobName{Job: "full", Slot: SlotName(at)}.String(), JobName{Job: "full", Slot: SlotName(at), Kind: JobBegun, Attempt: 1}.String(),
			SegmentName{Timeline: id, First: 9, Previous: 1}.String(), GapName{Timeline: id, First: 1, Last: 2}.String(), MarkName{Timeline: id, Index: 9, Time: at}.String(),
		},
	} {
		for _, name := range names {
			if Locked(name) != want {
				t.Errorf("%s: locked is %t", name, !want)
			}
		}
	}
}
