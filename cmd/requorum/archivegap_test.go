package main

import (
	"testing"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/archive"
)

// A full snapshot covers a gap when the log goes on from it, and it is surely of
// the history behind the gap.
func TestSnapshotCoversGap(t *testing.T) {
	id := repository.TimelineID{ClusterID: 1, N: 1}
	found := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		timeline int
		index    uint64
		started  time.Time
		gap      archive.Gap
		want     bool
	}{
		"just before":                  {1, 40, found.Add(time.Second), archive.Gap{First: 41, Found: found}, true},
		"in the hole":                  {1, 39, found.Add(time.Second), archive.Gap{First: 41, Found: found}, false},
		"of another timeline":          {2, 50, found.Add(time.Second), archive.Gap{First: 41, Found: found}, false},
		"from before a restart":        {1, 50, found.Add(-time.Hour), archive.Gap{First: 4, Found: found}, false},
		"the first, whenever it began": {1, 50, found.Add(-time.Hour), archive.Gap{First: 1}, true},
	} {
		m := &snapshot.Manifest{Timeline: repository.TimelineID{ClusterID: 1, N: c.timeline}, Started: c.started}
		m.Facts.RaftIndex = c.index
		if got := covers(&snapshot.Catalog{Manifests: []*snapshot.Manifest{m}}, id, c.gap); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
