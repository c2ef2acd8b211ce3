package segment_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// merged makes a merged segment as another host would have.
func (a *archive) merged(level int, before raftlog.Sum, b segment.Batch) (segment.Header, []byte) {
	a.t.Helper()
	last := b.Entries[len(b.Entries)-1].Index
	h, object, err := segment.Encode(a.t.Context(), timeline, before, before == raftlog.Sum{}, b, segment.Meta{Revision: int64(last), Member: 1, Cut: time.Now()}, segment.Options{Tool: "test", Level: level})
	require.NoError(a.t, err)
	return h, object
}

func (a *archive) put(name string, object []byte) {
	a.t.Helper()
	_, err := sinks.Put(a.t.Context(), a.sink.Sink, name, object, sinks.CreateOptions{})
	require.NoError(a.t, err)
}

// batch is what was written from index first to last, with its marks.
func (a *archive) batch(first, last uint64) segment.Batch {
	return segment.Batch{
		Entries: slices.DeleteFunc(slices.Clone(a.entries), func(e raftlog.Entry) bool { return e.Index < first || e.Index > last }),
		Marks:   slices.DeleteFunc(slices.Clone(a.marks), func(m raftlog.Mark) bool { return m.Index < first || m.Index > last }),
	}
}

// rival has another host store a segment under the name of each merged one, just
// before; change makes another one of it. What is returned is the name.
func (a *archive) rival(change func(*segment.Batch), damage bool) *string {
	stored := new(string)
	a.sink.rival = func(name string) {
		n, err := repository.ParseSegmentName(name)
		if err != nil || n.Level == 0 {
			return
		}
		b := a.batch(n.First, n.Last)
		change(&b)
		_, object := a.merged(1, raftlog.Sum{}, b)
		if damage {
			object[len(object)-10] ^= 1
		}
		a.put(name, object)
		*stored = name
	}
	return stored
}

// other is a with another entry at an index.
func other(entries []raftlog.Entry, index uint64) []raftlog.Entry {
	entries = slices.Clone(entries)
	entries[index-entries[0].Index].Data = []byte("another one")
	return entries
}

// Design, Names: a merged segment is read back. One that is not in the repository
// as it was made counts for nothing, and keeps nobody from another try.
func TestPromise1MergedIsReadBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArchive(t)
		a.run(1, 70, time.Minute)
		stored := a.rival(func(*segment.Batch) {}, true)
		m := a.merger()
		r := a.merge(m)
		if len(r.Merged) != 0 || len(r.Damaged) != 1 || !strings.Contains(r.Damaged[0].Error(), *stored) {
			t.Fatalf("%+v", r)
		}
		if left := a.level(1); *stored == "" || len(left) != 0 {
			t.Fatalf("left are %v", left)
		}
		a.sink.rival = nil
		if r := a.merge(m); len(r.Merged) != 1 || r.Merged[0].Name() != *stored {
			t.Fatalf("another try: %+v", r)
		}
		a.check()
	})
}

// Promise 6: a whole segment of another history under the name of the merged one
// is reported, and stays: whose the right one is nobody knows here.
func TestPromise6MergedNameOfAnotherHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArchive(t)
		a.run(1, 70, time.Minute)
		for what, change := range map[string]func(*segment.Batch){
			"another entry": func(b *segment.Batch) { b.Entries = other(b.Entries, 400) },
			"fewer marks":   func(b *segment.Batch) { b.Marks = b.Marks[1:] },
		} {
			stored := a.rival(change, false)
			var fork *segment.ForkError
			r, err := a.merger().Merge(t.Context())
			if !errors.As(err, &fork) || len(r.Merged) != 0 || !slices.Contains(fork.Objects[:], *stored) {
				t.Errorf("%s: %+v, %v", what, r, err)
			}
			if len(a.level(1)) != 1 {
				t.Errorf("%s: it is gone", what)
			}
			require.NoError(t, a.sink.Sink.Delete(t.Context(), *stored))
		}
	})
}

// Design, Names: a segment goes only when the merged one, as it is read, holds it:
// entry by entry, and mark by mark. A name that says so is no proof.
func TestPromise2NamesReplaceNothing(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*segment.Batch)
		stays  uint64 // the segments that hold this entry and what follows
	}{
		"another entry": {func(b *segment.Batch) { b.Entries = other(b.Entries, 355) }, 351},
		"no marks":      {func(b *segment.Batch) { b.Marks = nil }, 1},
		"a mark fewer":  {func(b *segment.Batch) { b.Marks = slices.Delete(b.Marks, 35, 36) }, 351},
		"another beginning": {func(b *segment.Batch) {
			b.Entries = other(b.Entries, 1)
		}, 1},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newArchive(t)
				next := a.run(1, 70, time.Second)
				b := a.batch(1, next-1)
				c.change(&b)
				h, object := a.merged(1, raftlog.Sum{}, b)
				a.put(h.Name(), object)
				time.Sleep(25 * time.Hour)
				a.run(next, 1, 0)
				r := a.merge(a.merger())
				kept := a.level(0)
				for i := uint64(1); i < next; i += 10 {
					name := repository.SegmentName{Timeline: timeline, First: i}.String()
					gone := !slices.ContainsFunc(kept, func(base string) bool { return strings.HasSuffix(name, base) })
					if gone && (i == c.stays || what != "a mark fewer" && i > c.stays) {
						t.Errorf("%s is gone, and is nowhere else", name)
					} else if !gone && i+10 < c.stays {
						t.Errorf("%s is still there", name)
					}
				}
				if c.stays > 1 && r.Removed == 0 {
					t.Errorf("nothing was removed: %+v", r)
				}
			})
		})
	}
}

// Design, Names: what is superseded goes no sooner than 24 hours after it came
// itself: whoever stored it late may just have heard so.
func TestPromise2LateSourceStaysADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArchive(t)
		next := a.run(1, 70, time.Second)
		h, object := a.merged(1, raftlog.Sum{}, a.batch(1, next-1))
		a.put(h.Name(), object)
		late := repository.SegmentName{Timeline: timeline, First: 351}.String()
		data, err := sinks.Get(t.Context(), a.sink.Sink, late, 1<<20)
		require.NoError(t, err)
		require.NoError(t, a.sink.Sink.Delete(t.Context(), late))
		time.Sleep(36 * time.Hour)
		a.put(late, data)
		stored := time.Now()
		m := a.merger()
		for range 30 {
			time.Sleep(time.Hour)
			next = a.run(next, 1, 0)
			a.merge(m)
			if gone := slices.Contains(a.sink.deleted, late); gone != (time.Since(stored) >= 24*time.Hour) {
				t.Fatalf("gone after %s: %v", time.Since(stored), gone)
			}
		}
		if len(a.sink.deleted) < 60 {
			t.Errorf("only %d went", len(a.sink.deleted))
		}
		a.check()
	})
}

// Ages are those of the sink's own clock, which is known by what comes: a host
// whose clock is ahead removes nothing sooner.
func TestPromise2AgesAreTheSinksOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArchive(t)
		next := a.run(1, 70, time.Minute)
		m := a.merger()
		if r := a.merge(m); len(r.Merged) != 1 {
			t.Fatalf("%+v", r)
		}
		time.Sleep(48 * time.Hour) // by this clock; the sink gave no later time
		if r := a.merge(m); len(a.sink.deleted) != 0 {
			t.Fatalf("%d went: %+v", len(a.sink.deleted), r)
		}
		a.run(next, 1, 0)
		if a.merge(m); len(a.sink.deleted) == 0 {
			t.Fatal("nothing went after a day of the sink's own")
		}
		a.check()
	})
}

// The newest that archivers wrote stays at level 0, however long the cluster is
// quiet: who goes on from there finds it by its name.
func TestPromise2TheEndStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArchive(t)
		next := a.run(1, 70, time.Minute)
		m := a.merger()
		for day := range 4 {
			time.Sleep(25 * time.Hour)
			// The sink's clock is known by a mark of the quiet cluster.
			mark := raftlog.Mark{Index: next - 1, Term: 2, Time: time.Now(), Member: 1}
			require.NoError(t, segment.WriteMark(t.Context(), a.repo, timeline, mark))
			a.merge(m)
			left := a.level(0)
			if !slices.Contains(left, "00000000000002b3") { // 691
				t.Fatalf("day %d: the newest is gone; left are %v", day, left)
			}
			for _, name := range a.level(1) {
				if strings.HasSuffix(name, "00000000000002bc") { // 700
					t.Fatalf("day %d: the newest was merged: %s", day, name)
				}
			}
		}
		if len(a.sink.deleted) < 60 {
			t.Errorf("only %d went", len(a.sink.deleted))
		}
	})
}

// Promise 6: no merged segment spans a place where the chain breaks, or begins
// anew, though no index is missing there.
func TestPromise6MergedKeepsBreaks(t *testing.T) {
	for what, breaks := range map[string]func(*archive){
		"another chain": func(a *archive) {
			a.sum = a.sum.Next(raftlog.Entry{Index: 350, Term: 2, Data: []byte("of another history")})
		},
		"a chain start": func(a *archive) { a.chainStart = true },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newArchive(t)
				a.run(1, 35, time.Minute)
				breaks(a)
				a.run(351, 70, time.Minute)
				r := a.merge(a.merger())
				if len(r.Merged) != 2 || r.Merged[0].LastIndex != 350 || r.Merged[1].FirstIndex != 351 || len(r.Damaged) != 0 {
					t.Fatalf("merged %v, damaged %v", a.level(1), r.Damaged)
				}
				if r.Merged[1].ChainStart != (what == "a chain start") || r.Merged[1].Before == r.Merged[0].After {
					t.Errorf("header %+v", r.Merged[1])
				}
			})
		})
	}
}

// renew takes segments away, and stores what is written from index first to last in
// one, under the name of the first.
func (a *archive) renew(first, last uint64) {
	a.t.Helper()
	var before raftlog.Sum
	for _, h := range headers(a.t, a) {
		if h.Level > 0 || h.FirstIndex < first || h.LastIndex > last {
			continue
		}
		if h.FirstIndex == first {
			before = h.Before
		}
		require.NoError(a.t, a.sink.Sink.Delete(a.t.Context(), h.Name()))
	}
	h, object := a.merged(0, before, a.batch(first, last))
	a.put(h.Name(), object)
}

// Design, Names: what is under a name may be another object than the one that was
// read there: some were lost, and what they held was archived anew, and cut
// elsewhere. Nothing is decided by what the first one said.
func TestPromise2RenewedSource(t *testing.T) {
	for what, renew := range map[string]func(*archive){
		"before it is merged": func(a *archive) { a.renew(601, 611) },
		// One that was merged up to 690 reaches further now.
		"after it was": func(a *archive) {
			time.Sleep(time.Hour)
			a.run(701, 1, 0)
			a.merge(a.m)
			a.run(711, 1, 0)
			a.renew(681, 710)
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newArchive(t)
				a.run(1, 40, time.Minute)
				a.chainStart = true // merged up to here at first; what follows is read, and waits
				a.run(401, 30, time.Minute)
				a.m = a.merger()
				if r := a.merge(a.m); len(r.Merged) != 1 || r.Merged[0].LastIndex != 400 {
					t.Fatalf("merged %v", a.level(1))
				}
				renew(a)
				for range 10 {
					time.Sleep(3 * time.Hour)
					a.run(a.entries[len(a.entries)-1].Index+1, 1, 0)
					a.merge(a.m)
					a.check()
				}
				if len(a.sink.deleted) < 60 {
					t.Errorf("only %d went", len(a.sink.deleted))
				}
			})
		})
	}
}

// Also where the other object is as large: when it was stored distinguishes it from the first one.
func TestPromise2RenewedSourceOfTheSameSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArchive(t)
		a.run(1, 40, time.Minute)
		a.chainStart = true // merged up to here at first; what follows is read, and waits
		a.run(401, 30, time.Minute)
		m := a.merger()
		if r := a.merge(m); len(r.Merged) != 1 || r.Merged[0].LastIndex != 400 {
			t.Fatalf("merged %v", a.level(1))
		}
		all := headers(t, a)
		was := all[slices.IndexFunc(all, func(h segment.Header) bool { return h.Level == 0 && h.FirstIndex == 601 })]
		h, object := was, []byte(nil)
		for i := 0; h.After == was.After || h.Size() != was.Size() && i < 256; i++ { // which compress as well, one will be
			b := a.batch(601, 610)
			b.Entries[5].Data = bytes.Clone(b.Entries[5].Data)
			b.Entries[5].Data[0] = byte(i)
			h, object = a.merged(0, was.Before, b)
		}
		if h.Name() != was.Name() || h.Size() != was.Size() || h.After == was.After {
			t.Fatalf("%s of %d bytes is no other one under the name of %s of %d bytes", h.Name(), h.Size(), was.Name(), was.Size())
		}
		require.NoError(t, a.sink.Sink.Delete(t.Context(), was.Name()))
		a.put(h.Name(), object)
		time.Sleep(2 * time.Hour)
		a.run(701, 1, 0)
		if r := a.merge(m); len(r.Merged) != 2 || r.Merged[0].After != h.After || r.Merged[0].LastIndex != 610 {
			t.Fatalf("merged %v", a.level(1))
		}
	})
}

// Archivers may still be at what is younger than some minutes, also where there is
// enough of it.
func TestPromise3WhatIsNewSettlesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArchive(t)
		for i := range uint64(40) {
			a.write(entriesOf(1+10*i, 10, 1000)...)
		}
		m := segment.NewMerger(segment.MergeConfig{Repo: a.repo, Timeline: timeline, Tool: "test", Target: 4 << 10})
		for range 4 {
			time.Sleep(time.Minute)
			a.write(entriesOf(a.entries[len(a.entries)-1].Index+1, 1, 10)...)
			if r := a.merge(m); r.Removed+r.Marks != 0 || len(r.Merged) != 0 {
				t.Fatalf("merged at once: %v", a.level(1))
			}
		}
		time.Sleep(time.Minute)
		a.write(entriesOf(a.entries[len(a.entries)-1].Index+1, 1, 10)...)
		if r := a.merge(m); len(r.Merged) == 0 {
			t.Fatal("not merged when it had settled")
		}
		a.check()
	})
}
