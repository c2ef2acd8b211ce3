package segment_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// Small segments become a large one after an hour; what they held is all there.
func TestPromise1MergeByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArchive(t)
		m := a.merger()
		next := a.run(1, 20, time.Minute)
		if r := a.merge(m); r.Removed+r.Marks != 0 || len(a.level(1)) != 0 {
			t.Fatalf("merged too early: %+v", r)
		}
		a.run(next, 50, time.Minute)
		r := a.merge(m)
		if len(r.Merged) != 1 || r.Sources < 50 || len(r.Damaged) != 0 {
			t.Fatalf("got %d merged of %d sources", len(r.Merged), r.Sources)
		}
		h := r.Merged[0]
		if h.FirstIndex != 1 || h.Marks != r.Sources || h.Revision != int64(h.LastIndex) || h.Level != 1 {
			t.Fatalf("header %+v", h)
		}
		if len(a.level(0)) != 70 {
			t.Fatal("sources went at once")
		}
		a.check()
		if r := a.merge(m); len(r.Merged) != 0 {
			t.Fatalf("the same again: %+v", r)
		}
	})
}

// A run that reaches the size is merged at once, in several objects where it
// is long, none of them larger than that.
func TestMergeBySize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArchive(t)
		for i := range uint64(40) {
			a.write(entriesOf(1+10*i, 10, 1000)...)
			time.Sleep(time.Second)
		}
		time.Sleep(6 * time.Minute)
		a.run(401, 2, time.Second)
		m := segment.NewMerger(segment.MergeConfig{Repo: a.repo, Timeline: timeline, Tool: "test", Target: 4 << 10})
		r := a.merge(m)
		if len(r.Merged) == 0 {
			t.Fatal("nothing was merged")
		}
		m = segment.NewMerger(segment.MergeConfig{Repo: a.repo, Timeline: timeline, Tool: "test", Target: 64 << 10})
		r = a.merge(m)
		for _, h := range r.Merged {
			if h.Object.RawSize > 64<<10 {
				t.Errorf("%s has %d bytes", h.Name(), h.Object.RawSize)
			}
		}
		a.check()
	})
}

// Promise 2: what is superseded goes a day after the merged object came, not
// before, and the newest one never.
func TestPromise2And3KeepForADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArchive(t)
		m := a.merger()
		a.run(1, 70, time.Minute)
		if r := a.merge(m); len(r.Merged) != 1 {
			t.Fatalf("%+v", r)
		}
		stored := time.Now()
		next := uint64(701)
		for range 30 {
			time.Sleep(time.Hour)
			next = a.run(next, 1, 0) // the sink's clock is known by what comes
			a.merge(m)
			if time.Since(stored) < 24*time.Hour && len(a.sink.deleted) > 0 {
				t.Fatalf("%v was removed after %s", a.sink.deleted, time.Since(stored))
			}
			newest := fmt.Sprintf("%016x", next-10)
			if !slices.Contains(a.level(0), newest) {
				t.Fatalf("the newest segment %s is gone", newest)
			}
		}
		if len(a.sink.deleted) < 50 {
			t.Fatalf("only %d were removed", len(a.sink.deleted))
		}
		a.check()
	})
}

// Promise 2: a merged object that is damaged replaces nothing.
func TestPromise2DamagedMergedObjectReplacesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArchive(t)
		m := a.merger()
		a.run(1, 70, time.Minute)
		name := a.merge(m).Merged[0].Name()
		flip(t, a, name)
		time.Sleep(25 * time.Hour)
		a.run(711, 1, 0)
		r := a.merge(m)
		if len(a.sink.deleted) != 0 || len(r.Damaged) == 0 || !strings.Contains(r.Damaged[0].Error(), name) {
			t.Fatalf("removed %v, damage %v", a.sink.deleted, r.Damaged)
		}
		a.check()
	})
}

// A damaged source is named and stays; what is around it is merged.
func TestMergeAroundDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArchive(t)
		a.run(1, 70, time.Minute)
		name := repository.SegmentName{Timeline: timeline, First: 101}.String()
		flip(t, a, name)
		r := a.merge(a.merger())
		if len(r.Damaged) != 1 || !strings.Contains(r.Damaged[0].Error(), name) {
			t.Fatalf("damage %v", r.Damaged)
		}
		if len(r.Merged) != 3 || r.Merged[0].LastIndex != 100 || r.Merged[1].FirstIndex != 111 {
			t.Fatalf("merged %v", a.level(1))
		}
		if !r.Merged[0].ChainStart || r.Merged[1].ChainStart {
			t.Fatal("the chain was begun anew after the damage")
		}
	})
}

func flip(t *testing.T, a *archive, name string) {
	t.Helper()
	data, err := sinks.Get(t.Context(), a.sink.Sink, name, 1<<30)
	require.NoError(t, err)
	data = bytes.Clone(data)
	data[len(data)-10] ^= 1
	require.NoError(t, a.sink.Sink.Delete(t.Context(), name))
	_, err = sinks.Put(t.Context(), a.sink.Sink, name, data, sinks.CreateOptions{})
	require.NoError(t, err)
	// The object is as old as it was, as far as the tests go.
	time.Sleep(time.Hour)
	a.run(a.entries[len(a.entries)-1].Index+1, 1, 0)
}

// Promise 4: no merged segment spans a gap, nor the chain start behind it, also
// after the gap was filled.
func TestPromise4Boundaries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArchive(t)
		m := a.merger()
		a.run(1, 10, time.Minute) // 1 to 100
		left := a.sum
		a.chainStart = true
		next := a.run(201, 70, time.Minute)
		end := a.sum
		r := a.merge(m)
		if len(r.Merged) != 2 || r.Merged[0].LastIndex != 100 || r.Merged[1].FirstIndex != 201 || !r.Merged[1].ChainStart {
			t.Fatalf("merged %v", a.level(1))
		}
		// The filler holds the first entry behind the gap as well.
		a.sum = left
		fill := append(entriesOf(101, 100, 100), entriesOf(201, 1, 100)...)
		a.write(fill...)
		a.entries = slices.DeleteFunc(a.entries, func(e raftlog.Entry) bool { return e.Index > 100 })
		a.entries = append(a.entries, entriesOf(101, int(next)-101, 100)...)
		a.sum = end
		for range 30 {
			time.Sleep(time.Hour)
			next = a.run(next, 1, 0)
			a.merge(m)
			a.check()
		}
		for _, h := range headers(t, a) {
			if h.Level > 0 && h.FirstIndex < 201 && h.LastIndex > 201 {
				t.Errorf("%s spans the chain start at 201", h.Name())
			}
		}
	})
}

func headers(t *testing.T, a *archive) []segment.Header {
	t.Helper()
	l, err := segment.OpenLog(t.Context(), a.repo, timeline, nil)
	require.NoError(t, err)
	return l.Headers()
}

// Hours become days, days months: years of a quiet cluster stay few objects,
// and every entry is still there.
func TestHigherLevels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArchive(t)
		m := a.merger()
		next, every := uint64(1), time.Hour
		if testing.Short() {
			every = 4 * time.Hour
		}
		for range 36 * 24 * time.Hour / every {
			time.Sleep(every)
			a.write(entriesOf(next, 5, 10)...)
			next += 5
			a.merge(m)
		}
		a.check()
		total := len(a.level(0)) + len(a.level(1)) + len(a.level(2)) + len(a.level(3))
		t.Logf("%d, %d, %d, %d objects at levels 0 to 3", len(a.level(0)), len(a.level(1)), len(a.level(2)), len(a.level(3)))
		if len(a.level(2)) == 0 || len(a.level(3)) == 0 || total > 250 {
			t.Fatalf("%d objects", total)
		}
	})
}

// Promise 6: killed at any call, by any number of hosts, the log stays whole
// and the work is done in the end.
func TestPromise6KilledAnywhere(t *testing.T) {
	n, every, least := 70, time.Minute, 50
	if testing.Short() {
		n, every, least = 20, 4*time.Minute, 14
	}
	for at := 1; ; at++ {
		done := false
		synctest.Test(t, func(t *testing.T) {
			a := newArchive(t)
			next := a.run(1, n, every)
			a.merge(a.merger())
			time.Sleep(25 * time.Hour)
			next = a.run(next, n, every)

			a.sink.failAt = at
			_, err := a.merger().Merge(t.Context())
			if !a.sink.fired {
				done = true
			} else if !errors.Is(err, errKilled) {
				t.Fatalf("killed at call %d: %v", at, err)
			}
			a.sink.failAt, a.sink.fired = 0, false
			a.check()
			// The victim comes back after a restart, and so do others.
			a.merge(a.merger())
			a.check()
			other := a.merger()
			for range 4 {
				time.Sleep(time.Hour)
				next = a.run(next, 1, 0)
				a.merge(other)
			}
			a.check()
			if len(a.sink.deleted) < least {
				t.Fatalf("killed at call %d: only %d superseded segments are gone", at, len(a.sink.deleted))
			}
		})
		if done {
			if at < 20 {
				t.Fatalf("only %d calls: nothing was interrupted", at)
			}
			return
		}
		if at > 10 {
			at += 9 // the removals are all alike
			if testing.Short() {
				at += 20
			}
		}
	}
}

// Without an identity encrypted segments cannot be merged, which is said and
// harms nothing. With one they are, and stay encrypted.
func TestMergeEncrypted(t *testing.T) {
	id, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		a := newArchive(t)
		a.codec.Recipients = []age.Recipient{id.Recipient()}
		a.run(1, 70, time.Minute)
		var missing *segment.NoIdentityError
		if _, err := a.merger().Merge(t.Context()); !errors.As(err, &missing) {
			t.Fatalf("got %v, want a *NoIdentityError", err)
		}
		if len(a.level(1)) != 0 {
			t.Fatal("merged without an identity")
		}
		c := segment.MergeConfig{Repo: a.repo, Timeline: timeline, Identities: []age.Identity{id}}
		_, err := segment.NewMerger(c).Merge(t.Context())
		require.ErrorContains(t, err, "recipients", "encrypted entries were to be stored in plain text")
		c.Codec = a.codec
		r, err := segment.NewMerger(c).Merge(t.Context())
		if err != nil || len(r.Merged) != 1 || !r.Merged[0].Object.Encrypted() {
			t.Fatalf("got %+v, %v", r, err)
		}
		a.check(id)
	})
}

// A lock and a missing right keep what is superseded; both are reported, and
// neither keeps the rest from being merged.
func TestLockedAndDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArchive(t)
		m := a.merger()
		next := a.run(1, 70, time.Minute)
		a.merge(m)
		time.Sleep(25 * time.Hour)
		next = a.run(next, 1, 0)
		a.sink.denied = true
		if r := a.merge(m); !errors.Is(r.Denied, sinks.ErrDenied) || r.Removed != 0 {
			t.Fatalf("got %+v", r)
		}
		a.sink.denied = false
		a.sink.locked = func(name string) bool { return strings.HasSuffix(name, "1") }
		time.Sleep(time.Hour)
		next = a.run(next, 1, 0)
		if r := a.merge(m); r.Locked == 0 || r.Removed == 0 {
			t.Fatalf("got %+v", r)
		}
		a.sink.locked = nil
		time.Sleep(25 * time.Hour)
		a.run(next, 1, 0)
		a.merge(m)
		if len(a.level(0)) > 5 {
			t.Fatalf("what was locked is still there: %v", a.level(0))
		}
		a.check()
	})
}

// Promise 5: an idle cluster's marks are thinned out; the first and the last of
// each stay.
func TestPromise5Marks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArchive(t)
		m := a.merger()
		a.run(1, 2, time.Second)
		put := func(index, member uint64) {
			mark := raftlog.Mark{Index: index, Term: 2, Time: time.Now(), Member: member}
			require.NoError(t, segment.WriteMark(t.Context(), a.repo, timeline, mark))
		}
		for range 2 * 1440 {
			put(20, 1)
			put(20, 2)
			time.Sleep(time.Minute)
		}
		r := a.merge(m)
		// Of the first day all but the first of each member.
		if r.Marks < 2*1440-10 || r.Marks > 2*1440 {
			t.Fatalf("%d marks removed", r.Marks)
		}
		time.Sleep(25 * time.Hour)
		put(20, 1)
		put(20, 2)
		a.merge(m)
		left := map[uint64][]segment.Heartbeat{}
		l, err := segment.OpenLog(t.Context(), a.repo, timeline, nil)
		require.NoError(t, err)
		for _, n := range l.Heartbeat() {
			k, err := segment.ReadMark(t.Context(), a.repo, n)
			require.NoError(t, err)
			left[k.Member] = append(left[k.Member], k)
		}
		if len(left[1]) != 2 || len(left[2]) != 2 {
			t.Fatalf("left are %d and %d marks", len(left[1]), len(left[2]))
		}
		if d := left[2][1].Time.Sub(left[2][0].Time); d < 72*time.Hour {
			t.Fatalf("the first and the last are %s apart", d)
		}
		// The last one says how long the member was there: it stays when it is old.
		a.run(21, 1, 0)
		for i := range 120 {
			put(30, 1)
			time.Sleep(time.Duration(i%2) * time.Hour)
		}
		a.merge(m)
		for _, want := range []segment.Heartbeat{left[1][1], left[2][1]} {
			_, err = segment.ReadMark(t.Context(), a.repo, repository.MarkName{Timeline: timeline, Index: 20, Time: want.Time, Member: want.Member})
			require.NoError(t, err, "the last mark of member %d", want.Member)
		}
	})
}

// A model that knows only what was written, against random logs with gaps,
// chain starts, terms and sizes, merged at random times by random hosts.
func TestMergeAgainstModel(t *testing.T) {
	seeds := uint64(8)
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			a := newArchive(t)
			hosts := []*segment.Merger{a.merger(), a.merger()}
			next := uint64(1)
			for range 150 {
				switch rng.IntN(12) {
				case 0:
					next, a.chainStart = next+uint64(rng.IntN(50)), true
				case 1, 2:
					time.Sleep(time.Duration(rng.Int64N(int64(20 * time.Hour))))
				case 3, 4:
					a.merge(hosts[rng.IntN(2)])
				default:
					n := 1 + rng.IntN(30)
					a.write(entriesOf(next, n, rng.IntN(4000))...)
					next += uint64(n)
					time.Sleep(time.Duration(rng.Int64N(int64(10 * time.Minute))))
				}
			}
			a.check()
		})
	}
}
