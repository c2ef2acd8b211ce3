package archive

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// slowLog is a log that is read a few entries at a time.
type slowLog struct{ *fakeLog }

func (l slowLog) Poll(ctx context.Context) error {
	err := l.fakeLog.Poll(ctx)
	l.pending = l.pending[:min(len(l.pending), 5)]
	return err
}

// marks are those of the archived log.
func (r *rig) marks() (all []raftlog.Mark) {
	r.Helper()
	l := r.openLog(1)
	for _, h := range l.Headers() {
		_, b, err := segment.Read(context.Background(), r.repo(), h.Name())
		require.NoError(r, err)
		all = append(all, b.Marks...)
	}
	for _, n := range l.Heartbeat() {
		a, err := segment.ReadMark(context.Background(), r.repo(), n)
		require.NoError(r, err)
		all = append(all, a.Mark)
	}
	return all
}

// An archiver that reads the log later than it was written writes no marks for
// what it catches up with: each mark says when its entry was the last one
// applied, and never when it was read.
func TestNoMarksForEntriesReadLate(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		m := r.cluster.members[0]
		r.cluster.commit(300, "old")
		applied := map[uint64]time.Time{300: time.Now()}
		m.recorded = 300
		a := r.start(0, func(c *Config) {
			c.open = func(from uint64) (Log, error) {
				l, err := m.open(from)
				if err != nil {
					return l, err
				}
				return slowLog{l.(*fakeLog)}, nil
			}
		})
		for range 30 { // while it catches up
			time.Sleep(700 * time.Millisecond)
			r.cluster.mu.Lock()
			m.recorded = m.last()
			r.cluster.mu.Unlock()
			r.cluster.commit(1, "live")
			applied[m.last()] = time.Now()
		}
		r.waitArchived(a, m.last(), time.Minute)
		marks := r.marks()
		if len(marks) == 0 {
			t.Fatal("no marks at all")
		}
		for _, mark := range marks {
			at, ok := applied[mark.Index]
			if !ok {
				t.Errorf("entry %d was read while catching up, and has a mark of %s", mark.Index, mark.Time)
				continue
			}
			if next, ok := applied[mark.Index+1]; mark.Time.Before(at) || ok && mark.Time.After(next) {
				t.Errorf("entry %d was the last one applied from %s to %s, its mark says %s", mark.Index, at, next, mark.Time)
			}
		}
	})
}

// A member that itself catches up, far behind what is committed, does not show
// when its entries were: it gives no marks.
func TestNoMarksOfAMemberThatCatchesUp(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		m := r.cluster.members[0]
		const committed, step = 10_000, 200
		r.cluster.commit(1, "old")
		a := r.start(0)
		r.waitArchived(a, 1, 10*time.Second)
		caughtUp := time.Now()
		r.cluster.mu.Lock()
		m.ahead = committed
		r.cluster.mu.Unlock()
		for m.last() < committed-1 {
			r.cluster.commit(min(step, int(committed-m.last())), "old")
			if m.last() < committed-lateEntries {
				caughtUp = time.Now()
			}
			time.Sleep(time.Second)
		}
		r.commits(10, 2)
		r.waitArchived(a, m.last(), 10*time.Second)
		live := 0
		for _, mark := range r.marks() {
			switch {
			case mark.Index > committed:
				live++
			case mark.Index > 1 && mark.Time.Before(caughtUp):
				t.Errorf("entry %d has a mark of %s, while the member caught up", mark.Index, mark.Time)
			}
		}
		if live < 5 {
			t.Errorf("%d marks of live entries", live)
		}
	})
}

// Recovery to a time on a quiet cluster: an entry now and then, and between two
// of them every moment is known to be the state after the former.
func TestMarksOfAQuietCluster(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.start(0)
		r.load(3)
		var written []time.Time
		for range 12 {
			time.Sleep(1400 * time.Millisecond)
			r.cluster.commit(1, "now and then")
			written = append(written, time.Now())
		}
		last := r.cluster.members[0].last()
		r.waitArchived(a, last, 5*time.Second)
		log := r.openLog(1)
		for i, at := range written[:len(written)-1] {
			index := last - uint64(len(written)-1-i)
			for _, after := range []time.Duration{300 * time.Millisecond, 700 * time.Millisecond} {
				low, high, err := log.At(t.Context(), at.Add(after))
				if err != nil || low == nil || high == nil {
					t.Fatal(low, high, err)
				}
				if low.Index != index || high.Index != index && high.Time.Sub(low.Time) > time.Second {
					t.Errorf("%s after entry %d: between index %d and %d, %s apart", after, index, low.Index, high.Index, high.Time.Sub(low.Time))
				}
			}
		}
	})
}

// What a member confirms goes on while nothing is written, and stands still
// while it sees no leader, is far behind, or does not answer (promise 4 of the
// design).
func TestConfirmedOfAQuietCluster(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.start(0)
		r.load(3)
		r.waitArchived(a, r.cluster.members[0].last(), 5*time.Second)
		time.Sleep(time.Minute)
		if s := a.State(); time.Since(s.Confirmed) > time.Second || s.Applied != r.cluster.members[0].last() {
			t.Errorf("quiet for a minute: applied %d, confirmed %s ago", s.Applied, time.Since(s.Confirmed))
		}
		for what, change := range map[string]func(m *fakeMember, on bool){
			"no leader":       func(m *fakeMember, on bool) { m.cutOff = on },
			"no answer":       func(m *fakeMember, on bool) { m.down = on },
			"a little behind": func(m *fakeMember, on bool) { m.ahead = map[bool]uint64{true: m.applied + 5}[on] },
			"far behind":      func(m *fakeMember, on bool) { m.ahead = map[bool]uint64{true: m.applied + 2*lateEntries}[on] },
		} {
			set := func(on bool) {
				r.cluster.mu.Lock()
				defer r.cluster.mu.Unlock()
				change(r.cluster.members[0], on)
			}
			set(true)
			time.Sleep(time.Minute)
			if since := time.Since(a.State().Confirmed); since < 59*time.Second {
				t.Errorf("%s for a minute: confirmed %s ago", what, since)
			}
			set(false)
			time.Sleep(2 * time.Second)
			if since := time.Since(a.State().Confirmed); since > 2*time.Second {
				t.Errorf("%s is over: confirmed %s ago", what, since)
			}
		}
	})
}

// A member under load always has something to apply. What was committed at one
// answer is applied at the next, and confirmed then.
func TestConfirmedUnderLoad(t *testing.T) {
	s := &session{}
	at := time.Now()
	for i := uint64(1); i <= 10; i++ {
		s.applied = 10 * i
		at = at.Add(time.Second)
		o := answer{at: at, took: time.Millisecond}
		o.status.AppliedIndex, o.status.RaftIndex, o.status.Leader = s.applied, s.applied+5, 1
		s.confirm(observe(o.status, o.at, o.took), o)
		want := at.Add(-time.Second - time.Millisecond)
		if i > 1 && !s.confirmed.Equal(want) {
			t.Errorf("answer %d: confirmed %s, want %s", i, s.confirmed, want)
		}
	}
	s.applied++ // of five: not what was committed at the last answer
	was := s.confirmed
	o := answer{at: at.Add(time.Second)}
	o.status.AppliedIndex, o.status.RaftIndex, o.status.Leader = s.applied, s.applied+5, 1
	s.confirm(observe(o.status, o.at, o.took), o)
	if s.confirmed != was {
		t.Error("entries that were committed and are not applied are confirmed")
	}
}

// Design, Canonical entries: a header says which revision is reached, never more
// than that. An answer's revision may be that of an entry that is being applied: the
// next answer's index bounds it, and the segment has to reach so far.
func TestRevisionIsReached(t *testing.T) {
	s := newSession(&Archiver{}, false)
	var entries []raftlog.Entry
	for i := uint64(1); i <= 30; i++ {
		entries = append(entries, testEntry(i, 1, "x"))
	}
	s.queue.add(entries, time.Now())
	for _, o := range []observation{{index: 10, revision: 14}, {index: 20, revision: 23}, {index: 20, revision: 24}, {index: 29, revision: 31}} {
		s.addHint([]observation{o})
	}
	for last, want := range map[int]int64{10: 0, 19: 0, 20: 23, 21: 23, 28: 23, 30: 24} {
		q := s.queue
		q.entries = entries[:last]
		if _, got := q.batch(MaxSize); got > want || got < want-10 {
			t.Errorf("a segment to entry %d is said to reach revision %d, want %d", last, got, want)
		}
	}
}

// Design, Marks: an answer that took long, or of a member that is cut off or far
// behind, does not show when its index was reached. It makes no mark, neither of
// its own nor as the last one before the index moved on.
func TestMarksOfPromptAnswersOnly(t *testing.T) {
	now := time.Now()
	for what, c := range map[string]struct {
		took  time.Duration
		late  bool
		marks int
	}{
		"prompt": {10 * time.Millisecond, false, 2},
		"slow":   {2 * time.Second, false, 0},
		"late":   {10 * time.Millisecond, true, 0},
	} {
		s := newSession(&Archiver{}, false)
		for i := range uint64(2) {
			s.addMarks([]observation{{index: 5 + i, term: 1, time: now.Add(time.Duration(i) * time.Second), took: c.took, late: c.late}})
		}
		if n := len(s.queue.marks); n != c.marks {
			t.Errorf("%s: %d marks, want %d", what, n, c.marks)
		}
	}
}

// A member that is cut off does not know that nothing happens: its archiver
// writes no alive marks at the index where it stands.
func TestNoMarksOfAMemberCutOff(t *testing.T) {
	inFakeTime(t, 3, func(t *testing.T, r *rig) {
		a, b := r.start(0), r.start(1)
		r.load(10)
		r.waitAll(40, 10*time.Second, a, b)
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
		require.NoError(t, err)
		if low == nil || high == nil || high.Index-low.Index > 1 {
			t.Errorf("between %+v and %+v", low, high)
		}
	})
}

// Marks are live observations: those that agreed with the log, in the segment
// that holds their entry. Entries that are read while catching up get none.
func TestMarks(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		m := r.cluster.members[0]
		r.cluster.commit(50, "old")
		m.recorded = 40
		times := map[uint64]time.Time{}
		a := r.start(0)
		time.Sleep(3 * time.Second)
		for range 20 {
			r.cluster.commit(3, "live")
			times[m.last()] = time.Now()
			time.Sleep(time.Second)
		}
		r.waitArchived(a, m.last(), 5*time.Second)
		marks := 0
		for _, mark := range r.marks() {
			marks++
			if mark.Index < 50 || mark.Member != 1 || mark.Term != 2 {
				t.Errorf("mark %+v", mark)
			}
			if at, ok := times[mark.Index]; ok && (mark.Time.Before(at) || mark.Time.Sub(at) > time.Second) {
				t.Errorf("entry %d was applied at %s, its mark says %s", mark.Index, at, mark.Time)
			}
		}
		if marks < 20 {
			t.Errorf("%d marks", marks)
		}
		// A header's revision is one that is reached by its last entry.
		for _, h := range r.openLog(1).Headers() {
			if h.Revision > int64(h.LastIndex)+1 {
				t.Errorf("segment to %d says revision %d", h.LastIndex, h.Revision)
			}
		}
		if a.State().ArchivedRevision < 100 {
			t.Errorf("archived revision %d", a.State().ArchivedRevision)
		}
	})
}

// An alive mark a minute while idle, so that the repository alone distinguishes a quiet
// cluster from a dead archiver; spooled while the repository is away.
func TestAliveMarks(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.start(0)
		r.cluster.commit(5, "x")
		r.waitArchived(a, 5, 5*time.Second)
		time.Sleep(5*time.Minute + 2*time.Second)
		first := r.openLog(1).Heartbeat()
		if len(first) < 4 || len(first) > 5 || first[0].Index != 5 || first[0].Member != 1 {
			t.Errorf("marks %+v", first)
		}
		r.gone.away.Store(true)
		time.Sleep(5 * time.Minute)
		if n := len(r.openLog(1).Heartbeat()); n != len(first) {
			t.Fatal("the repository is not away")
		}
		r.gone.away.Store(false)
		time.Sleep(time.Minute)
		all := r.openLog(1).Heartbeat()
		if len(all) < len(first)+5 {
			t.Errorf("%d marks, %d before the repository went away", len(all), len(first))
		}
		// Not one is lost, nor that whose put failed first; and none is written twice.
		for i, m := range all[1:] {
			if d := m.Time.Sub(all[i].Time); d < 55*time.Second || d > 65*time.Second {
				t.Errorf("%s between the marks at %s and %s", d, all[i].Time, m.Time)
			}
		}
	})
}

// While something happens, stored or not, there is a mark every few minutes at most, as the
// sign of life of an archiver that follows; none of a member that does not answer any more.
func TestFewAliveMarksUnderLoad(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.start(0)
		r.load(180)
		r.gone.away.Store(true)
		r.load(180)
		r.gone.away.Store(false)
		r.load(180)
		last := r.cluster.members[0].last()
		r.waitArchived(a, last, 30*time.Second)
		if marks := r.openLog(1).Heartbeat(); len(marks) == 0 || len(marks) > 540/300+1 {
			t.Errorf("marks under load: %+v", marks)
		}
		time.Sleep(3 * time.Minute)
		before := r.openLog(1).Heartbeat()
		if len(before) == 0 || before[len(before)-1].Index != last {
			t.Fatalf("marks of a quiet cluster: %+v", before)
		}
		r.cluster.mu.Lock()
		r.cluster.members[0].down = true
		r.cluster.mu.Unlock()
		time.Sleep(10 * time.Minute)
		if n := len(r.openLog(1).Heartbeat()); n > len(before)+1 {
			t.Errorf("%d marks of a member that is down", n-len(before))
		}
	})
}
