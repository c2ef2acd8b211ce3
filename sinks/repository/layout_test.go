package repository

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
)

func TestTimelineID(t *testing.T) {
	id := TimelineID{0xcdf818194e3a8c32, 12}
	got, err := ParseTimelineID(id.String())
	if err != nil || got != id {
		t.Fatalf("got %v, %v; want %v", got, err, id)
	}
	for _, bad := range []string{"", "-", "cdf818194e3a8c32", "cdf818194e3a8c32-0", "cdf818194e3a8c32-01", "cdf818194e3a8c32-+1", "CDF818194E3A8C32-1", "df818194e3a8c32-1", "cdf818194e3a8c32-1/", "zzzzzzzzzzzzzzzz-1"} {
		if got, err := ParseTimelineID(bad); err == nil {
			t.Errorf("%q was read as %v", bad, got)
		}
	}
}

func TestBackupID(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.FixedZone("", 3600))
	id := NewBackupID(now)
	if !strings.HasPrefix(id, "20260102T140405Z-") {
		t.Errorf("%s does not start with the time in UTC", id)
	}
	require.NoError(t, ValidBackupID(id))
	for _, bad := range []string{"", "latest", "20260102T140405Z", "20260102T140405Z-", "20260102T140405Z-3F9A2C", "20260102T140405Z-3f9a2", "20261302T140405Z-3f9a2c"} {
		if ValidBackupID(bad) == nil {
			t.Errorf("%q is taken for an ID", bad)
		}
	}
}

// No object's name is a folder of another's: some stores cannot keep both.
func TestNamesAreValidAndNotNested(t *testing.T) {
	timeline := TimelineID{1, 1}
	names := []string{
		MarkerName, TimelineName(timeline), SnapshotName(timeline, NewBackupID(time.Now()), 1, false),
		SnapshotName(timeline, NewBackupID(time.Now()), 1, true), ManifestName(timeline, NewBackupID(time.Now())),
		SnapshotName(timeline, NewBackupID(time.Now()), 2, false), SnapshotName(timeline, NewBackupID(time.Now()), 3, true),
		VerdictName{Sequence: 1, Level: "none", Outcome: "passed"}.String(), VerdictName{Sequence: 1, Level: "none", Outcome: "passed", Timeline: timeline, Log: true}.String(),
	}
	for _, a := range names {
		require.NoError(t, sinks.ValidName(a))
		for _, b := range names {
			if strings.HasPrefix(b, a+"/") {
				t.Errorf("%s is a folder of %s", a, b)
			}
		}
	}
}

// Each attempt has its own name, which names it again, and no other spelling does.
func TestSnapshotNames(t *testing.T) {
	timeline, id := TimelineID{1, 2}, "20260102T010000Z-0a1b2c"
	folder := timeline.String() + "/full/" + id + "/"
	for _, c := range []struct {
		base      string
		attempt   int
		encrypted bool
	}{{"snapshot.zst", 1, false}, {"snapshot.zst.age", 1, true}, {"snapshot-2.zst", 2, false}, {"snapshot-12.zst.age", 12, true}} {
		if got := SnapshotName(timeline, id, c.attempt, c.encrypted); got != folder+c.base {
			t.Errorf("attempt %d is %s", c.attempt, got)
		}
		gotTimeline, gotID, attempt, encrypted, err := ParseSnapshotName(folder + c.base)
		if err != nil || gotTimeline != timeline || gotID != id || attempt != c.attempt || encrypted != c.encrypted {
			t.Errorf("%s is %v %s %d %v, %v", c.base, gotTimeline, gotID, attempt, encrypted, err)
		}
	}
	if SnapshotName(timeline, id, 1, true) != SnapshotName(timeline, id, 0, true) {
		t.Error("attempt 0 is not the first")
	}
	for _, bad := range []string{
		"snapshot", "snapshot-1.zst", "snapshot-0.zst", "snapshot--2.zst", "snapshot-02.zst", "snapshot-+2.zst", "snapshot2.zst", "snapshot-2",
		"snapshot-2.age", "snapshot-2.zst.age.age", "manifest.json", "x/snapshot.zst", "",
	} {
		if _, _, _, _, err := ParseSnapshotName(folder + bad); err == nil {
			t.Errorf("%q is taken for a snapshot's object", bad)
		}
	}
	for _, bad := range []string{"snapshot.zst", "x/full/" + id + "/snapshot.zst", timeline.String() + "/full/today/snapshot.zst", timeline.String() + "/l0/" + id + "/snapshot.zst"} {
		_, _, _, _, err := ParseSnapshotName(bad)
		require.Error(t, err, "%q is taken for a snapshot's object", bad)
	}
}

// What may be deleted at any time is not locked: a pin, what jobs leave, marks and gaps of
// the log, segments that merged ones replace. All else is.
func TestLocked(t *testing.T) {
	id, at := TimelineID{7, 1}, time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	backup := "20260102T150405Z-3f9a2c"
	for want, names := range map[bool][]string{
		true: {
			MarkerName, TimelineName(id), SupersededName(id, 1), SupersededName(id, 2), ManifestName(id, backup), SnapshotName(id, backup, 1, true),
			AttachmentName(id, backup, 1, "pki"), VerdictName{Sequence: 1, Level: "none", Outcome: "passed"}.String(), PrunedName(id, backup), PrunedLogName(id, 7), SegmentName{Timeline: id, Level: 1, First: 1, Last: 9}.String(),
		},
		false: {
			PinName(id, backup), JobResultName("full", SlotName(at)), JobFailedName("full", SlotName(at), 1), ClaimName("full", SlotName(at), 1), LeaseName(3),
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
