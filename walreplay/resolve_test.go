package walreplay

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/logtest"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// story is a log with two backups: 1 join, 2 version, 3 put a (rev 2), 4 put b
// (rev 3), 5 lease, 6 put a (rev 4), 7 delete b (rev 5), 8 lease, 9 compact to 5,
// 10 put c (rev 6), 11 put d/1 (rev 7), 12 put a (rev 8).
func story(t *testing.T) *world {
	w := newWorld(t)
	w.put("a", "1")
	w.put("b", "1")
	w.lease(10)
	w.put("a", "2")
	w.delete("b")
	w.lease(11)
	w.compact(5)
	w.put("c", "1")
	w.put("d/1", "1")
	w.put("a", "3")
	w.backup(3)
	w.backup(8)
	return w
}

// Every target comes to its index, from the newest backup before it, and what is
// rebuilt is what a replay from the first entry gives.
func TestTargets(t *testing.T) {
	w := story(t)
	w.archive(4, 7, true, 4, 7)
	w.archive(8, 12, false, 10, 11, 12)
	h := w.history()
	for _, c := range []struct {
		target Target
		base   string
		index  uint64
	}{
		{Target{}, "b8", 12},
		{Target{Kind: AtIndex, Index: 12}, "b8", 12},
		{Target{Kind: AtIndex, Index: 8}, "b8", 8},
		{Target{Kind: AtIndex, Index: 7}, "b3", 7},
		{Target{Kind: AtIndex, Index: 3}, "b3", 3},
		// The last index of a revision: what moves none belongs to it.
		{Target{Kind: AtRevision, Revision: 3}, "b3", 5},
		{Target{Kind: AtRevision, Revision: 4}, "b3", 6},
		{Target{Kind: AtRevision, Revision: 5}, "b8", 9},
		{Target{Kind: AtRevision, Revision: 7}, "b8", 11},
		{Target{Kind: AtRevision, Revision: 8}, "b8", 12},
		{Target{Kind: AtTime, Time: timeOf(7)}, "b3", 7},
		{Target{Kind: AtTime, Time: timeOf(11)}, "b8", 11},
		{Target{Kind: AtTime, Time: timeOf(11).Add(500 * time.Millisecond)}, "b8", 11},
		{Target{Kind: AtTime, Time: timeOf(9), Nearest: true}, "b8", 8},
		{Target{Kind: AtTime, Time: timeOf(9).Add(time.Millisecond), Nearest: true}, "b8", 10},
		{Target{Kind: BeforeKey, Key: "a"}, "b3", 5}, // two changes within a minute
		{Target{Kind: BeforeKey, Key: "b"}, "b3", 6},
		{Target{Kind: BeforeKey, Key: "c"}, "b8", 9},
		{Target{Kind: BeforePrefix, Key: "d/"}, "b8", 10},
		{Target{Kind: BeforePrefix, Key: ""}, "b3", 3},
	} {
		t.Run(c.target.String(), func(t *testing.T) {
			w.t = t
			p, r := w.rebuild(h, c.target)
			facts, _ := r.Facts(t.Context())
			if p.Base.ID != c.base || facts.RaftIndex != c.index {
				t.Errorf("%s came to index %d from %s, want %d from %s", c.target, facts.RaftIndex, p.Base.ID, c.index, c.base)
			}
			if replayed := c.index != p.Base.Index(); replayed != (r.Recipe != nil) {
				t.Errorf("a recipe: %v", r.Recipe)
			}
			if r.Recipe != nil && (r.Recipe.Chain == nil || r.Recipe.Index != c.index || r.Recipe.Entries != c.index-p.Base.Index()) {
				t.Errorf("recipe %+v", r.Recipe)
			}
		})
	}
}

// What was found of a key is reported: whether it was changed or deleted, where and
// when.
func TestBeforeSays(t *testing.T) {
	w := story(t)
	w.archive(4, 7, true, 6, 7)
	w.archive(8, 12, false, 12)
	h := w.history()
	for key, want := range map[string]string{
		"a": `key "a" was last changed from revision 4, raft index 6, before 2026-01-02T15:00:06Z, to revision 8, raft index 12, between 2026-01-02T15:00:07Z and 2026-01-02T15:00:12Z`,
		"b": `key "b" was last deleted at revision 5, raft index 7, about 2026-01-02T15:00:07Z`,
	} {
		p, err := h.Resolve(t.Context(), Target{Kind: BeforeKey, Key: key}, "", w.options())
		require.NoError(t, err)
		if got := p.Found.String(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	_, err := h.Resolve(t.Context(), Target{Kind: BeforeKey, Key: "never"}, "", w.options())
	var refused *NotCoveredError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), `there is no key "never" in this history`) {
		t.Errorf("a key that never changed: %v", err)
	}
}

// Promise 3: what the log does not cover is refused, and the nearest points are
// named.
func TestNotCovered(t *testing.T) {
	w := story(t)
	w.archive(4, 5, true, 4, 5) // 6 to 8 are missing, and b8 goes on at 9
	w.archive(9, 11, true, 10, 11)
	h := w.history()
	for _, c := range []struct {
		target        Target
		before, after uint64
		text          string
	}{
		{Target{Kind: AtIndex, Index: 2}, 0, 3, "every full snapshot is from after it"},
		{Target{Kind: AtIndex, Index: 6}, 5, 8, "entries 6 to 8 are missing"},
		{Target{Kind: AtIndex, Index: 12}, 11, 0, "the log ends at raft index 11"},
		{Target{Kind: AtRevision, Revision: 1}, 0, 3, "the history of keys, not the state"},
		{Target{Kind: AtRevision, Revision: 4}, 5, 8, "entries 6 to 8 are missing"},
		{Target{Kind: AtRevision, Revision: 8}, 11, 0, "the log ends at raft index 11"},
		{Target{Kind: AtRevision, Revision: 1000}, 11, 0, "the log ends at raft index 11"},
		{Target{Kind: AtTime, Time: timeOf(0)}, 0, 3, "the first observation is from after it"},
		{Target{Kind: AtTime, Time: timeOf(7)}, 5, 8, "entries 6 to 8 were written at some time in the 3s"},
		{Target{Kind: AtTime, Time: timeOf(20)}, 11, 0, "--latest is the end of the log"},
	} {
		p, err := h.Resolve(t.Context(), c.target, "", w.options())
		if err == nil {
			_, err = h.Rebuild(t.Context(), p, w.options())
		}
		var refused *NotCoveredError
		if !errors.As(err, &refused) || !errors.Is(err, snapshot.ErrNoBackup) {
			t.Errorf("%s: %v", c.target, err)
			continue
		}
		if index(refused.Before) != c.before || index(refused.After) != c.after || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.target, err)
		}
	}
	// A backup that is named is the one to begin from.
	_, err := h.Resolve(t.Context(), Target{Kind: AtIndex, Index: 10}, "b3", w.options())
	require.ErrorIs(t, err, snapshot.ErrNoBackup, "index 10 from b3")
	_, err = h.Resolve(t.Context(), Target{}, "b9", w.options())
	require.ErrorIs(t, err, snapshot.ErrNoBackup, "a backup that is not there")
}

func index(n *Near) uint64 {
	if n == nil {
		return 0
	}
	return n.Index
}

// A revision in a range that the cluster compacted later is rebuilt exactly, with
// the history that it had then.
func TestCompactedRangeIsExact(t *testing.T) {
	w := story(t)
	w.archive(4, 12, true)
	_, r := w.rebuild(w.history(), Target{Kind: AtRevision, Revision: 4})
	facts, _ := r.Facts(t.Context())
	if facts.CompactedRevision != 0 || facts.Revision != 4 {
		t.Errorf("compacted %d, revision %d", facts.CompactedRevision, facts.Revision)
	}
}

// Promise 4: damage ends a restore with the last good point, which can be
// restored; a later backup makes it good.
func TestDamagedSegment(t *testing.T) {
	for _, where := range []int64{10, segmentMiddle} { // in the header, in the body
		t.Run(fmt.Sprint(where), func(t *testing.T) {
			w := story(t)
			w.archive(4, 4, true)
			bad := w.archive(5, 6, false)
			w.archive(7, 12, false)
			flip(t, w, bad.Name(), where)
			for _, target := range []Target{{Kind: AtIndex, Index: 6}, {Kind: AtIndex, Index: 7}} {
				h := w.history()
				p, err := h.Resolve(t.Context(), target, "", w.options())
				if err == nil {
					_, err = h.Rebuild(t.Context(), p, w.options())
				}
				var log *LogError
				var damaged *snapshot.DamagedError
				if !errors.As(err, &log) || !errors.As(err, &damaged) || log.Good.Index < 3 || log.Good.Index > 4 || !strings.Contains(err.Error(), bad.Name()) {
					t.Errorf("%s: %v", target, err)
				}
			}
			w.rebuild(w.history(), Target{Kind: AtIndex, Index: 4})
			w.rebuild(w.history(), Target{}) // from b8
			w.bases = w.bases[:1]
			h := w.history()
			p, err := h.Resolve(t.Context(), Target{}, "", w.options())
			if err == nil {
				_, err = h.Rebuild(t.Context(), p, w.options())
			}
			var log *LogError
			if !errors.As(err, &log) {
				t.Errorf("the end of a damaged log: %v", err)
			}
		})
	}
}

const segmentMiddle = 2100

func flip(t *testing.T, w *world, name string, at int64) {
	t.Helper()
	data, err := sinks.Get(t.Context(), w.repo.Sink(), name, 1<<20)
	require.NoError(t, err)
	data[at] ^= 1
	require.NoError(t, w.repo.Sink().Delete(t.Context(), name))
	_, err = sinks.Put(t.Context(), w.repo.Sink(), name, data, sinks.CreateOptions{})
	require.NoError(t, err)
}

// Promise 5: a log whose entry at the backup's index has another term is of
// another history.
func TestPromise6OtherHistory(t *testing.T) {
	w := story(t)
	w.archive(4, 12, true)
	w.bases[1].Facts.RaftTerm = 3
	h := w.history()
	p, err := h.Resolve(t.Context(), Target{}, "", w.options())
	if err == nil {
		_, err = h.Rebuild(t.Context(), p, w.options())
	}
	require.ErrorContains(t, err, "two histories", "another term")
}

// Promise 6: scratch folders go, those of a killed run with the next one.
func TestScratchIsRemoved(t *testing.T) {
	w := story(t)
	w.archive(4, 12, true)
	h := w.history()
	o := w.options()
	dead, err := NewScratchFolder(o.ScratchDir)
	require.NoError(t, err)
	if err := dead.lock.Close(); err != nil { // as the kernel does
		t.Fatal(err)
	}
	living, err := NewScratchFolder(o.ScratchDir)
	require.NoError(t, err)
	_, err = os.Stat(dead.path)
	require.ErrorIs(t, err, os.ErrNotExist, "the dead run's scratch is there")
	p, err := h.Resolve(t.Context(), Target{Kind: BeforeKey, Key: "a"}, "", o)
	require.NoError(t, err)
	r, err := h.Rebuild(t.Context(), p, o)
	require.NoError(t, err)
	info, err := os.Stat(r.scratch.path)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(r.scratch.database()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	require.NoError(t, r.Close())
	left, err := os.ReadDir(o.ScratchDir)
	if err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v; only the living run's may be there", left, err)
	}
	require.NoError(t, living.Remove())
}

// Promise 7: a recipe gives the same again, and another log does not pass.
func TestRecipeRepeats(t *testing.T) {
	w := story(t)
	w.archive(4, 12, true)
	h := w.history()
	_, r := w.rebuild(h, Target{Kind: AtRevision, Revision: 7})
	again, err := h.Repeat(t.Context(), r.Recipe, w.options())
	require.NoError(t, err)
	t.Logf("two replays gave files of %d and %d bytes", r.Size(), again.Size())
	require.NoError(t, again.Close())
	altered := *r.Recipe
	altered.HashKV.Hash++
	_, err = h.Repeat(t.Context(), &altered, w.options())
	require.ErrorContains(t, err, "another state", "another hash")
}

// The ranges that can be restored, and the gaps with their reasons. Before the first full
// snapshot nothing is missing, nor where the log does not reach back to.
func TestRanges(t *testing.T) {
	for name, c := range map[string]struct {
		archive func(w *world)
		want    []string
	}{
		"no log":                      {func(*world) {}, []string{"3-3 b3", "8-8 b8", "12-12 b12"}},
		"whole from before the first": {func(w *world) { w.archive(2, 12, true) }, []string{"3-12 b3"}},
		"deleted in the middle": {func(w *world) {
			w.archive(2, 5, true)
			lost := w.archive(6, 7, false)
			w.archive(8, 11, false, 11)
			require.NoError(w.t, w.repo.Sink().Delete(w.t.Context(), lost.Name()))
		}, []string{"3-5 b3", "6-7  gap damage: entries are missing in the log", "8-11 b8", "12-12 b12"}},
		"pruned up to the second": {func(w *world) { w.archive(9, 12, true) }, []string{"3-3 b3", "8-12 b8"}},
		"behind a new chain, and the newest": {func(w *world) {
			w.archive(2, 8, true)
			w.archive(14, 14, true)
		}, []string{"3-8 b3", "9-11  gap: entries are missing in the log", "12-12 b12", "13-14  gap damage: entries are missing in the log; the log goes on at raft index 14, but points need a full snapshot first"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := story(t)
			w.put("e", "1")
			w.put("e", "2")
			w.backup(12)
			c.archive(w)
			var got []string
			for _, r := range w.history().ranges() {
				line := fmt.Sprintf("%d-%d %s", r.FirstIndex, r.LastIndex, r.FirstBackup)
				if r.Gap {
					line += map[bool]string{true: " gap damage: ", false: " gap: "}[r.Damage] + r.Reason
				}
				got = append(got, line)
			}
			require.Equal(t, c.want, got)
		})
	}
}

// A search that is to begin from one image is not begun from another.
func TestBeforeKeepsToItsImage(t *testing.T) {
	w := story(t)
	w.archive(4, 8, true, 8) // the log ends where b8 stands
	h := w.history()
	target := Target{Kind: BeforeKey, Key: "b"}
	p, err := h.Resolve(t.Context(), target, "", w.options())
	if err != nil || p.Base.ID != "b3" {
		t.Fatalf("%+v, %v", p, err)
	}
	p, err = h.Resolve(t.Context(), target, "b8", w.options())
	var refused *NotCoveredError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "no log goes on from backup b8") {
		t.Errorf("%+v, %v", p, err)
	}
}

// Promise 4: where the log goes on behind a hole that no full snapshot closes, a
// later change may be there: the one that is known is reported, and is not taken for
// the last.
func TestPromise4BeforeAHoleIsNotTheLast(t *testing.T) {
	w := story(t)
	w.archive(4, 7, true, 7)
	w.archive(8, 10, false, 10)
	w.archive(12, 12, true, 12) // 11 is missing, and 12 changes a
	h := w.history()
	for key, want := range map[string]string{
		"c":     `key "c" was last changed at revision 6, raft index 10, between 2026-01-02T15:00:07Z and 2026-01-02T15:00:10Z, as far as is known: --index 9 restores`,
		"a":     `key "a" was last changed at revision 4, raft index 6`,
		"never": `there is no key "never" in this history`,
	} {
		p, err := h.Resolve(t.Context(), Target{Kind: BeforeKey, Key: key}, "", w.options())
		var refused *NotCoveredError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "with entries 12 to 12, but 11 to 11 are missing") {
			t.Errorf("%s: %+v, %v", key, p, err)
		}
	}
	// A snapshot behind the hole makes what is behind it searchable; what it
	// does not show is refused as before.
	w.backup(11)
	p, err := w.history().Resolve(t.Context(), Target{Kind: BeforeKey, Key: "a"}, "", w.options())
	if err != nil || p.Found.Burst.Last.Index != 12 {
		t.Errorf("behind the hole: %+v, %v", p, err)
	}
}

// Promise 4: a clock that was set back shows times twice. Which pass is meant
// nobody knows, however close the observations around the time are; clocks that
// differ by less than a second are no such thing.
func TestPromise4AtATimeThatCameTwice(t *testing.T) {
	for _, c := range []struct {
		times []float64 // of entries 4 to 12, in seconds
		at    float64
		want  string
	}{
		// Back by a minute at entry 6, and over the same time again at 10.
		{[]float64{100, 101, 41, 60, 80, 99, 100.4, 100.6, 110}, 100.5, "at about raft index 5 and again at about 10"},
		{[]float64{100, 100.5, 41, 60, 80, 99, 100.4, 100.6, 110}, 100.4, "at about raft index 5 and again at about 10"},
		{[]float64{100, 101, 41, 60, 80, 99, 100.4, 100.6, 110}, 70, ""}, // only once, but nobody looked near it
		{[]float64{100, 101, 41, 60, 80, 99, 100.4, 101.4, 110}, 105, ""},
		// Two archivers, a third of a second apart.
		{[]float64{98, 99, 99.5, 100.2, 100.4, 100.1, 100.3, 101, 102}, 100.25, "9"},
	} {
		w := story(t)
		b := segment.Batch{Entries: w.entries[3:12]}
		for i, s := range c.times {
			b.Marks = append(b.Marks, raftlog.Mark{Index: uint64(4 + i), Term: 2, Time: clockStart.Add(time.Duration(s*1000) * time.Millisecond), Member: 1})
		}
		logtest.Archive(t, w.repo, w.id, raftlog.Sum{}, b, clockStart, codec.Options{})
		target := Target{Kind: AtTime, Time: clockStart.Add(time.Duration(c.at*1000) * time.Millisecond)}
		p, err := w.history().Resolve(t.Context(), target, "", w.options())
		var refused *NotCoveredError
		if got := fmt.Sprint(err); err == nil && fmt.Sprint(p.Last) != c.want || err != nil && (!errors.As(err, &refused) || c.want == "9" || !strings.Contains(got, c.want)) {
			t.Errorf("at %v of %v: %+v, %v", c.at, c.times, p, err)
		}
		if target.Nearest = true; err != nil {
			if _, err := w.history().Resolve(t.Context(), target, "", w.options()); err != nil {
				t.Errorf("the nearest observation to %v of %v: %v", c.at, c.times, err)
			}
		}
	}
}

// Segments that know no revision, as those that were read late, count with what
// they can have moved it by.
func TestHighestRevisionIsNotBelowTheLog(t *testing.T) {
	w := story(t)
	w.archive(4, 7, true)
	known := w.rev[12]
	clear(w.rev[8:])
	w.archive(8, 12, false)
	c := &snapshot.Catalog{Timelines: []repository.Timeline{{ID: w.id}}}
	got, err := NewInventory(w.repo, c).HighestRevision(t.Context())
	if err != nil || got < known || got > w.rev[7]+9 {
		t.Errorf("highest revision %d, want %d at least and not more than the entries can make (%v)", got, known, err)
	}
}
