package repository

import (
	"strings"
	"testing"
	"time"

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
	if err := ValidBackupID(id); err != nil {
		t.Error(err)
	}
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
		markerName, timelineName(timeline), SnapshotName(timeline, NewBackupID(time.Now()), false),
		SnapshotName(timeline, NewBackupID(time.Now()), true), ManifestName(timeline, NewBackupID(time.Now())),
		VerdictName(1), VerdictName(1<<64 - 1),
	}
	for _, a := range names {
		if err := sinks.ValidName(a); err != nil {
			t.Error(err)
		}
		for _, b := range names {
			if strings.HasPrefix(b, a+"/") {
				t.Errorf("%s is a folder of %s", a, b)
			}
		}
	}
}
