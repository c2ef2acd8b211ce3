package archive

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
)

// full stores the manifest of a full snapshot of timeline 1 at an index.
func (r *rig) full(index, term uint64) {
	r.Helper()
	ctx := context.Background()
	id := repository.NewBackupID(time.Now())
	m := snapshot.Manifest{Format: 1, Kind: snapshot.KindFull, ID: id, Timeline: timelineN(1), Started: time.Now(), Finished: time.Now()}
	m.Object.Name, m.Object.StoredSize = repository.SnapshotName(timelineN(1), id, false), 2
	if _, err := sinks.Put(ctx, r.memory, m.Object.Name, []byte("db"), sinks.CreateOptions{}); err != nil {
		r.Fatal(err)
	}
	m.Facts.RaftIndex, m.Facts.RaftTerm = index, term
	if err := r.repo().WriteDocument(ctx, repository.ManifestName(timelineN(1), id), m); err != nil {
		r.Fatal(err)
	}
}

// ranges are what `requorum list` shows.
func (r *rig) ranges() []walreplay.Range {
	r.Helper()
	ctx := context.Background()
	catalog, err := snapshot.ReadCatalog(ctx, r.repo())
	if err != nil {
		r.Fatal(err)
	}
	ranges, err := walreplay.Ranges(ctx, r.repo(), catalog)
	if err != nil {
		r.Fatal(err)
	}
	return ranges
}

// recoverable are the ranges less the gaps.
func (r *rig) recoverable() []walreplay.Range {
	r.Helper()
	return slices.DeleteFunc(r.ranges(), func(one walreplay.Range) bool { return one.Gap })
}

// whole tells that all from the oldest full snapshot to the end can be restored.
func (r *rig) whole() bool {
	r.Helper()
	ranges := r.recoverable()
	return len(ranges) == 1 && ranges[0].LastIndex >= r.cluster.members[0].last()
}

// lose takes a stored segment away that holds an entry, and tells what it held.
func (r *rig) lose(index uint64) (first, last uint64) {
	r.Helper()
	for _, h := range r.openLog(1).Headers() {
		if h.Holds(index) {
			if err := r.memory.Delete(context.Background(), h.Name()); err != nil {
				r.Fatal(err)
			}
			return h.FirstIndex, h.LastIndex
		}
	}
	r.Fatalf("no segment holds entry %d", index)
	return 0, 0
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
	if err != nil {
		r.Fatal(err)
	}
	return names
}

// Promise 2: an object that somebody deleted, or that was lost, leaves a hole
// which nobody recorded. It is found, told, and filled from the member's log,
// whether archivers run meanwhile or not.
func TestPromise2LostSegmentIsFilled(t *testing.T) {
	for _, live := range []bool{false, true} {
		t.Run(map[bool]string{false: "stopped", true: "running"}[live], func(t *testing.T) {
			inFakeTime(t, 2, func(t *testing.T, r *rig) {
				var calls atomic.Int64
				a, b := r.start(0, r.taking(&calls)), r.start(1, r.taking(&calls))
				r.load(3)
				r.waitArchived(a, 12, 10*time.Second)
				r.full(2, 2)
				r.load(10)
				if !live {
					a.stop()
					b.stop()
				}
				first, last := r.lose(30)
				if r.whole() {
					t.Fatal("nothing is missing")
				}
				if !live {
					a, b = r.startWith(a.config), r.startWith(b.config)
				}
				r.waitFor("fill", searchEvery+time.Minute, func() bool { return !a.has(AlarmGap) && !b.has(AlarmGap) && (a.raised(AlarmGap) || b.raised(AlarmGap)) })
				if !r.whole() {
					t.Errorf("ranges %+v", r.ranges())
				}
				r.sameAs(1, r.cluster.members[0].entries)
				time.Sleep(10 * time.Second)
				for _, x := range []*running{a, b} {
					if s := x.State(); len(s.Holes) > 0 || s.Recoverable != s.Archived || s.BehindEntries != 0 || s.Checked.IsZero() {
						t.Errorf("state %+v", s)
					}
				}
				if len(r.gaps()) > 0 || calls.Load() > 0 {
					t.Errorf("gaps %+v, %d snapshots, for entries %d to %d, which the logs hold", r.gaps(), calls.Load(), first, last)
				}
			})
		})
	}
}

// What no log holds any more is left to the others for several takeover times,
// then recorded; a full snapshot is taken, and all is well behind it. Until then
// nobody claims that the end of the archive can be restored.
func TestPromise2LostSegmentIsReported(t *testing.T) {
	for _, live := range []bool{false, true} {
		t.Run(map[bool]string{false: "stopped", true: "running"}[live], func(t *testing.T) {
			inFakeTime(t, 1, func(t *testing.T, r *rig) {
				var calls atomic.Int64
				a := r.start(0, r.taking(&calls))
				r.load(3)
				r.waitArchived(a, 12, 10*time.Second)
				r.full(2, 2)
				r.load(10)
				r.waitArchived(a, 52, 10*time.Second)
				if !live {
					a.stop()
				}
				first, last := r.lose(30)
				r.cluster.members[0].purge(40)
				if !live {
					a = r.startWith(a.config)
				}
				r.waitFor("the alarm", searchEvery+time.Minute, func() bool { return a.has(AlarmGap) })
				began := time.Now()
				time.Sleep(6 * time.Second)
				if s := a.State(); s.Recoverable != first-1 || s.Archived != 52 || s.BehindEntries != 52-first+1 || s.Behind < 5*time.Second || !strings.Contains(s.String(), "recoverable") {
					t.Errorf("state %+v: %s", s, s)
				}
				r.waitFor("the full snapshot", time.Minute, func() bool { return calls.Load() > 0 })
				if took := time.Since(began); took < gapTakeovers*5*time.Second {
					t.Errorf("given up after %s: other archivers may hold it", took)
				}
				time.Sleep(10 * time.Second)
				gaps := r.gaps()
				if len(gaps) != 1 || gaps[0].First != first || gaps[0].Last != last {
					t.Errorf("gaps %+v, want %d to %d", gaps, first, last)
				}
				s := a.State()
				if a.has(AlarmGap) || s.SnapshotDue != "" || len(s.Holes) > 0 || len(s.Gaps) != 1 || s.Recoverable != s.Archived {
					t.Errorf("state %+v", s)
				}
				ranges := r.ranges()
				if n := len(ranges); n < 3 || ranges[n-1].Gap || ranges[n-1].LastIndex != 52 || !ranges[n-2].Gap || !strings.Contains(ranges[n-2].Reason, "deleted or lost") {
					t.Errorf("ranges %+v", ranges)
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

// Before the newest full snapshot a hole harms old points only: it is filled
// where a log has it, and recorded where none does; there is no alarm for it.
func TestOldHole(t *testing.T) {
	for _, purged := range []bool{false, true} {
		inFakeTime(t, 1, func(t *testing.T, r *rig) {
			var calls atomic.Int64
			a := r.start(0, r.taking(&calls))
			r.load(13)
			r.waitArchived(a, 52, 10*time.Second)
			a.stop()
			r.full(2, 2)
			time.Sleep(time.Second)
			r.full(45, 2)
			first, last := r.lose(30)
			if purged {
				r.cluster.members[0].purge(40)
			}
			b := r.startWith(a.config)
			if purged {
				r.waitFor("the record", time.Minute, func() bool { return len(r.gaps()) == 1 })
				if g := r.gaps()[0]; g.First != first || g.Last != last {
					t.Errorf("gap %+v, want %d to %d", g, first, last)
				}
			} else {
				r.waitFor("fill", time.Minute, r.whole)
			}
			if calls.Load() > 0 || b.raised(AlarmGap) {
				t.Errorf("%d snapshots, events %+v", calls.Load(), b.events)
			}
		})
	}
}

// A hole that begins at or before a full snapshot and that no log holds from its
// first entry on: what is put back of it could not be joined to what is behind,
// so a new full snapshot is taken.
func TestHoleAroundAFullSnapshot(t *testing.T) {
	for name, c := range map[string]struct{ full, purged uint64 }{"begins before it": {30, 25}, "begins behind it": {20, 0}} {
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
				if first, last := r.lose(30); first != 21 || last != 40 {
					t.Fatalf("lost %d to %d", first, last)
				}
				if c.purged > 0 {
					r.cluster.members[0].purge(c.purged)
				} else {
					r.lose(10) // so nothing is before the hole
				}
				b := r.startWith(a.config)
				r.waitFor("the alarm", time.Minute, func() bool { return b.has(AlarmGap) })
				if s := b.State(); s.Recoverable != c.full {
					t.Errorf("state %+v", s)
				}
				r.waitFor("the full snapshot", time.Minute, func() bool { return calls.Load() == 1 && !b.has(AlarmGap) })
				r.cluster.commit(20, "x")
				r.waitArchived(b, 80, 10*time.Second)
				if all := r.recoverable(); len(all) != 2 || all[1].LastIndex != 80 {
					t.Errorf("recoverable %+v", all)
				}
				r.sameAs(1, r.cluster.members[0].entries[len(r.cluster.members[0].entries)-40:])
			})
		})
	}
}

// The end of the archive is lost while nothing happens: there is no hole yet,
// and what is missing is archived anew.
func TestLostEnd(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.start(0)
		r.load(13)
		r.waitArchived(a, 52, 10*time.Second)
		r.full(2, 2)
		r.lose(52)
		time.Sleep(searchEvery + 2*time.Minute)
		if !r.whole() {
			t.Errorf("ranges %+v", r.ranges())
		}
		r.sameAs(1, r.cluster.members[0].entries)
	})
}

// A hole that is left by a damaged segment is filled under another name.
func TestDamagedSegmentInTheMiddle(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.start(0)
		r.load(13)
		r.waitArchived(a, 52, 10*time.Second)
		a.stop()
		r.full(2, 2)
		for _, h := range r.openLog(1).Headers() {
			if h.Holds(30) {
				r.spoil(h.Name(), 100)
			}
		}
		b := r.startWith(a.config)
		r.waitFor("fill", time.Minute, r.whole)
		r.sameAs(1, r.cluster.members[0].entries)
		r.waitFor("the end of the alarm", time.Minute, func() bool { return !b.has(AlarmGap) })
	})
}

// A segment whose object was cut short has a good header, and holds nothing: the
// hole is filled under another name, and is not over before.
func TestSegmentCutShort(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		ctx := t.Context()
		a := r.start(0)
		r.load(13)
		r.waitArchived(a, 52, 10*time.Second)
		a.stop()
		r.full(2, 2)
		for _, h := range r.openLog(1).Headers() {
			if !h.Holds(30) {
				continue
			}
			data, err := sinks.Get(ctx, r.memory, h.Name(), h.Size())
			if err != nil {
				t.Fatal(err)
			}
			if err := r.memory.Delete(ctx, h.Name()); err != nil {
				t.Fatal(err)
			}
			if _, err := sinks.Put(ctx, r.memory, h.Name(), data[:len(data)-10], sinks.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if r.whole() {
			t.Fatal("nothing is damaged")
		}
		b := r.startWith(a.config)
		r.waitFor("the end of the alarm", time.Minute, func() bool { return b.raised(AlarmGap) && !b.has(AlarmGap) })
		if !r.whole() {
			t.Errorf("ranges %+v", r.ranges())
		}
		r.sameAs(1, r.cluster.members[0].entries)
	})
}

// Once leaves no hole behind that its member's log can fill, and says so where it
// cannot.
func TestOnceFills(t *testing.T) {
	for _, purged := range []bool{false, true} {
		inFakeTime(t, 1, func(t *testing.T, r *rig) {
			r.cluster.commit(20, "x")
			config := r.config(0)
			config.OnGap = func(context.Context, Gap) error {
				time.Sleep(10 * time.Second)
				return nil
			}
			a, err := New(config)
			if err != nil {
				t.Fatal(err)
			}
			archive := func() {
				t.Helper()
				if err := a.Once(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			for range 3 {
				archive()
				r.cluster.commit(20, "x")
			}
			archive()
			r.full(2, 2)
			r.lose(30)
			if purged {
				r.cluster.members[0].purge(60)
			}
			archive()
			if purged != (len(r.gaps()) == 1) || purged == r.whole() {
				t.Errorf("purged %v: gaps %+v, ranges %+v", purged, r.gaps(), r.ranges())
			}
			// The full snapshot that was due is taken: there is nothing left to look at.
			if left := a.State().Alarms; len(left) > 0 {
				t.Errorf("purged %v: alarms %+v", purged, left)
			}
		})
	}
}

// Only a log that was compared with the archive may fill a hole.
func TestOnlyAComparedLogFills(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		m := r.cluster.members[0]
		a := r.start(0)
		r.load(10)
		r.waitArchived(a, 40, 10*time.Second)
		a.stop()
		first, _ := r.lose(20)
		m.purge(40)
		r.load(5) // nothing that is archived is in the log any more
		anchored := func() bool {
			_, err := r.memory.Stat(context.Background(), repository.SegmentName{Timeline: timelineN(1), First: 41}.String())
			return err == nil
		}
		early, later := false, false
		config := a.config
		config.open = func(from uint64) (Log, error) {
			early, later = early || from == first && !anchored(), later || from == first
			return m.open(from)
		}
		b := r.startWith(config)
		r.waitArchived(b, 60, time.Minute)
		r.waitFor("a try", time.Minute, func() bool { return later })
		if early {
			t.Error("a hole was to be filled from a log that was not compared with the archive")
		}
	})
}

// Beyond what was compared a log may hold what the cluster refused: it fills no
// hole there.
func TestNoFillBeyondWhatWasCompared(t *testing.T) {
	inFakeTime(t, 2, func(t *testing.T, r *rig) {
		m0, m1 := r.cluster.members[0], r.cluster.members[1]
		a, b := r.start(0), r.start(1)
		r.load(5)
		r.waitArchived(a, 20, 10*time.Second)
		r.waitArchived(b, 20, 20*time.Second)
		r.cluster.mu.Lock()
		for i := uint64(21); i <= 60; i++ {
			m1.save(testEntry(i, 2, "refused"))
		}
		m1.down, r.cluster.term = true, 3
		r.cluster.mu.Unlock()
		r.cluster.commitOn(0, 21, 20)
		r.waitArchived(a, 40, 30*time.Second)
		r.cluster.commitOn(0, 41, 20)
		r.waitArchived(a, 60, 30*time.Second)
		r.cluster.mu.Lock()
		m1.down = false // it answers what it has applied, and its file is as it was
		r.cluster.mu.Unlock()
		a.stop()
		r.lose(30)
		checked := b.State().Checked
		r.waitFor("a look", 2*searchEvery, func() bool { return b.State().Checked.After(checked) })
		time.Sleep(10 * time.Second)
		if s := b.State(); len(s.Holes) != 1 || s.Archived != 20 {
			t.Fatalf("state %+v", s)
		}
		if n := len(r.openLog(1).Spans()); n != 2 {
			t.Fatalf("%d spans: it was filled with what was refused", n)
		}
		r.cluster.mu.Lock()
		for _, e := range m0.entries[20:] {
			m1.save(e)
			m1.apply(e)
		}
		r.cluster.mu.Unlock()
		r.waitFor("fill", 2*searchEvery, func() bool { return len(r.openLog(1).Spans()) == 1 })
		r.sameAs(1, m0.entries)
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
		if n := r.sink.Calls(sinktest.List) - lists; n > 2*4 {
			t.Errorf("%d listings in an hour", n)
		}
	})
}

// A full snapshot that is due for a hole is not any more once another archiver
// has filled it.
func TestReportedHoleIsFilledByAnother(t *testing.T) {
	inFakeTime(t, 2, func(t *testing.T, r *rig) {
		a := r.start(0, func(c *Config) {
			c.OnGap = func(context.Context, Gap) error { return errors.New("no space") }
		})
		r.load(10)
		r.waitArchived(a, 40, 10*time.Second)
		a.stop()
		r.full(2, 2)
		r.lose(20)
		r.cluster.members[0].purge(30)
		a = r.startWith(a.config)
		r.waitFor("the record", time.Minute, func() bool { return len(r.gaps()) == 1 && a.State().SnapshotDue != "" })
		b := r.start(1)
		r.waitFor("fill", time.Minute, r.whole)
		if !b.raised(AlarmGap) || b.has(AlarmGap) {
			t.Errorf("events %+v", b.events)
		}
		r.waitFor("the end of the alarm", 2*searchEvery, func() bool { return !a.has(AlarmGap) && a.State().SnapshotDue == "" })
		if s := a.State(); s.Recoverable != s.Archived {
			t.Errorf("state %+v", s)
		}
	})
}

// A full snapshot whose object is gone saves nothing: the hole before it matters.
func TestFullSnapshotWithoutItsObject(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		var calls atomic.Int64
		a := r.start(0, r.taking(&calls))
		r.load(10)
		r.waitArchived(a, 40, 10*time.Second)
		a.stop()
		r.full(39, 2)
		for _, name := range r.names() {
			if strings.HasSuffix(name, ".zst") || strings.Contains(name, "/full") && !strings.HasSuffix(name, ".json") {
				if err := r.memory.Delete(t.Context(), name); err != nil {
					t.Fatal(err)
				}
			}
		}
		r.lose(20)
		r.cluster.members[0].purge(30)
		r.startWith(a.config)
		r.waitFor("the full snapshot", time.Minute, func() bool { return calls.Load() == 1 })
	})
}

// A log that contradicts what is archived before a hole fills nothing of it. It
// is equal to what is behind the hole where an archiver went on there whose own
// log began later: then nothing had proved that both sides are of one history.
func TestNoFillFromAnotherHistory(t *testing.T) {
	inFakeTime(t, 2, func(t *testing.T, r *rig) {
		m0, m1 := r.cluster.members[0], r.cluster.members[1]
		a := r.start(0)
		r.load(10)
		r.waitArchived(a, 40, 10*time.Second)
		a.stop()
		r.full(2, 2)
		// The cluster starts anew from a member that had not got further than 30.
		r.cluster.mu.Lock()
		r.cluster.term = 3
		for i := uint64(31); i <= 60; i++ {
			e := testEntry(i, 3, "other")
			m0.save(e)
			m0.apply(e)
			m1.save(e)
			m1.apply(e)
		}
		r.cluster.mu.Unlock()
		m1.purge(50)
		b := r.start(1) // its log holds nothing to compare
		r.waitArchived(b, 60, time.Minute)
		r.waitFor("the record", time.Minute, func() bool { return len(r.gaps()) == 1 })
		a = r.startWith(a.config)
		r.waitFor("a try", time.Minute, func() bool { return strings.Contains(a.State().LastError, "other entries before entry 41") })
		time.Sleep(time.Minute)
		if spans := r.openLog(1).Spans(); len(spans) != 2 || spans[0].LastIndex != 40 || spans[1].FirstIndex != 51 {
			t.Errorf("two histories were joined: %+v", spans)
		}
	})
}

// A log that begins inside of the segment before a hole is compared with what it
// holds of it, and fills the hole.
func TestFillFromALogThatBeginsJustBefore(t *testing.T) {
	for _, before := range []uint64{1, 0} {
		inFakeTime(t, 1, func(t *testing.T, r *rig) {
			var calls atomic.Int64
			a := r.start(0, r.taking(&calls))
			for range 3 {
				r.cluster.commit(20, "x")
				r.waitArchived(a, r.cluster.members[0].last(), 10*time.Second)
			}
			a.stop()
			r.full(2, 2)
			first, _ := r.lose(30)
			r.cluster.members[0].purge(first - 1 - before)
			r.startWith(a.config)
			time.Sleep(time.Minute)
			// Without the entry before the hole nothing is proved.
			if filled := r.whole(); filled != (before > 0) || filled != (calls.Load() == 0) {
				t.Errorf("%d entries before the hole: filled %v, %d snapshots", before, filled, calls.Load())
			}
		})
	}
}

// Of several holes that were reported, the first one bounds what can be
// restored until there is a full snapshot; and each calls for one that is there
// to stay.
func TestSeveralHolesAreReported(t *testing.T) {
	inFakeTime(t, 2, func(t *testing.T, r *rig) {
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
		a := r.start(0, take)
		r.load(20)
		r.waitArchived(a, 80, 10*time.Second)
		a.stop()
		r.full(2, 2)
		first, _ := r.lose(20)
		later, _ := r.lose(40)
		r.cluster.members[0].purge(60)
		a = r.startWith(a.config)
		r.waitFor("the records", time.Minute, func() bool { return len(r.gaps()) == 2 })
		time.Sleep(10 * time.Second)
		if s := a.State(); s.Recoverable != first-1 || s.SnapshotDue == "" || len(s.Holes) > 0 || len(s.Gaps) != 2 {
			t.Fatalf("state %+v, want %d to be recoverable", s, first-1)
		}
		// Another archiver has the later one only. What is due is due for the other.
		r.cluster.members[1].purge(30)
		r.start(1, take)
		r.waitFor("the fill", time.Minute, func() bool { return len(r.openLog(1).Spans()) == 2 && r.openLog(1).Spans()[0].LastIndex == first-1 })
		time.Sleep(2*searchEvery + time.Minute)
		if s := a.State(); s.Recoverable != first-1 || s.SnapshotDue == "" || later < 30 {
			t.Fatalf("state %+v, want %d to be recoverable", s, first-1)
		}
		fails.Store(false)
		r.waitFor("the full snapshot", 2*time.Minute, func() bool { return a.State().Recoverable == 80 && a.State().SnapshotDue == "" && !a.has(AlarmGap) })
		// It is lost in turn.
		taken := calls.Load()
		for _, name := range r.names() {
			if strings.Contains(name, "/full/") && !strings.Contains(name, "20000101T0000") {
				if err := r.memory.Delete(t.Context(), name); err != nil {
					t.Fatal(err)
				}
			}
		}
		r.full(2, 2)
		r.waitFor("another full snapshot", 2*searchEvery, func() bool { return calls.Load() > taken })
	})
}

// The full snapshot of a 3.4 that nobody had written to yet knows no raft index. It
// is one all the same: the log from its first entry on follows it.
func TestFullSnapshotBeforeTheFirstWrite(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		r.full(0, 0)
		r.load(20)
		a := r.start(0)
		r.waitArchived(a, 20, time.Minute)
		time.Sleep(time.Minute)
		if s := a.State(); s.Recoverable != s.Archived || s.BehindEntries != 0 || s.Checked.IsZero() {
			t.Errorf("%s, recoverable to %d of %d, %d entries behind", s, s.Recoverable, s.Archived, s.BehindEntries)
		}
		for _, one := range r.ranges() {
			if one.Gap || one.FirstIndex != 0 || one.LastIndex < 20 {
				t.Errorf("%+v", one)
			}
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
		if s := a.State(); s.Recoverable != 0 || s.BehindEntries == 0 || !strings.Contains(s.String(), "no full snapshot") {
			t.Errorf("without a full snapshot: %s, recoverable to %d, %d entries behind", s, s.Recoverable, s.BehindEntries)
		}
		r.full(10, 1)
		a.LookAgain()
		time.Sleep(time.Minute)
		if s := a.State(); s.Recoverable != s.Archived || s.BehindEntries != 0 {
			t.Errorf("with one: %s, recoverable to %d of %d", s, s.Recoverable, s.Archived)
		}
	})
}
