package archive

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// A member purged what was not archived, and nobody else has it: after several
// takeover times the archive goes on with an anchor; the gap is recorded,
// reported, and a full snapshot is called for until it was taken.
func TestGap(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		m := r.cluster.members[0]
		r.cluster.commit(20, "load")
		before := m.entries
		a := r.purged()

		var calls atomic.Int64
		began := time.Now()
		var got atomic.Pointer[Gap]
		config := a.config
		config.OnGap = func(_ context.Context, g Gap) error {
			got.Store(&g)
			if calls.Add(1) < 3 {
				return errors.New("the member is busy")
			}
			return nil
		}
		b := r.startWith(config)
		r.load(10)
		if s := b.State(); s.Archived != 20 {
			t.Fatalf("archived to %d: the hole was not left to the others", s.Archived)
		}
		r.waitArchived(b, 60, time.Minute)
		if took := time.Since(began); took < 15*time.Second {
			t.Errorf("given up after %s", took)
		}
		if !b.has(AlarmGap) {
			t.Error("no alarm")
		}
		r.sameAs(1, before)
		r.sameAs(1, m.entries)
		gaps := r.openLog(1).Gaps()
		if len(gaps) != 1 || gaps[0].After != 20 || gaps[0].Next != 41 || gaps[0].Reason == "" {
			t.Errorf("gaps %+v", gaps)
		}
		r.waitFor("the full snapshot", 5*time.Minute, func() bool { return calls.Load() == 3 && !b.has(AlarmGap) })
		time.Sleep(time.Second)
		if g := got.Load(); g.First != 41 || g.Missing != 20 || b.State().SnapshotDue != "" || len(b.State().Gaps) != 1 {
			t.Errorf("%+v, %+v", g, b.State())
		}
		time.Sleep(5 * time.Minute)
		if calls.Load() != 3 {
			t.Errorf("called %d times", calls.Load())
		}
	})
}

// A hole is not final while another archiver may hold it: the one that has the
// entries stores them, and the other goes on behind.
func TestHoleIsLeftToTheOthers(t *testing.T) {
	inFakeTime(t, 2, func(t *testing.T, r *rig) {
		again := r.startWith(r.purged().config) // it wrote last, and has a hole
		time.Sleep(3 * time.Second)
		b := r.start(1)
		r.load(10)
		last := r.cluster.members[1].last()
		r.waitArchived(b, last, 30*time.Second)
		r.waitArchived(again, last, 30*time.Second)
		r.sameAs(1, r.cluster.members[1].entries)
		if n := len(r.openLog(1).Spans()); n != 1 || again.raised(AlarmGap) {
			t.Errorf("%d spans, events %+v", n, again.events)
		}
	})
}

// A member that got a leader's snapshot has a hole in the middle of its log,
// while it is being read.
func TestLeadersSnapshot(t *testing.T) {
	inFakeTime(t, 2, func(t *testing.T, r *rig) {
		a, b := r.start(0), r.start(1)
		r.load(5)
		r.waitArchived(a, 20, 10*time.Second)
		r.waitArchived(b, 20, 10*time.Second)
		first := a // the one whose member is fed by a snapshot
		lagging := r.cluster.members[0]
		lagging.down = true
		r.load(10)
		r.cluster.mu.Lock()
		other := r.cluster.members[1]
		lagging.entries, lagging.first = nil, other.last()+1
		lagging.down = false
		r.cluster.mu.Unlock()
		r.load(20)
		last := other.last()
		r.waitArchived(b, last, 20*time.Second)
		r.waitArchived(first, last, 20*time.Second)
		r.sameAs(1, other.entries)
		if first.raised(AlarmGap) {
			t.Errorf("events: %+v", first.events)
		}
	})
}

// A recorded gap is filled by a member that still has the entries: up to the
// first entry of the segment behind it, that one included.
func TestGapIsFilled(t *testing.T) {
	inFakeTime(t, 2, func(t *testing.T, r *rig) {
		r.holed()
		if n := len(r.openLog(1).Spans()); n != 2 {
			t.Fatalf("%d spans", n)
		}
		r.start(1) // the other member has everything
		r.waitFor("fill", time.Minute, func() bool { return len(r.openLog(1).Spans()) == 1 })
		r.sameAs(1, r.cluster.members[1].entries)
		joined := false
		for _, h := range r.openLog(1).Headers() {
			joined = joined || h.FirstIndex == 21 && h.LastIndex == 41 && !h.Anchor
		}
		if !joined {
			t.Errorf("no segment from 21 to 41: %+v", r.openLog(1).Headers())
		}
	})
}
