package segment

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/walreplay/raftlog"
)

func object(t testing.TB, s sinks.Sink, name string) []byte {
	t.Helper()
	data, err := sinks.Get(t.Context(), s, name, 1<<20)
	require.NoError(t, err)
	return bytes.Clone(data)
}

func second(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }

func TestAliveMarks(t *testing.T) {
	for _, s := range []sinks.Sink{sinktest.NewMemory(), newDisk(t)} {
		repo := newRepo(t, s)
		var want []Heartbeat
		for i := range 70 {
			m := markOf(uint64(15+i/2), uint64(i%2), second(i))
			a := Heartbeat{1, testTimeline, m, nil}
			m.Time = m.Time.In(time.FixedZone("", -3600))
			require.NoError(t, WriteMark(t.Context(), repo, testTimeline, m))
			want = append(want, a)
		}
		require.NoError(t, WriteMark(t.Context(), repo, testTimeline, want[0].Mark), "a second time")
		var got []Heartbeat
		for a, err := range readMarks(t.Context(), repo, openLog(t, repo).Heartbeat()) {
			require.NoError(t, err)
			got = append(got, a)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v", got)
		}
		around := 0
		for _, err := range openLog(t, repo).MarksAround(t.Context(), 30) {
			require.NoError(t, err)
			around++
		}
		require.Equal(t, len(want), around, "no segment narrows them")
	}
}

// A mark that was altered, or moved to another name, is not believed, and hides
// no other.
func TestDamagedAliveMarks(t *testing.T) {
	s := sinktest.NewMemory()
	repo := newRepo(t, s)
	for i := range 3 {
		require.NoError(t, WriteMark(t.Context(), repo, testTimeline, markOf(15, 1, second(i))))
	}
	name := func(i int) string {
		return repository.MarkName{Timeline: testTimeline, Index: 15, Time: second(i), Member: 1}.String()
	}
	overwrite(t, s, name(1), object(t, s, name(0)))
	data := object(t, s, name(2))
	data[len(data)/2] ^= 1
	overwrite(t, s, name(2), data)
	good, bad := 0, 0
	for _, err := range readMarks(t.Context(), repo, openLog(t, repo).Heartbeat()) {
		if err == nil {
			good++
			continue
		}
		bad++
		wantDamaged(t, "mark", err)
	}
	if good != 1 || bad != 2 {
		t.Errorf("%d good, %d damaged", good, bad)
	}
	low, high, err := openLog(t, repo).At(t.Context(), second(5))
	if err != nil || high != nil || low == nil || !low.Time.Equal(second(0)) {
		t.Errorf("%v, %v, %v", low, high, err)
	}
}

// marksOf are the marks of all segments, and alive marks.
func marksOf(t testing.TB, l *Log) []raftlog.Mark {
	t.Helper()
	var all []raftlog.Mark
	for _, h := range l.marked(l.Headers()) {
		marks, err := l.marks(t.Context(), h)
		require.NoError(t, err)
		all = append(all, marks...)
	}
	for a, err := range readMarks(t.Context(), l.repo, l.Heartbeat()) {
		require.NoError(t, err)
		all = append(all, a.Mark)
	}
	return all
}

// --at does not read the whole log: only segments whose headers say that they
// may hold marks of that time.
func TestMarksAreNarrowedByHeaders(t *testing.T) {
	s := sinktest.NewFaulty(sinktest.NewMemory())
	var pieces []piece
	for i := range 50 {
		p := piece{"a", 1, uint64(1 + 10*i), uint64(10 + 10*i), 0, nil, 0}
		for j := range 10 {
			p.marks = append(p.marks, markOf(p.first+uint64(j), 1, second(10*i+j)))
		}
		pieces = append(pieces, p)
	}
	l := stored(t, s, pieces...)
	before := s.Calls(sinktest.Open)
	low, high, err := l.At(t.Context(), second(123).Add(time.Millisecond))
	if err != nil || low.Index != 124 || high.Index != 125 {
		t.Errorf("%v, %v, %v", low, high, err)
	}
	if low, high, err := l.At(t.Context(), second(123)); err != nil || low.Index != 124 || high.Index != 124 {
		t.Errorf("at the second: %v, %v, %v", low, high, err)
	}
	if n := s.Calls(sinktest.Open) - before; n > 4 {
		t.Errorf("%d reads", n)
	}
	before = s.Calls(sinktest.Open)
	var got []raftlog.Mark
	for m, err := range l.MarksAround(t.Context(), 100) {
		require.NoError(t, err)
		got = append(got, m)
	}
	if len(got) != 12 || got[0].Index != 90 || got[11].Index != 101 {
		t.Errorf("%v", got)
	}
	if n := s.Calls(sinktest.Open) - before; n != 3 {
		t.Errorf("%d reads", n)
	}
	if got := marksOf(t, l); len(got) != 500 {
		t.Errorf("%d marks", len(got))
	}
}

// Against the plain definition: over all marks, low is the highest index of
// those at or before, high the lowest of those at or after; clocks disagree.
func TestAtAgainstItsDefinition(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	rounds := 60
	if testing.Short() {
		rounds = 15
	}
	for round := range rounds {
		s := sinktest.NewMemory()
		repo := newRepo(t, s)
		var all []raftlog.Mark
		make := func(first, last uint64) (marks []raftlog.Mark) {
			for range random.IntN(5) {
				i := first + random.Uint64N(last-first+1)
				skew := random.IntN(1 + 60*round/rounds) // members' clocks are up to that far apart
				marks = append(marks, markOf(i, 1+random.Uint64N(3), second(int(i)+skew)))
			}
			all = append(all, marks...)
			return marks
		}
		for first := uint64(1); first < 100; first += 10 {
			// Some overlap those behind them, by a lot.
			p := piece{"a", 1, first, first + 9 + uint64(random.IntN(2)*random.IntN(30)), 0, nil, 0}
			p.marks = make(p.first, p.last)
			p.store(t, s)
			for _, m := range make(p.first, p.last) {
				require.NoError(t, WriteMark(t.Context(), repo, testTimeline, m))
			}
		}
		l := openLog(t, repo)
		for i := -5; i < 180; i += 3 {
			at := second(i)
			var low, high *raftlog.Mark
			for _, m := range all {
				if !m.Time.After(at) && (low == nil || m.Index > low.Index || m.Index == low.Index && m.Time.After(low.Time)) {
					low = &m
				}
				if !m.Time.Before(at) && (high == nil || m.Index < high.Index || m.Index == high.Index && m.Time.Before(high.Time)) {
					high = &m
				}
			}
			gotLow, gotHigh, err := l.At(t.Context(), at)
			if err != nil || !samePoint(gotLow, low) || !samePoint(gotHigh, high) {
				t.Fatalf("round %d at %d: %v %v %v, want %v %v", round, i, gotLow, gotHigh, err, low, high)
			}
		}
	}
}

func samePoint(a, b *raftlog.Mark) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Index == b.Index && a.Time.Equal(b.Time)
}

// A merged segment's marks stand for those of the ones that it replaces, and
// these for its own where it is damaged or gone.
func TestMarksOfMergedSegments(t *testing.T) {
	marks := []raftlog.Mark{markOf(5, 1, second(5)), markOf(15, 1, second(15))}
	small := []piece{{"a", 1, 1, 9, 0, marks[:1], 0}, {"a", 1, 10, 19, 0, marks[1:], 1}}
	merged := piece{"a", 1, 1, 19, 1, marks, 0}
	check := func(what string, l *Log) {
		t.Helper()
		got := marksOf(t, l) // some come twice while both levels are read
		slices.SortFunc(got, markOrder)
		if got = slices.Compact(got); !reflect.DeepEqual(got, marks) {
			t.Errorf("%s: %v", what, got)
		}
		if low, high, err := l.At(t.Context(), second(10)); err != nil || low == nil || high == nil || low.Index != 5 || high.Index != 15 {
			t.Errorf("%s: %v, %v, %v", what, low, high, err)
		}
	}
	remove := func(s sinks.Sink, p piece) {
		h, _ := p.encode(t)
		require.NoError(t, s.Delete(t.Context(), h.Name()))
	}
	s := sinktest.NewFaulty(sinktest.NewMemory())
	l := stored(t, s, append(small, merged)...)
	before := s.Calls(sinktest.Open)
	check("merged", l)
	if n := s.Calls(sinktest.Open) - before; n != 2 {
		t.Errorf("%d reads", n)
	}

	h, data := merged.encode(t)
	data[len(data)-1] ^= 1
	for _, what := range []string{"damaged", "damaged and known"} {
		overwrite(t, s, h.Name(), data)
		check(what, l)
	}

	for i := range 2 {
		s := sinktest.NewMemory()
		l := stored(t, s, small...)
		merged.store(t, s)
		remove(s, small[i])
		check("one gone", l)
	}

	sinkGone := sinktest.NewMemory()
	l = stored(t, sinkGone, append(small, merged)...)
	remove(sinkGone, merged)
	check("merged one gone", l)
}

func TestMarksWithoutIdentity(t *testing.T) {
	s := sinktest.NewMemory()
	repo := newRepo(t, s)
	piece{"a", 1, 1, 9, 0, []raftlog.Mark{markOf(5, 1, start)}, 0}.store(t, s, newIdentity(t).Recipient())
	l := openLog(t, repo)
	var missing *codec.IdentityError
	if _, _, err := l.At(t.Context(), start); !errors.As(err, &missing) {
		t.Errorf("At: %v", err)
	}
	for _, err := range l.MarksAround(t.Context(), 5) {
		if !errors.As(err, &missing) {
			t.Errorf("MarksAround: %v", err)
		}
	}
}
