package archive

import (
	"strings"
	"testing"
	"time"

	"github.com/requorum/requorum/sinks/sinktest"
)

// The archive holds what was committed, segment by segment, and reads back as
// the member's log.
func TestArchive(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		r.cluster.commit(10, "before")
		a := r.start(0)
		r.waitArchived(a, 10, 5*time.Second)
		for range 20 {
			r.cluster.commit(5, "x")
			time.Sleep(300 * time.Millisecond)
		}
		r.waitArchived(a, 110, 3*time.Second)
		r.sameAs(1, r.cluster.members[0].entries)
		if s := a.State(); s.Role != Writer || s.Behind != 0 || len(s.Alarms) > 0 || s.LastError != "" {
			t.Errorf("state: %+v", s)
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
	})
}

// A segment is cut at the interval or at the size, whichever comes first.
func TestCutAtIntervalOrSize(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.start(0, func(c *Config) { c.Interval, c.Size = 10*time.Second, 2000 })
		r.cluster.commit(3, "x")
		time.Sleep(9 * time.Second)
		if got := a.State(); got.Archived != 0 || got.Queued == 0 {
			t.Fatalf("archived to %d before the interval was over", got.Archived)
		}
		r.waitArchived(a, 3, 2*time.Second)
		r.cluster.commit(2, strings.Repeat("long", 400))
		r.waitArchived(a, 4, time.Second) // the size is reached: no interval is waited for
	})
}

// The 1 s setting: from commit to durable within 1.5 s, all of them.
func TestDurableSoon(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		r.sink.Add(sinktest.Delay(sinktest.Commit, 1, 100*time.Millisecond).Always())
		a := r.start(0)
		time.Sleep(3 * time.Second)
		for range 50 {
			r.cluster.commit(7, "x")
			index, began := r.cluster.members[0].last(), time.Now()
			r.waitArchived(a, index, 1500*time.Millisecond)
			time.Sleep(time.Since(began) % (130 * time.Millisecond))
		}
	})
}
