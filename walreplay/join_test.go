package walreplay

import (
	"context"
	"errors"
	"iter"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// someLog is somebody's log in memory, with the entries from first on.
type someLog struct {
	member
	all []raftlog.Entry
}

func (l *someLog) Coverage() []segment.Coverage {
	return []segment.Coverage{{FirstIndex: l.all[0].Index, LastIndex: l.all[len(l.all)-1].Index}}
}

func (l *someLog) size(first, last uint64) int64 { return int64(last-first+1) * 100 }

func (l *someLog) Entries(_ context.Context, first, last uint64) iter.Seq2[raftlog.Entry, error] {
	return func(yield func(raftlog.Entry, error) bool) {
		for _, e := range l.all {
			if e.Index >= first && e.Index <= last && !yield(e, nil) {
				return
			}
		}
	}
}

// someones is the history of a member that has the entries from first to last.
func (w *world) someones(name string, first, last uint64) *History {
	return &History{Name: name, log: &someLog{all: slices.Clone(w.entries[first-1 : last])}}
}

// file is the database after an entry as a member's file.
func (w *world) file(index uint64) *Base {
	w.t.Helper()
	image, _ := w.at(index)
	b, err := OpenBase(w.t.Context(), image.Name())
	require.NoError(w.t, err)
	return b
}

// joinedWorld is archived up to entry mid and goes on in a member's log: a full
// snapshot lies at entry base, and keys change on both sides of mid.
func joinedWorld(t *testing.T) (w *world, base *Base, mid, end uint64) {
	t.Helper()
	w = newWorld(t)
	w.put("a", "1")
	w.put("b", "1")
	base = w.backup(w.put("early", "1"))
	w.put("a", "2")
	w.lease(5)
	mid = w.put("a", "3")
	w.delete("b")
	w.put("a/1", "1")
	w.compact(w.rev[mid])
	w.put("late", "1")
	end = w.put("a/2", "1")
	w.put("beyond", "1")
	w.archive(1, mid, true, base.Index(), mid-1, mid)
	return w, base, mid, end
}

func (w *world) joined(base *Base, parts ...Part) *History {
	w.t.Helper()
	h, err := Join(w.t.Context(), "the joined", base, parts)
	require.NoError(w.t, err)
	return h
}

// Design, Choosing among survivors: an archive is extended by a survivor's log.
// What is replayed is what one log would have given, at every kind of target,
// and nothing behind the last part.
func TestJoinedTargets(t *testing.T) {
	t.Parallel()
	w, base, mid, end := joinedWorld(t)
	h := w.joined(base, Part{"archive", w.history(), base.Index() + 1, mid}, Part{"m1", w.someones("m1", 2, end+1), mid + 1, end})
	for _, c := range []struct {
		target Target
		last   uint64
	}{
		{Target{}, end},
		{Target{Kind: AtIndex, Index: end}, end},
		{Target{Kind: AtIndex, Index: mid}, mid},
		{Target{Kind: AtIndex, Index: mid - 1}, mid - 1},
		{Target{Kind: AtRevision, Revision: w.rev[mid+1]}, mid + 1},
		{Target{Kind: AtRevision, Revision: w.rev[end]}, end},
		{Target{Kind: AtTime, Time: timeOf(mid)}, mid},
		{Target{Kind: AtTime, Time: timeOf(mid - 1)}, mid - 1},
		{Target{Kind: BeforeKey, Key: "late"}, end - 2},
		{Target{Kind: BeforePrefix, Key: "a/"}, mid + 1},
	} {
		p, r := w.rebuild(h, c.target)
		if p.Last > end || r.Recipe == nil || r.Recipe.Index != c.last {
			t.Errorf("%s: point %+v, recipe %+v, want entry %d", c.target, p, r.Recipe, c.last)
		}
	}
	for _, c := range []Target{
		{Kind: AtIndex, Index: end + 1},
		{Kind: AtRevision, Revision: w.rev[end+1]},
		{Kind: AtTime, Time: timeOf(end)}, // nothing says when the survivor's entries were
		{Kind: BeforeKey, Key: "beyond"},
		{Kind: AtIndex, Index: base.Index() - 1},
	} {
		o := w.options()
		p, err := h.Resolve(t.Context(), c, "", o)
		if err == nil {
			_, err = h.Rebuild(t.Context(), p, o)
		}
		var not *NotCoveredError
		if !errors.As(err, &not) || !errors.Is(err, snapshot.ErrNoBackup) {
			t.Errorf("%s: %v", c, err)
		}
	}
}

// The recipe names the image that was begun from, and the archive's chain value as far as the archive
// goes.
func TestJoinedRecipe(t *testing.T) {
	t.Parallel()
	w, base, mid, end := joinedWorld(t)
	h := w.joined(base, Part{"", w.history(), base.Index() + 1, mid}, Part{"m1", w.someones("m1", 2, end+1), mid + 1, end})
	_, whole := w.rebuild(h, Target{})
	_, early := w.rebuild(h, Target{Kind: AtIndex, Index: mid})
	if whole.Recipe.Base != base.ID || whole.Recipe.Timeline != w.id || !whole.HasHash() {
		t.Errorf("%+v", whole.Recipe)
	}
	if early.Recipe.Chain == nil || *early.Recipe.Chain != w.sums[mid] || whole.Recipe.Chain != nil {
		t.Errorf("%+v and %+v: the archive has a chain value at %d, and none after it", early.Recipe, whole.Recipe, mid)
	}
}

// An image without a log is the state itself. A member's file is copied first,
// and has no checksum.
func TestJoinedWithoutLog(t *testing.T) {
	t.Parallel()
	w, base, _, _ := joinedWorld(t)
	p, r := w.rebuild(w.joined(base), Target{})
	if !p.AsIs || r.Recipe != nil {
		t.Errorf("a full snapshot: %+v, %+v", p, r.Recipe)
	}
	file := w.file(base.Index())
	p, r = w.rebuild(w.joined(file), Target{})
	if p.AsIs || r.Recipe == nil || r.Recipe.Image != filepath.Base(file.Name) || r.Recipe.Base != "" || r.Recipe.Entries != 0 || r.HasHash() {
		t.Errorf("a member's file: %+v, %+v", p, r.Recipe)
	}
}

// Promise 6 of the design: what is not seen to be of one history is not joined.
func TestPromise6JoinRefuses(t *testing.T) {
	t.Parallel()
	w, stored, mid, end := joinedWorld(t)
	base := w.file(stored.Index())
	at := base.Index()
	changed := func(index uint64, change func(*raftlog.Entry)) *History {
		h := w.someones("other", 1, end)
		change(&h.log.(*someLog).all[index-1])
		return h
	}
	own := func(first uint64) *History {
		h := w.someones("own", first, end)
		h.bases = []*Base{base}
		return h
	}
	termless := w.file(at)
	termless.Facts.RaftTerm = 0
	m1, m2 := w.someones("m1", 1, end), w.someones("m2", 1, end)
	for _, c := range []struct {
		name   string
		base   *Base
		parts  []Part
		reason string // empty: it joins
	}{
		{"its own log right after it", base, []Part{{"", own(at + 1), at + 1, end}}, ""},
		{"its own log", base, []Part{{"", own(1), at + 1, end}}, ""},
		{"another's log over it", base, []Part{{"", m1, at + 1, end}}, ""},
		{"another's log from its last entry on", base, []Part{{"", m1, at, end}}, ""},
		{"two parts of one", base, []Part{{"", m1, at + 1, mid}, {"", m1, mid + 1, end}}, ""},
		{"two that meet", base, []Part{{"", m1, at + 1, mid}, {"", w.someones("m2", mid, end), mid + 1, end}}, ""},
		{"the image's term", base, []Part{{"", changed(at, func(e *raftlog.Entry) { e.Term++ }), at + 1, end}}, "two histories"},
		{"its own log of another term", base, []Part{{"", func() *History {
			h := changed(at, func(e *raftlog.Entry) { e.Term++ })
			h.bases = []*Base{base}
			return h
		}(), at + 1, end}}, "two histories"},
		{"another's log right after it", base, []Part{{"", w.someones("m1", at+1, end), at + 1, end}}, "nothing shows"},
		{"no term", termless, []Part{{"", m1, at + 1, end}}, "two histories"},
		{"a hole after the image", base, []Part{{"", m1, at + 2, end}}, "ends there"},
		{"a part before the image", base, []Part{{"", m1, 1, at - 1}}, "ends there"},
		{"the term where parts meet", base, []Part{{"", m1, at + 1, mid}, {"", changed(mid, func(e *raftlog.Entry) { e.Term++ }), mid + 1, end}}, "two histories"},
		{"the content where parts meet", base, []Part{{"", m1, at + 1, mid}, {"", changed(mid, func(e *raftlog.Entry) { e.Data = []byte("x") }), mid + 1, end}}, "two histories"},
		{"parts that only touch", base, []Part{{"", m1, at + 1, mid}, {"", w.someones("m2", mid+1, end), mid + 1, end}}, "nothing shows"},
		{"a hole between parts", base, []Part{{"", m1, at + 1, mid}, {"", m2, mid + 2, end}}, "begins with raft index"},
		{"parts that overlap", base, []Part{{"", m1, at + 1, mid}, {"", m2, mid, end}}, "begins with raft index"},
		{"more than the log holds", base, []Part{{"", m1, at + 1, end + 1}}, "does not hold"},
		{"an empty part", base, []Part{{"", m1, at + 1, at}}, "ends before it begins"},
	} {
		_, err := Join(t.Context(), "the joined", c.base, c.parts)
		var refused *JoinError
		switch {
		case c.reason == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.reason != "" && (!errors.As(err, &refused) || !strings.Contains(err.Error(), c.reason)):
			t.Errorf("%s: %v, want a JoinError with %q", c.name, err, c.reason)
		}
	}
	_, err := Join(t.Context(), "the joined", nil, nil)
	require.Error(t, err, "nothing to begin from")
}

// What an archive saw behind the end of its part is of no known history.
func TestJoinedClockEndsWithThePart(t *testing.T) {
	t.Parallel()
	w, base, mid, end := joinedWorld(t)
	h := w.joined(base, Part{"archive", w.history(), base.Index() + 1, mid - 1}, Part{"m1", w.someones("m1", 2, end), mid, end})
	o := w.options()
	var not *NotCoveredError
	if p, err := h.Resolve(t.Context(), Target{Kind: AtTime, Time: timeOf(mid)}, "", o); !errors.As(err, &not) || not.Before == nil || not.Before.Index != mid-1 {
		t.Errorf("%+v, %v: the nearest point is %d", p, err, mid-1)
	}
	p, err := h.Resolve(t.Context(), Target{Kind: AtTime, Time: timeOf(mid), Nearest: true}, "", o)
	if err != nil || p.Last != mid-1 {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err = h.Resolve(t.Context(), Target{}, "", o); err != nil || p.Last != end || p.Time != "after "+instant(timeOf(mid-1)) {
		t.Errorf("%+v, %v", p, err)
	}
	h = w.joined(base, Part{"m1", w.someones("m1", 2, end), base.Index() + 1, end})
	_, err = h.Resolve(t.Context(), Target{Kind: AtTime, Time: base.Taken}, "", o)
	require.ErrorContains(t, err, "has none")
}

// endless is a log whose entries are made as they are read.
type endless struct {
	*member
	last uint64
}

func (l endless) Coverage() []segment.Coverage {
	return []segment.Coverage{{FirstIndex: 1, LastIndex: l.last}}
}

func (l endless) size(first, last uint64) int64 { return int64(last-first+1) * 1000 }

func (l endless) Entries(_ context.Context, first, last uint64) iter.Seq2[raftlog.Entry, error] {
	return func(yield func(raftlog.Entry, error) bool) {
		for i := first; i <= last; i++ {
			if !yield(raftlog.Entry{Index: i, Term: 2, Data: make([]byte, 1000)}, nil) {
				return
			}
		}
	}
}

// Memory holds no more of a log that is joined than the entry that goes by.
func TestJoinedMemoryIsFlat(t *testing.T) {
	const last = 200_000 // 200 MB
	one, other := &History{Name: "m1", log: endless{last: last}}, &History{Name: "m2", log: endless{last: last}}
	h, err := Join(t.Context(), "the joined", &Base{Name: "nothing"}, []Part{{"", one, 1, last / 2}, {"", other, last/2 + 1, last}})
	require.NoError(t, err)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, most, n := heap(), uint64(0), 0
	for _, err := range h.Entries(t.Context(), 1) {
		require.NoError(t, err)
		if n++; n%(last/10) == 0 {
			most = max(most, heap())
		}
	}
	if n != last || most > before+4<<20 {
		t.Errorf("%d entries, and the heap went from %d to %d bytes", n, before, most)
	}
}
