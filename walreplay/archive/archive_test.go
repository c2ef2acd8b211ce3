package archive

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
		require.NoError(t, a.stop())
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

// Once archives what was committed when it was called, though another archiver
// is the writer, and returns when that is durable.
func TestOnce(t *testing.T) {
	inFakeTime(t, 2, func(t *testing.T, r *rig) {
		r.cluster.commit(30, "x")
		a, err := New(r.config(0))
		require.NoError(t, err)
		began := time.Now()
		if err := a.Once(context.Background()); err != nil || time.Since(began) > 10*time.Second {
			t.Fatalf("%v after %s", err, time.Since(began))
		}
		r.sameAs(1, r.cluster.members[0].entries)
		b := r.start(1)
		for range 10 {
			r.load(3)
			committed := r.cluster.members[0].last()
			if err := a.Once(context.Background()); err != nil || a.State().Archived < committed {
				t.Fatalf("archived to %d of %d, %v", a.State().Archived, committed, err)
			}
		}
		r.waitArchived(b, r.cluster.members[0].last(), 20*time.Second)
		r.sameAs(1, r.cluster.members[0].entries)
		r.oneSpan()
		// And it says so when it cannot.
		r.gone.away.Store(true)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.ErrorIs(t, a.Once(ctx), context.DeadlineExceeded)
	})
}

// Full snapshots choose their timeline by how far the log goes.
func TestReached(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		r.archived(5)
		index, term, _, err := Reached(context.Background(), r.repo(), timelineN(1))
		if err != nil || index != 20 || term != 2 {
			t.Errorf("index %d, term %d, %v", index, term, err)
		}
		if index, _, _, err := Reached(context.Background(), r.repo(), timelineN(9)); err != nil || index != 0 {
			t.Errorf("index %d, %v", index, err)
		}
	})
}
