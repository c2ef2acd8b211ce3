package segment

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/walreplay/raftlog"
)

func TestSpansAndGaps(t *testing.T) {
	s := sinktest.NewMemory()
	repo := newRepo(t, s)
	pieces := append(run("a", 0, 10, 20, 30), run("a", 0, 40, 50, 61)...)              // 30 to 39 are missing
	pieces = append(pieces, run("a", 0, 60, 70)...)                                    // joined by an overlap
	pieces = append(pieces, run("a", 0, 70, 80)...)                                    // nothing missing, not joined
	pieces = append(pieces, piece{"a", 10, 10, 29, 1, nil, 0}, run("a", 0, 85, 90)[0]) // merged; 80 to 84 are missing
	pieces[0].marks = []raftlog.Mark{markOf(15, 1, start.Add(time.Minute))}
	pieces[1].marks = []raftlog.Mark{markOf(25, 1, start)} // by a clock that is behind
	for _, p := range pieces {
		p.store(t, s)
	}
	for _, g := range []GapRecord{
		{First: 1, Last: 9, Reason: "before the first archiver"},
		{First: 30, Last: 35, Reason: "a purge"},
		{First: 36, Last: 39, Reason: "a leader's snapshot"},
		{First: 45, Last: 46, Reason: "filled since"},
		{First: 90, Last: 99, Reason: "just now"},
	} {
		g.Timeline, g.Created, g.Member = testTimeline, start, 7
		require.NoError(t, WriteGap(t.Context(), repo, g))
		g.Reason = "another reason"
		if err := WriteGap(t.Context(), repo, g); err != nil {
			t.Errorf("a second record: %v", err)
		}
	}
	require.NoError(t, WriteMark(t.Context(), repo, testTimeline, markOf(29, 1, start.Add(time.Hour))))

	l := openLog(t, repo)
	spans := l.Coverage()
	var got [][2]uint64
	for _, s := range spans {
		got = append(got, [2]uint64{s.FirstIndex, s.LastIndex})
	}
	if !reflect.DeepEqual(got, [][2]uint64{{10, 29}, {40, 69}, {70, 79}, {85, 89}}) {
		t.Errorf("spans %v", got)
	}
	if first := spans[0]; first.LastTerm != 1 || first.LastRevision != 26 ||
		!first.FirstMark.Equal(start) || !first.LastMark.Equal(start.Add(time.Hour)) {
		t.Errorf("the first span is %+v", first)
	}
	type gap struct {
		after, next, missing uint64
		reason               string
		records              int
	}
	var gaps []gap
	for _, g := range l.Gaps() {
		gaps = append(gaps, gap{g.After, g.Next, g.Missing(), g.Reason, len(g.Records)})
	}
	want := []gap{
		{0, 10, 9, "before the first archiver", 1},
		{29, 40, 10, "a purge; a leader's snapshot", 2},
		{69, 70, 0, "", 0},
		{79, 85, 5, "", 0},
		{89, 100, 10, "just now", 1},
	}
	if !reflect.DeepEqual(gaps, want) {
		t.Errorf("gaps %+v,\nwant %+v", gaps, want)
	}
	for _, s := range spans {
		wantEntries(t, l, "a", s.FirstIndex, s.LastIndex)
	}
}

// What bodies showed to be damaged is no part of a span any more.
func TestSpansLessDamagedBodies(t *testing.T) {
	s := sinktest.NewMemory()
	repo := newRepo(t, s)
	for _, p := range run("a", 0, 1, 10, 20, 30) {
		p.store(t, s)
	}
	h, data := piece{"a", 1, 10, 19, 0, nil, 1}.encode(t)
	data[len(data)-1] ^= 1
	overwrite(t, s, h.Name(), data)
	l := openLog(t, repo)
	if n := len(l.Coverage()); n != 1 {
		t.Fatalf("%d spans by headers", n)
	}
	_, err := collect(t, l, 1, 29)
	require.Error(t, err, "damage was not found")
	if n := len(l.Coverage()); n != 2 {
		t.Errorf("%d spans, the middle one is damaged", n)
	}
}

func TestEmptyLog(t *testing.T) {
	repo := newRepo(t, sinktest.NewMemory())
	l := openLog(t, repo)
	if len(l.Coverage())+len(l.Gaps())+len(l.Damaged())+len(l.Headers()) > 0 {
		t.Errorf("%+v", l)
	}
	if low, high, err := l.At(t.Context(), start); low != nil || high != nil || err != nil {
		t.Errorf("%v %v %v", low, high, err)
	}
	if _, ok, err := Newest(t.Context(), repo, testTimeline); ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
	record := GapRecord{Timeline: testTimeline, First: 3, Last: 4, Reason: "why"}
	require.NoError(t, WriteGap(t.Context(), repo, record))
	if gaps := openLog(t, repo).Gaps(); len(gaps) != 1 || gaps[0].Missing() != 2 {
		t.Errorf("gaps %+v", gaps)
	}
	if WriteGap(t.Context(), repo, GapRecord{Timeline: testTimeline, First: 4, Last: 3}) == nil {
		t.Error("an empty gap was recorded")
	}
}

// An object's size in the listing shows that it was cut short.
func TestTruncatedSegmentsAreFoundByListing(t *testing.T) {
	s := sinktest.NewMemory()
	repo := newRepo(t, s)
	h, data := piece{"a", 1, 1, 9, 0, nil, 0}.encode(t)
	overwrite(t, s, h.Name(), data[:len(data)-1])
	l := openLog(t, repo)
	if d := l.Damaged(); len(d) != 1 || d[0].Name != h.Name() || len(l.Coverage()) > 0 {
		t.Errorf("damaged %v", d)
	}
}

// Damaged documents hide nothing else.
func TestDamagedGapRecord(t *testing.T) {
	s := sinktest.NewMemory()
	repo := newRepo(t, s)
	piece{"a", 1, 1, 9, 0, nil, 0}.store(t, s)
	require.NoError(t, WriteGap(t.Context(), repo, GapRecord{Timeline: testTimeline, First: 20, Last: 29, Reason: "why"}))
	n := repository.GapName{Timeline: testTimeline, First: 20, Last: 29}
	moved := n
	moved.Last++
	data := object(t, s, n.String())
	overwrite(t, s, moved.String(), data)
	data = append([]byte(nil), data...)
	data[len(data)/2] ^= 1
	overwrite(t, s, n.String(), data)
	l := openLog(t, repo)
	if len(l.Damaged()) != 2 || len(l.Coverage()) != 1 || len(l.Gaps()) != 0 {
		t.Errorf("%v, %+v, %+v", l.Damaged(), l.Coverage(), l.Gaps())
	}
	for _, d := range l.Damaged() {
		wantDamaged(t, d.Name, d.Err)
	}
}
