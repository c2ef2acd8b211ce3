package archive

import (
	"context"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// absent are the entries that no segment of timeline 1 holds.
func (r *rig) absent(last uint64) []uint64 {
	r.Helper()
	headers := r.openLog(1).Headers()
	var absent []uint64
	for i := uint64(1); i <= last; i++ {
		if !segment.Cover(headers, i, i) {
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
	mu         sync.Mutex
	next       func(prefix string) // called before each, one at a time; may be nil
}

func (l *lists) List(ctx context.Context, prefix, after string) iter.Seq2[sinks.Object, error] {
	l.mu.Lock()
	if l.next != nil {
		l.next(prefix)
	}
	l.mu.Unlock()
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
// members purge, and another archiver goes on behind the gap. What is spooled
// is stored all the same.
func TestPromise2SpoolAfterAnothersChainStart(t *testing.T) {
	inFakeTime(t, 2, func(t *testing.T, r *rig) {
		mine := &goneSink{Sink: r.sink}
		a := r.archived(5, func(c *Config) { c.Sink = mine })
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

// Promise 2: one archiver is cut off, and while another begins a chain behind a gap, what the
// first one has reaches the repository after all: in the same moment, so that it reaches into
// the new chain, or when that begins right behind the archive's end. No conditional put decides
// between the two, and neither has all entries. What both hold joins them.
func TestPromise2ContinuedWhileAChainBegins(t *testing.T) {
	for name, purged := range map[string]uint64{"and reaches into it": 22, "and misses nothing": 20} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, 2, func(t *testing.T, r *rig) {
				mine, behind := &goneSink{Sink: r.sink}, "-0000000000000015"
				a := r.archived(5, func(c *Config) { c.Sink = mine })
				mine.refuse.Store(&behind) // the first one ends before it stores more
				mine.away.Store(true)
				r.load(4)
				want := r.cluster.members[0].entries
				r.cluster.members[1].purge(purged)
				r.sink.Add(sinktest.Delay(sinktest.Commit, 1, 30*time.Second).Of("/l0/0000000000000015-"))
				b := r.start(1)
				time.Sleep(8 * time.Second)
				mine.away.Store(false)
				r.waitFor("both stored", time.Minute, func() bool {
					headers := r.openLog(1).Headers()
					return slices.ContainsFunc(headers, func(h segment.Header) bool { return h.FirstIndex == 21 && !h.ChainStart })
				})
				b.stop()
				a.stop()
				begins := func(h segment.Header) bool { return h.FirstIndex == purged+1 && h.ChainStart }
				if headers := r.openLog(1).Headers(); !slices.ContainsFunc(headers, begins) || segment.Cover(slices.DeleteFunc(headers, begins), 1, 36) {
					t.Errorf("segments %v", logNames(r.names()))
				}
				r.oneSpan()
				r.sameAs(1, want)
			})
		})
	}
}

// Promise 2: an archive whose chain began anew behind a gap is not continued by what was
// spooled on the chain before. What was spooled is stored all the same, also where the new
// chain has the same entries: it leads over the gap. Where its beginning is lost, and the
// member's log no longer says that it goes on there, a full snapshot is due, since no log
// leads from one chain to the other.
func TestPromise2SpoolOfAnotherChain(t *testing.T) {
	t.Run("purged", func(t *testing.T) { spoolOfAnotherChain(t, true, false) })
	t.Run("purged, and the spool's beginning is lost", func(t *testing.T) { spoolOfAnotherChain(t, true, true) })
	// What the log still shows goes on, also through another outage.
	t.Run("not purged", func(t *testing.T) { spoolOfAnotherChain(t, false, false) })
}

func spoolOfAnotherChain(t *testing.T, purged, lost bool) {
	inFakeTime(t, 2, func(t *testing.T, r *rig) {
		mine := &goneSink{Sink: r.sink}
		var due atomic.Int64
		a := r.archived(5, func(c *Config) { c.Sink = mine })
		r.full(10, r.cluster.members[0].term)
		mine.away.Store(true)
		r.load(30)
		r.cluster.members[1].purge(130)
		b := r.start(1)
		r.load(5)
		r.waitArchived(b, 150, 2*time.Minute)
		b.stop()
		r.load(30)
		time.Sleep(10 * time.Second)
		a.stop()
		spooled := a.State().Spooled
		for _, m := range r.cluster.members {
			if purged {
				m.purge(b.State().Archived + 40)
			}
		}
		if lost {
			for _, spool := range r.spools {
				for o, err := range spool.List(t.Context(), "", "") {
					require.NoError(t, err)
					if n, err := repository.ParseSegmentName(o.Name); err == nil && n.First <= 131 {
						require.NoError(t, spool.Delete(t.Context(), o.Name))
					}
				}
			}
		}
		mine.away.Store(false)
		again := a.config
		again.OnGap = func(context.Context, Gap) error {
			due.Add(1)
			return nil
		}
		c := r.startWith(again)
		r.load(60)
		mine.away.Store(true)
		r.load(30)
		mine.away.Store(false)
		r.load(60)
		r.waitArchived(c, r.cluster.members[0].last(), time.Minute)
		gap := slices.ContainsFunc(c.State().Gaps, func(g Gap) bool { return strings.Contains(g.Reason, "does not continue") })
		if spooled == 0 || gap != lost || lost && due.Load() == 0 {
			t.Errorf("%d bytes were spooled; the gaps are %+v, %d full snapshots were taken", spooled, c.State().Gaps, due.Load())
		}
		if r.whole() == lost {
			t.Errorf("ranges %+v", r.ranges())
		}
		// Nor does merging hide it.
		if !lost {
			return
		}
		merger := segment.NewMerger(segment.MergeConfig{Repo: r.repo(), Timeline: timelineN(1), Tool: "test"})
		merged := 0
		for range 3 * 24 {
			r.load(1)
			time.Sleep(time.Hour)
			report, err := merger.Merge(t.Context())
			require.NoError(t, err)
			merged += len(report.Merged)
		}
		if r.namesSayTheSame(); merged == 0 || r.whole() {
			t.Errorf("%d segments were merged; ranges %+v", merged, r.ranges())
		}
	})
}

// Promise 2: the cluster left the timeline while its end was only in the spool.
func TestPromise2SpoolOfALeftTimeline(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.archived(5)
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
// what is in it. It is a gap; all that is spooled behind it is stored, also where
// nothing new is written.
func TestPromise2SpoolBehindADamagedOne(t *testing.T) {
	for _, quiet := range []bool{false, true} {
		inFakeTime(t, 1, func(t *testing.T, r *rig) {
			a := r.archived(5)
			r.gone.away.Store(true)
			r.load(30)
			a.stop()
			p := a.spooled()
			if len(p.segments) < 3 {
				t.Fatalf("spooled: %+v", p.segments)
			}
			hit, behind := p.segments[0], p.segments[len(p.segments)-1].LastIndex
			object, err := sinks.Get(t.Context(), p.repo.Sink(), hit.Name(), hit.Size())
			require.NoError(t, err)
			object[len(object)-20] ^= 1
			require.NoError(t, p.remove(hit.Name()))
			_, err = sinks.Put(t.Context(), p.repo.Sink(), hit.Name(), object, sinks.CreateOptions{})
			require.NoError(t, err)
			kept := uint64(0)
			if quiet {
				kept = 2 // of what is spooled last
			}
			r.cluster.members[0].purge(behind - kept)
			r.gone.away.Store(false)
			b := r.startWith(a.config)
			if !quiet {
				r.load(60)
			} else if time.Sleep(12 * time.Second); b.State().Archived != 20 {
				t.Errorf("archived to %d: the gap was not left to the others for three takeover times", b.State().Archived)
			}
			time.Sleep(time.Minute)
			if gone := r.absent(behind); len(gone) == 0 || gone[0] != hit.FirstIndex || gone[len(gone)-1] != hit.LastIndex {
				t.Errorf("in no segment: %d, and %d to %d were damaged", gone, hit.FirstIndex, hit.LastIndex)
			}
			if len(b.State().Gaps) == 0 {
				t.Error("no gap is reported")
			}
		})
	}
}

// Promise 2: the spool is full, what came after is in memory, and the member has
// purged it, when the repository comes back.
func TestPromise2FullSpoolAtTheReturn(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		m := r.cluster.members[0]
		a := r.archived(5)
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
				a := r.archived(5, func(c *Config) { c.Sink = l })
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
		a := r.archived(5, func(c *Config) { c.Sink = mine })
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
			h, b, err := segment.Read(ctx, r.repo(), h.Name())
			require.NoError(t, err)
			higher, object, err := segment.Encode(ctx, h.Timeline, h.Before, h.ChainStart, b, segment.Meta{Member: h.Member, Cut: h.Cut}, segment.Options{Level: 1})
			if err == nil {
				err = segment.Put(ctx, r.repo(), higher, object)
			}
			if err == nil {
				err = r.memory.Delete(ctx, h.Name())
			}
			require.NoError(t, err)
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
		a := r.archived(5)
		headers := r.openLog(1).Headers()
		end := headers[len(headers)-1]
		s := newSession(a.Archiver, false)
		s.id, s.role, s.end, s.captured, s.joined = r.cluster.members[0].id, Writer, endOf(end), endOf(end), true
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

// Another segment under the name is not taken for this one.
func TestOutcome_OfAnotherSegment_IsNotStored(t *testing.T) {
	h := segment.Header{FirstIndex: 6, LastIndex: 9, Before: raftlog.Sum{1}, After: raftlog.Sum{2}, Member: 1}
	require.True(t, outcome{winner: &h}.is(h))
	for _, change := range []func(*segment.Header){
		func(h *segment.Header) { h.FirstIndex-- }, func(h *segment.Header) { h.LastIndex-- }, func(h *segment.Header) { h.Before[0]++ },
		func(h *segment.Header) { h.After[0]++ }, func(h *segment.Header) { h.Member++ },
	} {
		other := h
		change(&other)
		require.False(t, outcome{winner: &other}.is(h), "%+v", other)
	}
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
		"the same":            {segment.Header{FirstIndex: 6, LastIndex: 9, Before: x, After: y}, false, true},
		"cut elsewhere":       {segment.Header{FirstIndex: 1, LastIndex: 9, Before: zero, After: y}, false, true},
		"another way":         {segment.Header{FirstIndex: 1, LastIndex: 9, Before: zero, After: z}, true, true},
		"ends between":        {segment.Header{FirstIndex: 6, LastIndex: 8, Before: x, After: z}, false, true},
		"goes on":             {segment.Header{FirstIndex: 6, LastIndex: 12, Before: x, After: z}, false, false},
		"another chain start": {segment.Header{FirstIndex: 6, LastIndex: 9, Before: zero, After: z}, false, true},
	} {
		if got := contradict(archived, c.h); got != c.leaves {
			t.Errorf("%s: leaves %t", name, got)
		}
		if got := segment.Cover(archived, c.h.FirstIndex, c.h.LastIndex); got != c.covers {
			t.Errorf("%s: covers %t", name, got)
		}
	}
}

// What the archive contradicts stays on the disk, also when the member's log agrees
// with the archive: it may be all that is left of another history.
func TestSpoolOfAnotherHistoryStays(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.start(0)
		for range 2 {
			r.cluster.commit(20, "x")
			r.waitArchived(a, r.cluster.members[0].last(), 5*time.Second)
		}
		a.stop()
		var before raftlog.Sum
		var other []raftlog.Entry
		for i, e := range r.cluster.members[0].entries {
			if i < 20 {
				before = before.Next(e)
			} else {
				other = append(other, testEntry(e.Index, 2, "other"))
			}
		}
		h, object, err := segment.Encode(t.Context(), timelineN(1), before, false, segment.Batch{Entries: other}, segment.Meta{Member: 1, Cut: time.Now()}, segment.Options{})
		require.NoError(t, err)
		require.NoError(t, a.spooled().add(h, object))
		b := r.startWith(a.config)
		r.load(5)
		r.waitArchived(b, r.cluster.members[0].last(), 5*time.Second)
		if len(a.spooled().segments) != 1 || !strings.Contains(b.State().LastError, "other entries than those archived") {
			t.Errorf("spooled %+v, last error %q", a.spooled().segments, b.State().LastError)
		}
		r.sameAs(1, r.cluster.members[0].entries)
	})
}

// Promise 2: another archiver goes on behind a gap just after the spool was compared with
// the archive. What is spooled and lies in that gap stays, and is stored.
func TestPromise2ArchiveGoesOnWhileTheSpoolIsCompared(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		l := &lists{Sink: r.sink}
		a := r.archived(5, func(c *Config) { c.Sink = l })
		r.gone.away.Store(true)
		r.load(10)
		a.stop()
		r.gone.away.Store(false)
		m := r.cluster.members[0]
		spooled := a.spooled().segments[0].LastIndex
		compared := false
		l.next = func(prefix string) {
			switch {
			case strings.HasSuffix(prefix, "/l0/"):
				compared = true
			case compared && strings.HasSuffix(prefix, "/l"):
				l.next = nil
				h, object, err := segment.Encode(t.Context(), timelineN(1), raftlog.Sum{}, true, segment.Batch{Entries: m.entries[spooled:]}, segment.Meta{Member: 7, Cut: time.Now()}, segment.Options{})
				if err == nil {
					err = segment.Put(t.Context(), r.repo(), h, object)
				}
				if err != nil {
					t.Error(err)
				}
			}
		}
		b := r.startWith(a.config)
		r.load(20)
		r.waitArchived(b, m.last(), time.Minute)
		if l.next != nil {
			t.Error("nothing was stored in between")
		}
		r.allThere(m.last())
	})
}

// Promise 2: the name that a spooled segment is to get is taken by something else. It is
// stored under one of its own, without the member.
func TestPromise2SpoolWhereTheNameIsTaken(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.archived(5)
		r.gone.away.Store(true)
		r.load(10)
		a.stop()
		r.gone.away.Store(false)
		first := a.spooled().segments[0]
		_, err := sinks.Put(t.Context(), r.memory, first.Name(), []byte("no segment"), sinks.CreateOptions{})
		require.NoError(t, err)
		r.cluster.members[0].down = true
		b := r.startWith(a.config)
		r.waitArchived(b, 60, time.Minute)
		r.allThere(60)
		if s := b.State(); s.Spooled != 0 {
			t.Errorf("%d bytes stay in the spool: %s", s.Spooled, s.LastError)
		}
	})
}

// Promise 2: the spool is full, what came after is in memory, and the member has purged
// it, when it is found that another archiver went on meanwhile, so that the session ends.
func TestPromise2FullSpoolAndATakeover(t *testing.T) {
	inFakeTime(t, 2, func(t *testing.T, r *rig) {
		mine := &goneSink{Sink: r.sink}
		a := r.archived(5, func(c *Config) { c.Sink, c.SpoolLimit = mine, 12000 })
		mine.away.Store(true)
		b := r.start(1, func(c *Config) { c.Interval = 1700 * time.Millisecond })
		r.load(12)
		b.stop()
		r.load(60)
		last := r.cluster.members[0].last()
		if s, other := a.State(), b.State(); s.Queued == 0 || other.Archived <= 20 || other.Archived >= last {
			t.Fatalf("state %+v, the other one %+v", s, other)
		}
		for _, m := range r.cluster.members {
			m.purge(last - 2)
		}
		mine.away.Store(false)
		r.load(60)
		r.waitArchived(a, r.cluster.members[0].last(), time.Minute)
		r.allThere(last)
	})
}
