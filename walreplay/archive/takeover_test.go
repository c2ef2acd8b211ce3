package archive

import (
	"context"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// Design, Several writers: a follower attempts a put only when the archive is
// several intervals late, by its own monotonic clock. What was stored a moment ago
// is not late, however old the entries are that wait; and a wall clock that jumps
// makes nothing late, nor due.
func TestPromise4LateByTheMonotonicClock(t *testing.T) {
	ahead := time.Duration(0)
	a := &Archiver{config: Config{Interval: time.Second, Takeover: 5 * time.Second, Size: 1 << 20, Now: func() time.Time { return time.Now().Add(ahead) }}}
	s := newSession(a, false)
	s.id.MemberID = 8 // without a share of its own
	now := time.Now()
	at := func(waits, stored time.Duration) bool {
		s.queue = queue{}
		s.queue.add([]raftlog.Entry{testEntry(1, 1, "x")}, now.Add(-waits))
		s.advanced = now.Add(-stored)
		return s.late(now)
	}
	for _, c := range []struct {
		waits, stored time.Duration
		late          bool
	}{
		{time.Minute, time.Minute, true},
		{6 * time.Second, time.Minute, true},
		{2 * time.Second, time.Minute, false}, // two intervals
		{4 * time.Second, time.Minute, false},
		{time.Minute, 4 * time.Second, false}, // it is being caught up with
	} {
		for _, ahead = range []time.Duration{0, time.Hour, -time.Hour} {
			if got := at(c.waits, c.stored); got != c.late {
				t.Errorf("the oldest waits for %s, the last came %s ago, the clock is off by %s: late %t", c.waits, c.stored, ahead, got)
			}
			at(500*time.Millisecond, time.Minute)
			if s.cutDue(now) {
				t.Errorf("the clock is off by %s: a segment is due after half an interval", ahead)
			}
			at(time.Second, time.Minute)
			if !s.cutDue(now) {
				t.Errorf("the clock is off by %s: no segment is due after an interval", ahead)
			}
		}
	}
	if s.queue = (queue{}); s.late(now) {
		t.Error("late although nothing waits")
	}
}

// Followers that all wait for the same writer do not begin at the same moment.
func TestTakeoverTimesDiffer(t *testing.T) {
	c := Config{Takeover: 8 * time.Second}
	seen := map[time.Duration]uint64{}
	for member := range uint64(8) {
		d := c.takeoverOf(member)
		if other, is := seen[d]; is {
			t.Errorf("members %d and %d both take over after %s", other, member, d)
		}
		if seen[d] = member; d < c.Takeover || d >= 2*c.Takeover {
			t.Errorf("member %d takes over after %s", member, d)
		}
	}
}

// Design, Several writers: the writer is sticky. The one that wrote last goes on at
// once when it is started again, and the others begin as followers.
func TestPromise4StickyAfterARestart(t *testing.T) {
	inFakeTime(t, 2, func(t *testing.T, r *rig) {
		a := r.start(0)
		r.load(5)
		r.waitArchived(a, 20, 5*time.Second)
		b := r.start(1)
		for range 100 { // it is never seen as a writer
			time.Sleep(50 * time.Millisecond)
			if role := b.State().Role; role == Writer {
				t.Fatal("a second one begins as a writer")
			}
		}
		if role := b.State().Role; role != Follower {
			t.Fatalf("role %s", role)
		}
		a.stop()
		a = r.startWith(a.config)
		r.waitFor("the writer", time.Second, func() bool { return a.State().Role == Writer })
		r.cluster.commit(5, "x")
		r.waitArchived(a, r.cluster.members[0].last(), 3*time.Second) // less than a takeover takes
		for _, h := range r.openLog(1).Headers() {
			if h.Member != 1 {
				t.Errorf("%s is of member %d", h.Name(), h.Member)
			}
		}
	})
}

// Design, Canonical entries: a header stands outside the encryption and holds the
// chain's values, so that writers without an identity follow each other, take over,
// and go on after a restart, in one chain.
func TestPromise5WritersWithoutIdentity(t *testing.T) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	inFakeTime(t, 2, func(t *testing.T, r *rig) {
		sealed := func(c *Config) { c.Codec.Recipients = []age.Recipient{id.Recipient()} }
		a := r.start(0, sealed)
		r.cluster.commit(5, "x")
		r.waitArchived(a, 5, 10*time.Second) // it is the writer
		b := r.start(1, sealed)
		r.load(5)
		r.waitArchived(a, 25, 10*time.Second)
		r.waitArchived(b, 25, 10*time.Second)
		a.stop()
		r.load(15)
		r.waitArchived(b, r.cluster.members[0].last(), 30*time.Second)
		b.stop()
		a, b = r.startWith(a.config), r.startWith(b.config)
		r.load(5)
		last := r.cluster.members[0].last()
		r.waitArchived(a, last, 10*time.Second)
		r.waitArchived(b, last, 10*time.Second)
		writers := map[uint64]bool{}
		for i, h := range r.openLog(1).Headers() {
			if writers[uint64(h.Member)] = true; h.Anchor != (i == 0) || !h.Object.Encrypted() {
				t.Errorf("header %+v", h)
			}
		}
		if len(writers) != 2 || len(a.State().Gaps)+len(b.State().Gaps) > 0 || a.raised(AlarmRestarted) || b.raised(AlarmRestarted) {
			t.Errorf("writers %v, %+v, %+v", writers, a.State(), b.State())
		}
		if spans := r.openLog(1).Spans(); len(spans) != 1 || spans[0].LastIndex != last {
			t.Errorf("spans %+v", spans)
		}
		if _, err := r.repo().Timeline(context.Background(), timelineN(2)); err == nil {
			t.Error("a second timeline was opened")
		}
	})
}
