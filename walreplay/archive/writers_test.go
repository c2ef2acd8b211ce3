package archive

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

func (r *rig) three() []*running { return []*running{r.start(0), r.start(1), r.start(2)} }

func writers(all []*running) (n, which int) {
	for i, a := range all {
		if a.State().Role == Writer {
			n, which = n+1, i
		}
	}
	return n, which
}

// Promise 4: one writes and the others follow; nobody lists in steady state,
// and the followers' only requests are small reads.
func TestPromise4OneWriterNoLists(t *testing.T) {
	inFakeTime(t, 3, func(t *testing.T, r *rig) {
		all := r.three()
		r.cluster.commit(10, "x")
		r.waitAll(10, 10*time.Second, all...)
		n, w := writers(all)
		if n != 1 {
			t.Fatalf("%d writers", n)
		}
		lists, creates := r.sink.Calls(sinktest.List), r.sink.Calls(sinktest.Create)
		r.commits(60, 10)
		r.waitAll(610, 4*time.Second, all...)
		if got := r.sink.Calls(sinktest.List); got != lists {
			t.Errorf("%d listings in steady state", got-lists)
		}
		if got := r.sink.Calls(sinktest.Create) - creates; got > 65 {
			t.Errorf("%d puts in 60 intervals", got)
		}
		for i, a := range all {
			s := a.State()
			if i != w && (s.Role != Follower || s.Requests.Gets > 200) || s.Behind > 3*time.Second {
				t.Errorf("archiver %d: %+v", i, s)
			}
		}
		if again, v := writers(all); again != 1 || v != w {
			t.Errorf("the writer changed: %d writers, %d and %d", again, w, v)
		}
		r.sameAs(1, r.cluster.members[0].entries)
	})
}

// Nothing is asked of the repository while nothing happens, but for a mark a
// minute.
func TestIdleIsCheap(t *testing.T) {
	inFakeTime(t, 3, func(t *testing.T, r *rig) {
		all := r.three()
		r.cluster.commit(10, "x")
		r.waitAll(10, 10*time.Second, all...)
		opens, creates, lists := r.sink.Calls(sinktest.Open), r.sink.Calls(sinktest.Create), r.sink.Calls(sinktest.List)
		asked := r.askedFirst()
		time.Sleep(10*time.Minute - time.Second)
		if n := r.askedFirst() - asked; n > 1210 || n < 1000 {
			t.Errorf("the member was asked %d times in ten minutes", n)
		}
		if got := r.sink.Calls(sinktest.Open) - opens; got > 3 {
			t.Errorf("%d reads", got)
		}
		if got := r.sink.Calls(sinktest.List) - lists; got != 0 {
			t.Errorf("%d listings", got)
		}
		if got := r.sink.Calls(sinktest.Create) - creates; got < 24 || got > 31 {
			t.Errorf("%d puts, want one mark a minute and member", got)
		}
	})
}

// Promise 4: followers take over when the writer's newest segment is several
// intervals late, one of them, and not before.
func TestPromise4Takeover(t *testing.T) {
	inFakeTime(t, 3, func(t *testing.T, r *rig) {
		all := r.three()
		r.cluster.commit(10, "x")
		r.waitAll(10, 10*time.Second, all...)
		_, w := writers(all)
		all[w].stop()
		began := time.Now()
		r.cluster.commit(10, "y")
		follower := all[(w+1)%3]
		r.waitFor("take over", 15*time.Second, func() bool { n, _ := writers(all); return n > 0 })
		if took := time.Since(began); took < 5*time.Second {
			t.Errorf("taken over after %s: the writer was not late yet", took)
		}
		r.waitArchived(follower, 20, 10*time.Second)
		r.commits(10, 3)
		r.waitArchived(all[(w+1)%3], 50, 5*time.Second)
		r.waitArchived(all[(w+2)%3], 50, 5*time.Second)
		if n, _ := writers(all); n != 1 {
			t.Errorf("%d writers", n)
		}
		r.sameAs(1, r.cluster.members[0].entries)
	})
}

// Promise 4: writers that race for one name. The loser reads the winner's
// header, finds its own entries in it, and goes on after its last index.
func TestPromise4RaceForOneName(t *testing.T) {
	inFakeTime(t, 3, func(t *testing.T, r *rig) {
		r.cluster.commit(10, "x")
		r.sink.Add(sinktest.Delay(sinktest.Commit, 1, 700*time.Millisecond).Of("/l0/"))
		all := r.three() // all see an empty archive, and put l0/1
		r.waitAll(10, 10*time.Second, all...)
		for i := range 30 {
			r.cluster.commit(1+i%3, "x")
			time.Sleep(200 * time.Millisecond)
		}
		want := r.cluster.members[0].entries
		r.waitAll(want[len(want)-1].Index, 10*time.Second, all...)
		if n, _ := writers(all); n != 1 {
			t.Errorf("%d writers", n)
		}
		r.oneSpan()
		r.sameAs(1, want)
	})
}

// A timeout may have been a success: what is there is read before deciding, and
// nothing is archived twice. What is not there is cut anew.
func TestLostAnswer(t *testing.T) {
	for name, fault := range map[string]sinktest.Fault{
		"uncertain":                sinktest.Lose(sinktest.Commit, 2, sinks.ErrUncertain),
		"timeout":                  sinktest.Lose(sinktest.Commit, 2, errAway),
		"uncertain and not stored": sinktest.Fail(sinktest.Commit, 2, sinks.ErrUncertain),
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, 1, func(t *testing.T, r *rig) {
				r.sink.Add(fault.Of("/l0/"))
				a := r.start(0)
				r.commits(10, 3)
				r.waitArchived(a, 30, 10*time.Second)
				r.sameAs(1, r.cluster.members[0].entries)
				entries := 0
				for _, h := range r.openLog(1).Headers() {
					entries += h.Entries
				}
				if entries != 30 || a.State().Role != Writer || a.has(AlarmRepository) {
					t.Errorf("%d entries in the archive of 30; %+v", entries, a.State())
				}
			})
		})
	}
}

// hungCommits remembers how long the last Commit took whose context ended.
type hungCommits struct {
	sinks.Sink
	took atomic.Int64
}

func (h *hungCommits) Create(ctx context.Context, name string, opts sinks.CreateOptions) (sinks.Writer, error) {
	w, err := h.Sink.Create(ctx, name, opts)
	return &hungCommit{w, h}, err
}

type hungCommit struct {
	sinks.Writer
	sink *hungCommits
}

func (w *hungCommit) Commit(ctx context.Context) (sinks.Object, error) {
	began := time.Now()
	o, err := w.Writer.Commit(ctx)
	if ctx.Err() != nil {
		w.sink.took.Store(int64(time.Since(began)))
	}
	return o, err
}

// A put is given up 60 s after its segment was cut: no late writer lands in a
// name that was freed. One from the spool, which was cut at any time, is given up 60 s
// after it was begun. Before the next put the archive is looked at.
func TestPutIsGivenUp(t *testing.T) {
	for _, spooled := range []bool{false, true} {
		t.Run(fmt.Sprintf("spooled=%t", spooled), func(t *testing.T) {
			inFakeTime(t, 1, func(t *testing.T, r *rig) {
				var hung hungCommits
				a := r.start(0, func(c *Config) { hung.Sink = c.Sink; c.Sink = &hung })
				r.cluster.commit(3, "x")
				r.waitArchived(a, 3, 5*time.Second)
				r.gone.away.Store(spooled)
				r.cluster.commit(3, "y")
				if spooled {
					time.Sleep(2 * time.Minute)
				}
				r.sink.Add(sinktest.Delay(sinktest.Commit, 1, time.Hour).Of("/l0/"))
				r.gone.away.Store(false)
				r.waitFor("the put", 20*time.Second, func() bool { return r.sink.Fired() == 1 })
				if (a.State().Spooled > 0) != spooled {
					t.Fatalf("state %+v", a.State())
				}
				opens := r.sink.Calls(sinktest.Open)
				time.Sleep(59 * time.Second)
				if s := a.State(); s.Archived != 3 || r.sink.Calls(sinktest.Open) != opens {
					t.Fatalf("archived to %d", s.Archived)
				}
				again := 5 * time.Second
				if spooled {
					again = 20 * time.Second // it may be tried again after 15 s
				}
				r.waitArchived(a, 6, again)
				if took := hung.took.Load(); took == 0 || took > int64(60*time.Second) {
					t.Errorf("the put was given up after %s", time.Duration(took))
				}
				// Once to see what became of it, once more to see where the archive stands.
				if n := r.sink.Calls(sinktest.Open) - opens; n < 2 {
					t.Errorf("the archive was read %d times before the next put", n)
				}
				r.sameAs(1, r.cluster.members[0].entries)
			})
		})
	}
}

// The late writer itself: an archiver whose put hangs while another one takes
// over finds its name taken, and its entries archived.
func TestLateWriter(t *testing.T) {
	inFakeTime(t, 3, func(t *testing.T, r *rig) {
		all := r.three()
		r.cluster.commit(10, "x")
		r.waitAll(10, 10*time.Second, all...)
		var n, w int
		r.waitFor("one writes", 10*time.Second, func() bool { n, w = writers(all); return n == 1 })
		name := repository.SegmentName{Timeline: timelineN(1), First: 11}.String()
		r.sink.Add(sinktest.Delay(sinktest.Commit, 1, 40*time.Second).Of(name))
		r.commits(60, 1)
		r.waitAll(70, 10*time.Second, all...)
		if n, v := writers(all); n != 1 || v == w {
			t.Errorf("%d writers, %d was late and %d writes", n, w, v)
		}
		r.sameAs(1, r.cluster.members[0].entries)
		r.oneSpan()
	})
}

// A member that lags follows the archive when it is back, and finds what it
// missed archived by the others.
func TestLaggingMemberFollows(t *testing.T) {
	inFakeTime(t, 3, func(t *testing.T, r *rig) {
		all := r.three()
		r.cluster.commit(10, "x")
		r.waitAll(10, 10*time.Second, all...)
		_, w := writers(all)
		lag := (w + 1) % 3
		r.cluster.members[lag].down = true
		r.commits(30, 3)
		if !all[lag].has(AlarmMember) {
			t.Error("no alarm about a member that does not answer")
		}
		r.cluster.members[lag].down = false
		r.cluster.catchUp(lag, w)
		r.waitAll(100, 10*time.Second, all...)
		if all[lag].has(AlarmMember) || all[lag].raised(AlarmTimeline) {
			t.Errorf("alarms: %+v", all[lag].State().Alarms)
		}
	})
}

func logNames(names []string) (found []string) {
	for _, n := range names {
		if strings.Contains(n, "/l0/") {
			found = append(found, n)
		}
	}
	return found
}

// Names are those that the layout says: a conditional put on them decides.
func TestNames(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.start(0)
		r.cluster.commit(3, "x")
		r.waitArchived(a, 3, 5*time.Second)
		r.cluster.commit(3, "x")
		r.waitArchived(a, 6, 5*time.Second)
		got := fmt.Sprint(logNames(r.names()))
		if want := fmt.Sprintf("[%016x-1/l0/%016x %016x-1/l0/%016x-%016x]", testCluster, 1, testCluster, 4, 1); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// Before it takes over, a follower lists once: the archive may go on under a
// name that it did not look for.
func TestListBeforeTakeover(t *testing.T) {
	inFakeTime(t, 2, func(t *testing.T, r *rig) {
		a, b := r.start(0), r.start(1)
		r.cluster.commit(10, "x")
		r.waitAll(10, 10*time.Second, a, b)
		if a.State().Role == Follower {
			a, b = b, a
		}
		a.stop()
		r.cluster.commit(10, "y")
		// What another archiver's spool gave: it overlaps.
		entries := r.cluster.members[0].entries
		var before raftlog.Sum
		for _, e := range entries[:5] {
			before = before.Next(e)
		}
		h, object, err := segment.Encode(t.Context(), timelineN(1), before, false, segment.Batch{Entries: entries[5:20]}, segment.Meta{Member: 7, Cut: time.Now()}, segment.Options{})
		require.NoError(t, err)
		require.NoError(t, segment.Put(t.Context(), r.repo(), h, object))
		r.waitArchived(b, 20, 30*time.Second)
		r.load(5)
		r.waitArchived(b, 40, 30*time.Second)
		for _, h := range r.openLog(1).Headers() {
			if h.FirstIndex == 11 {
				t.Errorf("archived twice: %d to %d", h.FirstIndex, h.LastIndex)
			}
		}
		r.sameAs(1, r.cluster.members[0].entries)
	})
}

// askedFirst is how often the first member was asked for its status.
func (r *rig) askedFirst() int {
	r.cluster.mu.Lock()
	defer r.cluster.mu.Unlock()
	return r.cluster.members[0].asked
}

// spoil changes a byte in an object.
func (r *rig) spoil(name string, offset int) {
	r.Helper()
	ctx := context.Background()
	rd, err := r.memory.Open(ctx, name, 0, -1)
	require.NoError(r, err)
	data, err := io.ReadAll(rd)
	require.NoError(r, err)
	require.NoError(r, rd.Close())
	data = bytes.Clone(data)
	data[offset] ^= 1
	require.NoError(r, r.memory.Delete(ctx, name))
	_, err = sinks.Put(ctx, r.memory, name, data, sinks.CreateOptions{})
	require.NoError(r, err)
}

// A damaged segment holds nobody up: what it held is archived again beside it,
// by its writer, or by another while that one follows.
func TestDamagedHeaderIsPassed(t *testing.T) {
	for _, members := range []int{1, 2} {
		inFakeTime(t, members, func(t *testing.T, r *rig) {
			a := r.archived(5)
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
			named := false
			for _, b := range all {
				for _, alarm := range b.State().Alarms {
					named = named || alarm.Alarm == AlarmDamaged && strings.Contains(alarm.Text, name)
				}
			}
			if !named {
				t.Errorf("no alarm names %s", name)
			}
		})
	}
}

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
		a := r.archived(5)
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
	require.NoError(t, err)
	inFakeTime(t, 2, func(t *testing.T, r *rig) {
		sealed := func(c *Config) { c.Codec.Recipients = []age.Recipient{id.Recipient()} }
		a := r.start(0, sealed)
		r.cluster.commit(5, "x")
		r.waitArchived(a, 5, 10*time.Second) // it is the writer
		b := r.start(1, sealed)
		r.load(5)
		r.waitAll(25, 10*time.Second, a, b)
		a.stop()
		r.load(15)
		r.waitArchived(b, r.cluster.members[0].last(), 30*time.Second)
		b.stop()
		a, b = r.startWith(a.config), r.startWith(b.config)
		r.load(5)
		last := r.cluster.members[0].last()
		r.waitAll(last, 10*time.Second, a, b)
		writers := map[uint64]bool{}
		for i, h := range r.openLog(1).Headers() {
			if writers[uint64(h.Member)] = true; h.ChainStart != (i == 0) || !h.Object.Encrypted() {
				t.Errorf("header %+v", h)
			}
		}
		if len(writers) != 2 || len(a.State().Gaps)+len(b.State().Gaps) > 0 || a.raised(AlarmRestarted) || b.raised(AlarmRestarted) {
			t.Errorf("writers %v, %+v, %+v", writers, a.State(), b.State())
		}
		if spans := r.openLog(1).Coverage(); len(spans) != 1 || spans[0].LastIndex != last {
			t.Errorf("spans %+v", spans)
		}
		_, err := r.repo().Timeline(context.Background(), timelineN(2))
		require.Error(t, err, "a second timeline was opened")
	})
}
