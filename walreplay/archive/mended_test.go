package archive

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// A hole that is found while the full snapshot for another is under way has a
// full snapshot called for as well.
func TestSecondGapHasItsSnapshot(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		m := r.cluster.members[0]
		a := r.purged()
		config := a.config
		var mu sync.Mutex
		var called []uint64
		config.OnGap = func(_ context.Context, g Gap) error {
			mu.Lock()
			called = append(called, g.First)
			mu.Unlock()
			time.Sleep(3 * time.Minute)
			return nil
		}
		b := r.startWith(config)
		r.load(10)
		r.waitArchived(b, 60, time.Minute)
		r.cluster.mu.Lock()
		next := m.last() + 21
		m.entries, m.first = nil, next // as by a leader's snapshot
		r.cluster.mu.Unlock()
		r.load(40)
		time.Sleep(10 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if len(called) != 2 || called[0] != 41 || called[1] != next {
			t.Errorf("called for %v, want 41 and %d", called, next)
		}
		if b.State().SnapshotDue != "" || b.has(AlarmGap) {
			t.Errorf("still due: %+v", b.State())
		}
	})
}

// OnGap is not called twice at once, whatever happens to the session.
func TestOnGapOnceAtATime(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		m := r.cluster.members[0]
		a := r.purged()
		var now, most, calls atomic.Int64
		config := a.config
		config.OnGap = func(context.Context, Gap) error {
			calls.Add(1)
			n := now.Add(1)
			most.Store(max(most.Load(), n))
			time.Sleep(5 * time.Minute)
			now.Add(-1)
			return nil
		}
		b := r.startWith(config)
		r.load(10)
		r.waitArchived(b, 60, time.Minute)
		time.Sleep(5 * time.Second)
		before := m.opened
		r.cluster.mu.Lock()
		m.version++
		m.lowest = m.last() // the log is told to be overwritten: the session ends
		r.cluster.mu.Unlock()
		r.load(60)
		time.Sleep(10 * time.Minute)
		if m.opened == before {
			t.Fatal("the session did not end")
		}
		if most.Load() != 1 || calls.Load() != 1 || b.State().SnapshotDue != "" {
			t.Errorf("called %d times, %d at once; due %q", calls.Load(), most.Load(), b.State().SnapshotDue)
		}
	})
}

// cutLog is a log whose first Poll ends behind a refused entry, with the
// overwrite still to be read.
type cutLog struct {
	*fakeLog
	polls    int
	refused  raftlog.Entry
	recorded uint64
}

func (l *cutLog) Poll(ctx context.Context) error {
	l.polls++
	if err := l.fakeLog.Poll(ctx); err != nil {
		return err
	}
	if l.polls == 1 {
		n := l.refused.Index - l.First()
		l.pending = append(l.pending[:n:n], l.refused)
	}
	return nil
}

func (l *cutLog) Full() bool       { return l.polls == 1 }
func (l *cutLog) Recorded() uint64 { return l.recorded }

// purged leaves an archive that ends with entry 20, and a first member whose log
// goes to entry 60 and begins with 41; its archiver was stopped in between.
func (r *rig) purged() *running {
	r.Helper()
	a := r.start(0)
	r.cluster.commit(max(0, 20-int(r.cluster.members[0].last())), "load")
	r.waitArchived(a, 20, 5*time.Second)
	a.stop()
	r.load(10)
	r.cluster.members[0].purge(40)
	return a
}

// holed leaves an archive of two members with a hole from 21 to 40, which the
// second one's log does not have.
func (r *rig) holed() *running {
	r.Helper()
	again := r.startWith(r.purged().config)
	r.load(5)
	r.waitArchived(again, 60, time.Minute)
	return again
}

// A hole is filled with what is committed alone: an entry that is overwritten
// further on in the log is none of it.
func TestFillTakesNothingRefused(t *testing.T) {
	inFakeTime(t, 2, func(t *testing.T, r *rig) {
		r.holed()
		m := r.cluster.members[1]
		var before segment.Header // the one before the hole: from there on the log is read
		for _, h := range r.openLog(1).Headers() {
			if h.LastIndex == 20 {
				before = h
			}
		}
		var used *cutLog
		r.start(1, func(c *Config) {
			c.open = func(from uint64) (Log, error) {
				l, err := m.open(from)
				if err != nil || from != before.FirstIndex {
					return l, err
				}
				used = &cutLog{fakeLog: l.(*fakeLog), refused: testEntry(30, 2, "refused"), recorded: 25}
				return used, nil
			}
		})
		r.waitFor("fill", time.Minute, func() bool { return len(r.openLog(1).Spans()) == 1 })
		if used == nil || used.polls < 2 {
			t.Fatal("no such log was read to fill the hole")
		}
		r.sameAs(1, m.entries)
	})
}

// A fill that was broken off is gone on with, and not all headers are read for
// it.
func TestFillGoesOn(t *testing.T) {
	inFakeTime(t, 2, func(t *testing.T, r *rig) {
		r.holed()
		m := r.cluster.members[1]
		var before raftlog.Sum
		for _, h := range r.openLog(1).Headers() {
			if h.LastIndex == 20 {
				before = h.After
			}
		}
		h, object, err := segment.Encode(t.Context(), timelineN(1), before, false, segment.Batch{Entries: m.entries[20:30]},
			segment.Meta{Member: 2, Cut: time.Now()}, segment.Options{Tool: "requorum test"})
		if err != nil {
			t.Fatal(err)
		}
		if err := segment.Put(t.Context(), r.memory, h, object); err != nil {
			t.Fatal(err)
		}
		r.start(1)
		r.waitFor("fill", time.Minute, func() bool { return len(r.openLog(1).Spans()) == 1 })
		r.sameAs(1, m.entries)
	})
}

// spoil changes a byte in an object.
func (r *rig) spoil(name string, offset int) {
	r.Helper()
	ctx := context.Background()
	rd, err := r.memory.Open(ctx, name, 0, -1)
	if err != nil {
		r.Fatal(err)
	}
	data, err := io.ReadAll(rd)
	if err != nil {
		r.Fatal(err)
	}
	if err := rd.Close(); err != nil {
		r.Fatal(err)
	}
	data = bytes.Clone(data)
	data[offset] ^= 1
	if err := r.memory.Delete(ctx, name); err != nil {
		r.Fatal(err)
	}
	if _, err := sinks.Put(ctx, r.memory, name, data, sinks.CreateOptions{}); err != nil {
		r.Fatal(err)
	}
}

// A damaged segment holds nobody up: what it held is archived again beside it,
// by its writer, or by another while that one follows.
func TestDamagedHeaderIsPassed(t *testing.T) {
	for _, members := range []int{1, 2} {
		inFakeTime(t, members, func(t *testing.T, r *rig) {
			a := r.start(0)
			r.load(5)
			r.waitArchived(a, 20, 5*time.Second)
			a.stop()
			headers := r.openLog(1).Headers()
			name := headers[len(headers)-1].Name()
			r.spoil(name, 100)
			all := []*running{r.startWith(a.config)}
			if members > 1 {
				all = append(all, r.start(1))
			}
			r.load(60)
			last := r.cluster.members[0].last()
			for _, b := range all {
				r.waitArchived(b, last, 2*time.Minute)
			}
			r.sameAs(1, r.cluster.members[0].entries)
			told := false
			for _, b := range all {
				for _, alarm := range b.State().Alarms {
					told = told || alarm.Alarm == AlarmDamaged && strings.Contains(alarm.Text, name)
				}
			}
			if !told {
				t.Errorf("no alarm names %s", name)
			}
		})
	}
}

// A member that is cut off does not know that nothing happens: its archiver
// writes no alive marks at the index where it stands.
func TestNoMarksOfAMemberCutOff(t *testing.T) {
	inFakeTime(t, 3, func(t *testing.T, r *rig) {
		a, b := r.start(0), r.start(1)
		r.load(10)
		r.waitArchived(a, 40, 10*time.Second)
		r.waitArchived(b, 40, 10*time.Second)
		r.cluster.mu.Lock()
		r.cluster.members[1].cutOff = true
		r.cluster.mu.Unlock()
		for range 600 {
			r.cluster.mu.Lock()
			for _, i := range []int{0, 2} {
				m := r.cluster.members[i]
				e := testEntry(m.last()+1, 2, "p")
				m.save(e)
				m.apply(e)
			}
			r.cluster.mu.Unlock()
			time.Sleep(time.Second)
		}
		low, high, err := r.openLog(1).At(context.Background(), time.Now().Add(-5*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if low == nil || high == nil || high.Index-low.Index > 1 {
			t.Errorf("between %+v and %+v", low, high)
		}
	})
}

// ownBranch asks a cluster of which only this member is left.
type ownBranch struct{ asked }

func (o ownBranch) Reached(context.Context, Identity) (Reach, error) {
	m := o.member
	m.cluster.mu.Lock()
	defer m.cluster.mu.Unlock()
	return Reach{Index: m.applied, Term: m.term}, nil
}

// Promise 6: of two branches that both go on, one that is idle is archived too:
// it does not wait for ever for what the other one has.
func TestPromise6IdleBranchIsKept(t *testing.T) {
	inFakeTime(t, 2, func(t *testing.T, r *rig) {
		m0, m1 := r.cluster.members[0], r.cluster.members[1]
		a := r.start(0, func(c *Config) { c.cluster = ownBranch{asked{m0}} })
		r.load(5)
		b := r.start(1, func(c *Config) { c.cluster = ownBranch{asked{m1}} })
		r.waitArchived(a, 20, 5*time.Second)
		r.waitArchived(b, 20, 15*time.Second)
		r.cluster.mu.Lock()
		for i := uint64(21); i <= 60; i++ {
			e := testEntry(i, 3, "left")
			m0.save(e)
			m0.apply(e)
		}
		for i := uint64(21); i <= 24; i++ {
			e := testEntry(i, 4, "right")
			m1.save(e)
			m1.apply(e)
		}
		r.cluster.mu.Unlock()
		r.waitFor("timeline 2", 2*time.Minute, func() bool { return b.State().Timeline.N == 2 })
		r.waitArchived(b, 24, time.Minute)
		r.sameAs(1, m0.entries)
		r.sameAs(2, m1.entries[20:])
	})
}

// A disk that was set back is told also where another member's archiver wrote.
func TestRolledBackFollower(t *testing.T) {
	inFakeTime(t, 3, func(t *testing.T, r *rig) {
		a := r.start(0)
		r.load(5)
		b := r.start(1)
		r.load(5)
		r.waitArchived(a, 40, 10*time.Second)
		r.waitArchived(b, 40, 10*time.Second)
		b.stop()
		r.cluster.mu.Lock()
		m := r.cluster.members[1]
		m.entries = m.entries[:20:20]
		m.version, m.lowest, m.applied = m.version+1, 21, 20
		r.cluster.mu.Unlock()
		b = r.startWith(b.config)
		r.waitFor("alarm", 30*time.Second, func() bool { return b.has(AlarmRolledBack) })
		r.cluster.catchUp(1, 0)
		r.load(5)
		r.waitFor("end of the alarm", 30*time.Second, func() bool { return !b.has(AlarmRolledBack) })
		if len(r.openLog(1).Spans()) != 1 || b.State().Timeline.N != 1 {
			t.Errorf("timeline %s", b.State().Timeline)
		}
	})
}
