package archive

import (
	"context"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/walreplay/segment"
)

// absent are the entries that no segment of timeline 1 holds.
func (r *rig) absent(last uint64) []uint64 {
	r.Helper()
	headers := r.openLog(1).Headers()
	var absent []uint64
	for i := uint64(1); i <= last; i++ {
		if !covers(headers, i, i) {
			absent = append(absent, i)
		}
	}
	return absent
}

func (r *rig) allThere(last uint64) {
	r.Helper()
	if gone := r.absent(last); len(gone) > 0 {
		r.Errorf("%d entries are in no segment: %d to %d", len(gone), gone[0], gone[len(gone)-1])
	}
}

// lists is a repository whose listings fail, or do not answer, while the rest
// works.
type lists struct {
	sinks.Sink
	fail, hang atomic.Bool
}

func (l *lists) List(ctx context.Context, prefix, after string) iter.Seq2[sinks.Object, error] {
	switch {
	case l.hang.Load():
		return func(yield func(sinks.Object, error) bool) {
			<-ctx.Done()
			yield(sinks.Object{}, ctx.Err())
		}
	case l.fail.Load():
		return func(yield func(sinks.Object, error) bool) { yield(sinks.Object{}, errAway) }
	}
	return l.Sink.List(ctx, prefix, after)
}

// Promise 2: one archiver is cut off, spools, and is restarted; meanwhile both
// members purge, and another archiver goes on behind the hole. What is spooled
// is stored all the same.
func TestPromise2SpoolBehindAnothersAnchor(t *testing.T) {
	inFakeTime(t, 2, func(t *testing.T, r *rig) {
		mine := &goneSink{Sink: r.sink}
		a := r.start(0, func(c *Config) { c.Sink = mine })
		r.load(5)
		r.waitArchived(a, 20, 5*time.Second)
		mine.away.Store(true)
		r.load(30)
		time.Sleep(10 * time.Second)
		a.stop()
		if a.State().Spooled == 0 {
			t.Fatal("nothing is spooled")
		}
		r.cluster.members[0].purge(130)
		r.cluster.members[1].purge(130)
		b := r.start(1)
		r.load(5)
		r.waitArchived(b, 150, 2*time.Minute)
		if len(b.State().Gaps) == 0 {
			t.Fatal("the other one has crossed no gap")
		}
		mine.away.Store(false)
		again := r.startWith(a.config)
		r.load(60)
		time.Sleep(2 * time.Minute)
		r.allThere(150)
		if s := again.State(); s.Spooled != 0 {
			t.Errorf("%d bytes stay in the spool", s.Spooled)
		}
	})
}

// Promise 2: the cluster left the timeline while its end was only in the spool.
func TestPromise2SpoolOfALeftTimeline(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.start(0)
		r.load(5)
		r.waitArchived(a, 20, 5*time.Second)
		r.gone.away.Store(true)
		r.load(20)
		time.Sleep(10 * time.Second)
		a.stop()
		r.rewind(60, 3)
		r.gone.away.Store(false)
		b := r.startWith(a.config)
		r.waitFor("timeline 2", time.Minute, func() bool { return b.State().Timeline.N == 2 })
		r.load(30)
		r.allThere(100)
		if s := b.State(); s.Spooled != 0 {
			t.Errorf("%d bytes stay in the spool", s.Spooled)
		}
		r.waitArchived(b, r.cluster.members[0].last(), 10*time.Second)
		line, err := r.repo().Timeline(context.Background(), timelineN(2))
		if err != nil || line.Parent == nil || line.Parent.RaftIndex <= 20 || line.Parent.RaftIndex > 60 {
			t.Fatalf("timeline 2: %+v, %v", line, err)
		}
		r.sameAs(2, r.cluster.members[0].entries[line.Parent.RaftIndex:])
	})
}

// Promise 2: the first spooled segment is damaged, and the member has purged
// what is in it. It is a gap; all that is spooled behind it is stored.
func TestPromise2SpoolBehindADamagedOne(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.start(0)
		r.load(5)
		r.waitArchived(a, 20, 5*time.Second)
		r.gone.away.Store(true)
		r.load(30)
		a.stop()
		p, err := openSpoolIn(t, a.config.SpoolDir)
		if err != nil || len(p.segments) < 3 {
			t.Fatalf("spooled: %+v, %v", p.segments, err)
		}
		hit, behind := p.segments[0], p.segments[len(p.segments)-1].LastIndex
		object, err := p.get(hit)
		if err != nil {
			t.Fatal(err)
		}
		object[len(object)-20] ^= 1
		if err := p.remove(hit.Name()); err != nil {
			t.Fatal(err)
		}
		if _, err := sinks.Put(t.Context(), p.repo.Sink(), hit.Name(), object, sinks.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		r.cluster.members[0].purge(behind)
		r.gone.away.Store(false)
		b := r.startWith(a.config)
		r.load(60)
		time.Sleep(time.Minute)
		if gone := r.absent(behind); len(gone) == 0 || gone[0] != hit.FirstIndex || gone[len(gone)-1] != hit.LastIndex {
			t.Errorf("in no segment: %d, and %d to %d were damaged", gone, hit.FirstIndex, hit.LastIndex)
		}
		if len(b.State().Gaps) == 0 {
			t.Error("no gap is told")
		}
	})
}

// Promise 2: the spool is full, what came after is in memory, and the member has
// purged it, when the repository comes back.
func TestPromise2FullSpoolAtTheReturn(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		m := r.cluster.members[0]
		a := r.start(0)
		r.load(5)
		r.waitArchived(a, 20, 5*time.Second)
		a.stop()
		r.gone.away.Store(true)
		c := a.config
		c.SpoolLimit = 12000
		b := r.startWith(c)
		r.load(60)
		m.purge(m.last() - 2)
		time.Sleep(5 * time.Second)
		if s := b.State(); s.Queued == 0 || !b.has(AlarmSpoolFull) {
			t.Fatalf("state %+v", s)
		}
		r.gone.away.Store(false)
		r.load(120)
		r.allThere(700)
		if len(b.State().Gaps) > 0 {
			t.Errorf("gaps: %+v", b.State().Gaps)
		}
	})
}

// Promise 2: a repository that gives objects and lists none, or hangs at that,
// is away: what is committed goes to the spool, and the state says why.
func TestPromise2NoListing(t *testing.T) {
	for name, set := range map[string]func(*lists) *atomic.Bool{
		"fails": func(l *lists) *atomic.Bool { return &l.fail },
		"hangs": func(l *lists) *atomic.Bool { return &l.hang },
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, 1, func(t *testing.T, r *rig) {
				l := &lists{Sink: r.sink}
				a := r.start(0, func(c *Config) { c.Sink = l })
				r.load(5)
				r.waitArchived(a, 20, 5*time.Second)
				a.stop()
				set(l).Store(true)
				b := r.startWith(a.config)
				time.Sleep(silentAfter + time.Second)
				if !b.has(AlarmRepository) {
					t.Errorf("alarms after %s: %+v", silentAfter, b.State().Alarms)
				}
				r.load(150)
				s := b.State()
				if s.Spooled == 0 || s.Role != Spooling || s.Released < r.cluster.members[0].last()-12 || b.raised(AlarmRestarted) {
					t.Errorf("state %+v", s)
				}
				set(l).Store(false)
				r.waitArchived(b, r.cluster.members[0].last(), 2*time.Minute)
				r.sameAs(1, r.cluster.members[0].entries)
			})
		})
	}
}

// Names that were freed by merging are not used again by what was spooled long
// ago.
func TestSpoolAndFreedNames(t *testing.T) {
	inFakeTime(t, 2, func(t *testing.T, r *rig) {
		ctx := context.Background()
		mine := &goneSink{Sink: r.sink}
		a := r.start(0, func(c *Config) { c.Sink = mine })
		r.load(5)
		r.waitArchived(a, 20, 5*time.Second)
		mine.away.Store(true)
		b := r.start(1)
		r.load(30)
		r.waitArchived(b, 130, time.Minute)
		time.Sleep(10 * time.Minute)
		freed := map[uint64]bool{}
		for _, h := range r.openLog(1).Headers() {
			if h.FirstIndex <= 20 || h.FirstIndex > 110 {
				continue
			}
			object, err := sinks.Get(ctx, r.memory, h.Name(), h.Size())
			if err != nil {
				t.Fatal(err)
			}
			higher, object, err := segment.Relabel(h, object, 1)
			if err == nil {
				err = segment.Put(ctx, r.memory, higher, object)
			}
			if err == nil {
				err = r.memory.Delete(ctx, h.Name())
			}
			if err != nil {
				t.Fatal(err)
			}
			freed[h.FirstIndex] = true
		}
		if len(freed) == 0 || a.State().Spooled == 0 {
			t.Fatalf("%d names are free, %d bytes spooled", len(freed), a.State().Spooled)
		}
		mine.away.Store(false)
		r.waitFor("the spool is empty", 2*time.Minute, func() bool { return a.State().Spooled == 0 })
		time.Sleep(time.Minute)
		for _, h := range r.openLog(1).Headers() {
			if h.Level == 0 && freed[h.FirstIndex] {
				t.Errorf("%s was freed, and put again", h.Name())
			}
		}
		r.sameAs(1, r.cluster.members[0].entries)
	})
}

// An earlier put of its own that lands late does not make a follower of the
// writer.
func TestOwnLatePutStaysWriter(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.start(0)
		r.load(5)
		r.waitArchived(a, 20, 5*time.Second)
		headers := r.openLog(1).Headers()
		end := headers[len(headers)-1]
		s := newSession(a.Archiver, false)
		s.id, s.role, s.end, s.tip, s.joined = r.cluster.members[0].id, Writer, endOf(end), endOf(end), true
		late := segment.Header{FirstIndex: end.LastIndex + 1, LastIndex: end.LastIndex + 3, Member: end.Member}
		mine := late
		mine.LastIndex += 2
		if err := s.putDone(mine, outcome{winner: &late}); err != nil || s.role != Writer {
			t.Errorf("%s, %v", s.role, err)
		}
		late.Member++
		if err := s.putDone(mine, outcome{winner: &late}); err != nil || s.role != Follower {
			t.Errorf("behind another's: %s, %v", s.role, err)
		}
	})
}

// What the archive contradicts is not stored in its timeline, and not thrown
// away either.
func TestSpoolOfAnotherWay(t *testing.T) {
	var zero, x, y, z [32]byte
	x[0], y[0], z[0] = 1, 2, 3
	archived := []segment.Header{
		{FirstIndex: 1, LastIndex: 5, Before: zero, After: x, Entries: 5},
		{FirstIndex: 6, LastIndex: 9, Before: x, After: y, Entries: 4},
	}
	for name, c := range map[string]struct {
		h      segment.Header
		leaves bool
		covers bool
	}{
		"the same":       {segment.Header{FirstIndex: 6, LastIndex: 9, Before: x, After: y}, false, true},
		"cut elsewhere":  {segment.Header{FirstIndex: 1, LastIndex: 9, Before: zero, After: y}, false, true},
		"another way":    {segment.Header{FirstIndex: 1, LastIndex: 9, Before: zero, After: z}, true, true},
		"ends between":   {segment.Header{FirstIndex: 6, LastIndex: 8, Before: x, After: z}, false, true},
		"goes on":        {segment.Header{FirstIndex: 6, LastIndex: 12, Before: x, After: z}, false, false},
		"another anchor": {segment.Header{FirstIndex: 6, LastIndex: 9, Before: zero, After: z}, false, true},
	} {
		if got := leaves(archived, c.h); got != c.leaves {
			t.Errorf("%s: leaves %t", name, got)
		}
		if got := covers(archived, c.h.FirstIndex, c.h.LastIndex); got != c.covers {
			t.Errorf("%s: covers %t", name, got)
		}
	}
}
