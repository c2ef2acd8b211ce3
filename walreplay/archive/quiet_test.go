package archive

import (
	"testing"
	"time"
)

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
