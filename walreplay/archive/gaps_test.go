package archive

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/segment"
)

// full stores the manifest of a full snapshot of timeline 1 at an index.
func (r *rig) full(index, term uint64, codecs ...string) {
	r.Helper()
	ctx := context.Background()
	id := repository.NewBackupID(time.Now())
	m := snapshot.Manifest{Format: 1, Kind: snapshot.KindFull, ID: id, Timeline: timelineN(1), Started: time.Now(), Finished: time.Now()}
	m.Object.Name, m.Object.StoredSize = repository.SnapshotName(timelineN(1), id, 1, len(codecs) > 0), 2
	m.Object.Codecs = codecs
	_, err := sinks.Put(ctx, r.memory, m.Object.Name, []byte("db"), sinks.CreateOptions{})
	require.NoError(r, err)
	m.Facts.RaftIndex, m.Facts.RaftTerm = index, term
	require.NoError(r, r.repo().WriteDocument(ctx, repository.ManifestName(timelineN(1), id), m))
}

// ranges are what `requorum list` shows.
func (r *rig) ranges() []walreplay.Range {
	r.Helper()
	ctx := context.Background()
	inventory, err := walreplay.ReadInventory(ctx, r.repo())
	require.NoError(r, err)
	ranges, err := inventory.Ranges(ctx)
	require.NoError(r, err)
	return ranges
}

// recoverable are the ranges less the gaps.
func (r *rig) recoverable() []walreplay.Range {
	r.Helper()
	return slices.DeleteFunc(r.ranges(), func(one walreplay.Range) bool { return one.Gap })
}

// whole says that all from the oldest full snapshot to the end can be restored.
func (r *rig) whole() bool {
	r.Helper()
	ranges := r.recoverable()
	return len(ranges) == 1 && ranges[0].LastIndex >= r.cluster.members[0].last()
}

// holding is the header of a stored segment that holds an entry.
func (r *rig) holding(index uint64) segment.Header {
	r.Helper()
	headers := r.openLog(1).Headers()
	i := slices.IndexFunc(headers, func(h segment.Header) bool { return h.Holds(index) })
	if i < 0 {
		r.Fatalf("no segment holds entry %d", index)
	}
	return headers[i]
}

// cutShort takes the end of an object away.
func (r *rig) cutShort(name string) {
	r.Helper()
	o, err := r.memory.Stat(r.Context(), name)
	require.NoError(r, err)
	data, err := sinks.Get(r.Context(), r.memory, name, o.Size)
	require.NoError(r, err)
	require.NoError(r, r.memory.Delete(r.Context(), name))
	_, err = sinks.Put(r.Context(), r.memory, name, data[:len(data)-10], sinks.CreateOptions{})
	require.NoError(r, err)
}

// lose takes a stored segment away that holds an entry, and says what it held.
func (r *rig) lose(index uint64) (first, last uint64) {
	r.Helper()
	h := r.holding(index)
	require.NoError(r, r.memory.Delete(context.Background(), h.Name()))
	return h.FirstIndex, h.LastIndex
}

// taking has the full snapshots taken that are due.
func (r *rig) taking(calls *atomic.Int64) func(*Config) {
	m := r.cluster.members[0]
	return func(c *Config) {
		c.OnGap = func(context.Context, Gap) error {
			calls.Add(1)
			r.cluster.mu.Lock()
			index, term := m.applied, m.term
			r.cluster.mu.Unlock()
			r.full(index, term)
			return nil
		}
	}
}

// gaps are the gap records.
func (r *rig) gaps() []repository.GapName {
	r.Helper()
	names, err := r.repo().Gaps(context.Background(), timelineN(1))
	require.NoError(r, err)
	return names
}

// Promise 2: an object that somebody deleted, that was damaged or lost is found, at
// the start and while archivers run. Until there is a full snapshot, which is taken
// at once, nobody claims that the end of the archive can be restored; the gap is
// recorded, and the listing says why it is there.
func TestPromise2LostSegment(t *testing.T) {
	deleted := func(r *rig, name string) {
		require.NoError(r, r.memory.Delete(r.Context(), name))
	}
	for name, c := range map[string]struct {
		live bool
		lose func(r *rig, name string)
	}{
		"deleted":                 {false, deleted},
		"deleted while it runs":   {true, deleted},
		"damaged":                 {false, func(r *rig, name string) { r.spoil(name, 100) }},
		"cut short":               {false, (*rig).cutShort},
		"cut short while it runs": {true, (*rig).cutShort},
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, 1, func(t *testing.T, r *rig) {
				var calls atomic.Int64
				fails := atomic.Bool{}
				fails.Store(true)
				take := func(c *Config) {
					r.taking(&calls)(c)
					taken := c.OnGap
					c.OnGap = func(ctx context.Context, g Gap) error {
						if fails.Load() {
							return errors.New("no space")
						}
						return taken(ctx, g)
					}
				}
				a := r.archived(3, take)
				r.full(2, 2)
				r.load(10)
				r.waitArchived(a, 52, 10*time.Second)
				if !c.live {
					a.stop()
				}
				lost := r.holding(30)
				c.lose(r, lost.Name())
				if !c.live {
					a = r.startWith(a.config)
				}
				r.waitFor("the alarm", searchEvery+time.Minute, func() bool { return a.has(AlarmGap) })
				time.Sleep(6 * time.Second)
				first := lost.FirstIndex
				if s := a.State(); s.SnapshotDue == "" || s.Recoverable != first-1 || s.Archived != 52 || s.BehindEntries != 52-first+1 || s.Behind < 5*time.Second {
					t.Errorf("state %+v", s)
				}
				// It is due for the next process as well.
				a.stop()
				a = r.startWith(a.config)
				r.waitFor("the alarm", time.Minute, func() bool { return a.has(AlarmGap) })
				fails.Store(false)
				r.waitFor("the full snapshot", 2*time.Minute, func() bool { return calls.Load() > 0 && !a.has(AlarmGap) })
				time.Sleep(time.Second)
				gaps := r.gaps()
				if len(gaps) != 1 || gaps[0].First != first || gaps[0].Last != lost.LastIndex {
					t.Errorf("gaps %+v, want %d to %d", gaps, first, lost.LastIndex)
				}
				if s := a.State(); s.SnapshotDue != "" || s.Recoverable != s.Archived {
					t.Errorf("state %+v", s)
				}
				shown := r.ranges()
				if n := len(shown); n < 3 || shown[n-1].Gap || shown[n-1].LastIndex != 52 || !shown[n-2].Gap || !strings.Contains(shown[n-2].Reason, "deleted or lost") && !strings.Contains(shown[n-2].Reason, "is damaged") {
					t.Errorf("ranges %+v", shown)
				}
				// Once is enough: neither a later look nor a restart begins anew.
				time.Sleep(searchEvery + time.Minute)
				a.stop()
				b := r.startWith(a.config)
				r.load(3)
				time.Sleep(time.Minute)
				if calls.Load() != 1 || b.raised(AlarmGap) || len(r.gaps()) != 1 {
					t.Errorf("%d snapshots, events %+v", calls.Load(), b.events)
				}
			})
		})
	}
}

// Before the newest full snapshot a lost segment harms old points only: no alarm is
// raised, and no full snapshot is taken for it, unless that one is lost as well.
func TestLostBeforeTheFullSnapshot(t *testing.T) {
	for _, also := range []bool{false, true} {
		inFakeTime(t, 1, func(t *testing.T, r *rig) {
			var calls atomic.Int64
			a := r.archived(13, r.taking(&calls))
			a.stop()
			r.full(45, 2)
			lost := r.holding(30)
			r.lose(30)
			if also {
				for _, name := range r.names() {
					if strings.Contains(name, "/full") && !strings.HasSuffix(name, ".json") {
						require.NoError(t, r.memory.Delete(t.Context(), name))
					}
				}
			}
			b := r.startWith(a.config)
			time.Sleep(time.Minute)
			if also != (calls.Load() == 1) || also != b.raised(AlarmGap) || lost.LastIndex >= 45 {
				t.Errorf("%d snapshots, events %+v", calls.Load(), b.events)
			}
		})
	}
}

// What is lost begins before a full snapshot and ends behind it, or nothing is left
// before it: what can be restored ends with that snapshot.
func TestLostAroundAFullSnapshot(t *testing.T) {
	for name, c := range map[string]struct {
		full uint64
		lose []uint64
	}{"begins before it": {30, []uint64{30}}, "begins after it": {20, []uint64{30, 10}}} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, 1, func(t *testing.T, r *rig) {
				var calls atomic.Int64
				a := r.start(0, r.taking(&calls))
				for range 3 {
					r.cluster.commit(20, "x")
					r.waitArchived(a, r.cluster.members[0].last(), 10*time.Second)
				}
				a.stop()
				r.full(c.full, 2)
				for _, index := range c.lose {
					r.lose(index)
				}
				off := r.startWith(a.config, func(c *Config) { c.OnGap = func(context.Context, Gap) error { return errors.New("no") } })
				r.waitFor("the alarm", time.Minute, func() bool { return off.has(AlarmGap) })
				time.Sleep(time.Second)
				if s := off.State(); s.Recoverable != c.full {
					t.Errorf("state %+v", s)
				}
				off.stop()
				b := r.startWith(a.config)
				r.waitFor("the full snapshot", time.Minute, func() bool { return calls.Load() == 1 && !b.has(AlarmGap) })
				r.cluster.commit(20, "x")
				r.waitArchived(b, 80, 10*time.Second)
				if all := r.recoverable(); len(all) != 2 || all[1].LastIndex != 80 {
					t.Errorf("recoverable %+v", all)
				}
				r.sameAs(1, r.cluster.members[0].entries[40:])
			})
		})
	}
}

// Of several gaps the first one bounds what can be restored until there is a full
// snapshot, and each calls for one that is there to stay.
func TestSeveralGaps(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		var calls atomic.Int64
		a := r.archived(20, r.taking(&calls))
		a.stop()
		r.full(2, 2)
		first, _ := r.lose(20)
		r.lose(40)
		off := r.startWith(a.config, func(c *Config) { c.OnGap = func(context.Context, Gap) error { return errors.New("no") } })
		r.waitFor("the records", time.Minute, func() bool { return len(r.gaps()) == 2 })
		time.Sleep(time.Second)
		if s := off.State(); s.Recoverable != first-1 || s.SnapshotDue == "" || len(s.Gaps) != 2 {
			t.Fatalf("state %+v, want %d to be recoverable", s, first-1)
		}
		off.stop()
		a = r.startWith(a.config)
		r.waitFor("the full snapshot", 2*time.Minute, func() bool { return a.State().Recoverable == 80 && a.State().SnapshotDue == "" && !a.has(AlarmGap) })
		// It is lost in turn.
		taken := calls.Load()
		for _, name := range r.names() {
			if strings.Contains(name, "/full/") {
				require.NoError(t, r.memory.Delete(t.Context(), name))
			}
		}
		r.full(2, 2)
		r.waitFor("another full snapshot", 2*searchEvery, func() bool { return calls.Load() > taken })
	})
}

// Once has the full snapshot taken that a gap asks for, and leaves no alarm.
func TestOnceWithAGap(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		var calls atomic.Int64
		config := r.config(0)
		r.taking(&calls)(&config)
		a, err := New(config)
		require.NoError(t, err)
		for range 3 {
			r.cluster.commit(20, "x")
			require.NoError(t, a.Once(t.Context()))
		}
		r.full(2, 2)
		r.lose(30)
		require.NoError(t, a.Once(t.Context()))
		if len(r.gaps()) != 1 || calls.Load() != 1 || len(a.State().Alarms) > 0 {
			t.Errorf("gaps %+v, %d snapshots, alarms %+v", r.gaps(), calls.Load(), a.State().Alarms)
		}
	})
}

// The end of the archive is lost while nothing happens: there is no gap yet,
// and what is missing is archived anew.
func TestLostEnd(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		r.archived(13)
		r.full(2, 2)
		r.lose(52)
		time.Sleep(searchEvery + 2*time.Minute)
		if !r.whole() {
			t.Errorf("ranges %+v", r.ranges())
		}
		r.sameAs(1, r.cluster.members[0].entries)
	})
}

// Looking through the archive is cheap: a few listings an hour, and no header is
// read that this archiver has stored or met.
func TestLookingIsCheap(t *testing.T) {
	inFakeTime(t, 2, func(t *testing.T, r *rig) {
		a, b := r.start(0), r.start(1)
		r.load(1)
		r.full(1, 2)
		for range 5 {
			r.load(60)
			time.Sleep(5 * time.Minute)
		}
		opens, lists := r.sink.Calls(sinktest.Open), r.sink.Calls(sinktest.List)
		checked := [2]time.Time{a.State().Checked, b.State().Checked}
		time.Sleep(searchEvery)
		if s, u := a.State(), b.State(); !s.Checked.After(checked[0]) || !u.Checked.After(checked[1]) {
			t.Fatalf("not looked: %s, %s", s.Checked, u.Checked)
		}
		// For each: the manifest, whether the timeline is superseded, and a header now and then.
		if n := r.sink.Calls(sinktest.Open) - opens; n > 2*(2+7) {
			t.Errorf("%d reads in an hour", n)
		}
		if n := r.sink.Calls(sinktest.List) - lists; n > 2*6 {
			t.Errorf("%d listings in an hour", n)
		}
	})
}

// Without a full snapshot nothing can be restored, and the state says so; who
// has seen one come need not wait an hour for that to end.
func TestNothingIsRecoverableWithoutAFullSnapshot(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		r.load(20)
		a := r.start(0, func(c *Config) { c.OnGap = nil })
		r.waitArchived(a, 20, time.Minute)
		time.Sleep(time.Minute)
		if s := a.State(); s.Recoverable != 0 || s.BehindEntries == 0 {
			t.Errorf("without a full snapshot: %+v, recoverable to %d, %d entries behind", s, s.Recoverable, s.BehindEntries)
		}
		r.full(10, 1)
		a.LookAgain()
		time.Sleep(time.Minute)
		if s := a.State(); s.Recoverable != s.Archived || s.BehindEntries != 0 {
			t.Errorf("with one: %+v, recoverable to %d of %d", s, s.Recoverable, s.Archived)
		}
	})
}

// A member purged what was not archived, and nobody else has it: after several
// takeover times the archive goes on with a chain start; the gap is recorded,
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
			t.Fatalf("archived to %d: the gap was not left to the others", s.Archived)
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

// A gap is not final while another archiver may hold it: the one that has the
// entries stores them, and the other goes on behind.
func TestGapIsLeftToTheOthers(t *testing.T) {
	inFakeTime(t, 2, func(t *testing.T, r *rig) {
		again := r.startWith(r.purged().config) // it wrote last, and has a gap
		time.Sleep(3 * time.Second)
		b := r.start(1)
		r.load(10)
		last := r.cluster.members[1].last()
		r.waitAll(last, 30*time.Second, b, again)
		r.sameAs(1, r.cluster.members[1].entries)
		r.oneSpan()
		require.False(t, again.raised(AlarmGap))
	})
}

// A member that got a leader's snapshot has a gap in the middle of its log,
// while it is being read.
func TestLeadersSnapshot(t *testing.T) {
	inFakeTime(t, 2, func(t *testing.T, r *rig) {
		a, b := r.start(0), r.start(1)
		r.load(5)
		r.waitAll(20, 10*time.Second, a, b)
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
		r.waitAll(last, 20*time.Second, b, first)
		r.sameAs(1, other.entries)
		if first.raised(AlarmGap) {
			t.Errorf("events: %+v", first.events)
		}
	})
}

// Promise 2: the repository is away for so long that the spool and the memory are full
// and the member purges what was not read. All that was kept is stored; what was not
// is a recorded gap, which the listing shows, and a full snapshot is taken at once.
func TestSpoolOverflow(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		var calls atomic.Int64
		a := r.archived(5, r.taking(&calls), func(c *Config) { c.SpoolLimit = 4 << 20 })
		r.full(2, 2)
		r.gone.away.Store(true)
		m := r.cluster.members[0]
		random := rand.NewChaCha8([32]byte{})
		for range 60 {
			e := testEntry(m.last()+1, 2, "large")
			e.Data = make([]byte, 1<<20)
			_, err := random.Read(e.Data)
			require.NoError(t, err)
			r.cluster.mu.Lock()
			m.save(e)
			m.apply(e)
			r.cluster.mu.Unlock()
			time.Sleep(time.Second)
		}
		s := a.State()
		if !a.has(AlarmSpoolFull) || s.Queued > queueLimit+2<<20 || s.Spooled > 4<<20 || s.Released >= 75 {
			t.Fatalf("state %+v", s)
		}
		kept := s.Released
		m.purge(75)
		r.gone.away.Store(false)
		back := time.Now()
		r.waitFor("the full snapshot", time.Minute, func() bool { return calls.Load() == 1 })
		if took := time.Since(back); took > 15*time.Second+gapTakeovers*a.config.Takeover*9/8 {
			t.Errorf("taken %s after the repository was back", took)
		}
		r.load(3)
		r.waitArchived(a, m.last(), 10*time.Second)
		r.allThere(kept)
		gaps, shown := r.gaps(), r.ranges()
		if len(gaps) != 1 || gaps[0].First != kept+1 || gaps[0].Last != 75 {
			t.Errorf("recorded %+v, want %d to 75", gaps, kept+1)
		}
		if n := len(shown); n < 3 || shown[n-1].Gap || shown[n-1].LastIndex != m.last() || !shown[n-2].Gap || !strings.Contains(shown[n-2].Reason, "in no log that an archiver could read") {
			t.Errorf("ranges %+v", shown)
		}
	})
}

// A gap that is found while the full snapshot for another is under way has a
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
		m.lowest = m.last() // the log is reported to be overwritten: the session ends
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

// A gap whose record could not be stored is recorded by the next session, also when a
// full snapshot is behind it by then, so that no look through the archive finds it.
func TestGapRecordOutlivesASession(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		m := r.cluster.members[0]
		a := r.purged()
		var calls atomic.Int64
		r.taking(&calls)(&a.config)
		refuse := "/gaps/"
		r.gone.refuse.Store(&refuse)
		b := r.startWith(a.config)
		r.waitFor("the full snapshot after the gap", time.Minute, func() bool { return len(b.State().Gaps) == 1 && calls.Load() == 1 })
		opened := m.opened
		r.cluster.mu.Lock()
		m.version++
		m.lowest = m.last() // the log is reported to be overwritten: the session ends
		r.cluster.mu.Unlock()
		r.waitFor("another session", time.Minute, func() bool { return m.opened > opened })
		r.gone.refuse.Store(nil)
		r.waitFor("the record", time.Minute, func() bool { return len(r.gaps()) == 1 })
	})
}

// The answer to the put behind a gap is lost: the gap is recorded all the same.
func TestGapWithALostAnswer(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.purged()
		r.sink.Add(sinktest.Lose(sinktest.Commit, 1, sinks.ErrUncertain).Of("/l0/"))
		b := r.startWith(a.config)
		r.waitArchived(b, 60, time.Minute)
		if g := b.snapshots(); len(g) == 0 || !strings.Contains(g[0].Reason, "in no log") {
			t.Errorf("gaps %+v", g)
		}
	})
}

// An archiver that was killed after it stored what is behind a gap, and before it wrote
// that down, or remembered it, left a hole: the next look finds it.
func TestGap_KilledBeforeItWasRecorded_IsFoundAgain(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		m := r.cluster.members[0]
		a := r.archived(5)
		a.stop()
		before := m.last()
		r.load(5)
		m.purge(m.last() - 2)
		first := m.first
		part := "/gaps/"
		r.gone.refuse.Store(&part)
		b := r.startWith(a.config, func(c *Config) {
			c.OnGap = func(context.Context, Gap) error { return errors.New("killed before") }
		})
		r.load(2)
		r.waitArchived(b, m.last(), time.Minute)
		b.stop()
		require.NoError(t, os.Remove(filepath.Join(a.config.SpoolDir, positionFile)))
		r.gone.refuse.Store(nil)

		c := r.startWith(a.config)
		want := repository.GapName{Timeline: timelineN(1), First: before + 1, Last: first - 1}
		r.waitFor("the gap is recorded, and a full snapshot called for", time.Minute, func() bool {
			found, err := r.repo().Gaps(t.Context(), timelineN(1))
			require.NoError(t, err)
			called := c.snapshots()
			return len(found) == 1 && found[0] == want && len(called) == 1 && called[0].First == first
		})
	})
}

// The time for which the repository is away does not count for a gap: nobody could have
// stored what is missing.
func TestGapWaitsForTheRepository(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		b := r.startWith(r.purged().config)
		time.Sleep(8 * time.Second)
		r.gone.away.Store(true)
		time.Sleep(time.Minute)
		r.gone.away.Store(false)
		r.waitFor("the repository", 20*time.Second, func() bool { return !b.has(AlarmRepository) })
		time.Sleep(2 * time.Second)
		if s := b.State(); s.Archived != 20 {
			t.Errorf("archived to %d: the gap was not left to the others", s.Archived)
		}
		r.waitArchived(b, 60, 20*time.Second)
	})
}

// A member's real log that begins behind what is asked for: its Tail says so with the
// first Poll, and the archive goes on behind the gap.
func TestGapOfAPurgedWAL(t *testing.T) {
	before := wal.SegmentSizeBytes
	wal.SegmentSizeBytes = 1 << 10
	t.Cleanup(func() { wal.SegmentSizeBytes = before })
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		m, dir := r.cluster.members[0], filepath.Join(t.TempDir(), "wal")
		meta, err := proto.Marshal(&etcdserverpb.Metadata{NodeID: &m.id.MemberID, ClusterID: &m.id.ClusterID})
		require.NoError(t, err)
		log, err := wal.Create(nil, dir, meta)
		require.NoError(t, err)
		defer log.Close()
		log.SetUnsafeNoFsync()
		commit := func(n int) {
			t.Helper()
			r.cluster.commit(n, "load")
			for _, e := range m.entries[len(m.entries)-n:] {
				require.NoError(t, log.Save(&raftpb.HardState{Term: &e.Term, Vote: new(uint64), Commit: &e.Index}, []*raftpb.Entry{e.Raft()}))
			}
			require.NoError(t, log.Sync())
		}
		commit(20)
		a := r.start(0, func(c *Config) { c.WALDir, c.open = dir, nil })
		r.waitArchived(a, 20, 5*time.Second)
		a.stop()
		commit(100)
		files, err := filepath.Glob(filepath.Join(dir, "*.wal"))
		if err != nil || len(files) < 5 {
			t.Fatal(files, err)
		}
		for _, f := range files[:len(files)-2] {
			require.NoError(t, os.Remove(f))
		}
		b := r.startWith(a.config)
		r.waitArchived(b, 120, time.Minute)
		gaps := r.gaps()
		if len(gaps) != 1 || gaps[0].First != 21 || !strings.Contains(b.State().LastError, "purged") {
			t.Fatalf("gaps %v, last error %q", gaps, b.State().LastError)
		}
		r.sameAs(1, m.entries[:20])
		r.sameAs(1, m.entries[gaps[0].Last:])
	})
}
