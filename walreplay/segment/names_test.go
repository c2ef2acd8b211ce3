package segment

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// longLog is a log of merged segments of 40 entries and then small ones of 4, with
// a mark a second; the small ones of the last merged ones are there still.
func longLog(merged, small int) []piece {
	one := func(level int, first, last uint64) piece {
		p := piece{"a", 1, first, last, level, nil, 0}
		for i := first; i <= last; i++ {
			p.marks = append(p.marks, markOf(i, 1, start.Add(time.Duration(i)*time.Second)))
		}
		return p
	}
	var all []piece
	next := uint64(1)
	for range merged {
		all, next = append(all, one(1, next, next+39)), next+40
	}
	from := max(41, next) - 40
	if small == 0 {
		from = next
	}
	for next = from; next < uint64(40*merged+4*small); next += 4 {
		p := one(0, next, next+3)
		if p.first > 1 {
			p.previous = next - 4
		}
		all = append(all, p)
	}
	return all
}

// What names show is what all headers show, and takes a bounded number of reads.
func TestNamesSayWhatHeadersSay(t *testing.T) {
	for _, c := range []struct{ merged, small int }{{0, 1}, {0, 200}, {3, 1}, {200, 1}, {200, 300}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			s := sinktest.NewFaulty(sinktest.NewMemory())
			all := stored(t, s, longLog(c.merged, c.small)...)
			before := s.Calls(sinktest.Open)
			l, err := OpenNames(t.Context(), all.repo, testTimeline, nil)
			require.NoError(t, err)
			if n := s.Calls(sinktest.Open) - before; n > endsRead+1 {
				t.Errorf("%d reads to open it", n)
			}
			want, got := all.Coverage(), l.Coverage()
			if len(got) != 1 || len(want) != 1 || got[0].LastIndex != want[0].LastIndex || got[0].FirstIndex != want[0].FirstIndex ||
				got[0].LastRevision != want[0].LastRevision || !got[0].LastMark.Equal(want[0].LastMark) {
				t.Errorf("%+v, not %+v", got, want)
			}
			last := want[0].LastIndex
			for i := uint64(0); i <= last+1; i += 1 + last/37 {
				at := start.Add(time.Duration(i)*time.Second + 500*time.Millisecond)
				before = s.Calls(sinktest.Open)
				low, high, err := l.At(t.Context(), at)
				if n := s.Calls(sinktest.Open) - before; n > 80 {
					t.Errorf("%d reads for a time", n)
				}
				wantLow, wantHigh, wantErr := all.At(t.Context(), at)
				if err != nil || wantErr != nil || fmt.Sprint(low, high) != fmt.Sprint(wantLow, wantHigh) {
					t.Fatalf("at %s: %v, %v, %v, not %v, %v, %v", at, low, high, err, wantLow, wantHigh, wantErr)
				}
				around := func(l *Log) (all []raftlog.Mark) {
					for m, err := range l.MarksAround(t.Context(), i) {
						require.NoError(t, err)
						all = append(all, m)
					}
					return all
				}
				if got, want := around(l), around(all); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Fatalf("around %d: %v, not %v", i, got, want)
				}
				h, is, err := l.Holding(t.Context(), i)
				if err != nil || is != (i >= 1 && i <= last) || is && (!h.isRead() || !h.Holds(i)) {
					t.Fatalf("holding %d: %+v, %v, %v", i, h, is, err)
				}
			}
			entries, err := collect(t, l, 1, 0)
			if err != nil || !slices.EqualFunc(entries, entriesOf("a", 1, last), raftlog.Entry.Equal) {
				t.Errorf("%d entries, %v", len(entries), err)
			}
			if !l.current().byNames {
				t.Error("all headers were read")
			}
		})
	}
}

// A clock that was set back is noticed: the time that came twice has two indexes.
func TestNamesFindATimeThatCameTwice(t *testing.T) {
	pieces := longLog(200, 0)
	for i := range pieces {
		for j := range pieces[i].marks {
			if m := &pieces[i].marks[j]; m.Index > 4000 {
				m.Time = m.Time.Add(-1500 * time.Second)
			}
		}
	}
	all := stored(t, sinktest.NewMemory(), pieces...)
	l, err := OpenNames(t.Context(), all.repo, testTimeline, nil)
	require.NoError(t, err)
	at := start.Add(3500*time.Second + 500*time.Millisecond)
	low, high, err := l.At(t.Context(), at)
	if err != nil || low.Index != 5000 || high.Index != 3501 || !l.current().byNames {
		t.Errorf("%v, %v, %v", low, high, err)
	}
}

// Where names promise more than there is, reading falls back on all headers.
func TestNamesThatDoNotSay(t *testing.T) {
	for name, c := range map[string]struct {
		pieces  []piece
		damaged int // position; 0: none
		spans   int // as names show
		ends    uint64
	}{
		"a merged one of another chain after it": {append(longLog(40, 0), piece{"a", 1601, 1601, 1640, 1, nil, 0}), 0, 2, 0},
		"one in the middle is of another history": {func() []piece {
			all := longLog(80, 0)
			all[20].history, all[20].origin = "b", 0
			return all
		}(), 0, 1, 800},
		"a small one in the middle begins a chain": {func() []piece {
			all := longLog(0, 80)
			for i := 20; i < len(all); i++ {
				all[i].origin = all[20].first
			}
			return all
		}(), 0, 1, 80},
		"a damaged one that small ones stand in for": {longLog(80, 1), 79, 1, 3204},
		"a damaged one in the middle":                {longLog(80, 0), 20, 1, 800},
	} {
		t.Run(name, func(t *testing.T) {
			m := sinktest.NewMemory()
			l := stored(t, m, c.pieces...)
			if c.damaged > 0 {
				h, data := c.pieces[c.damaged].encode(t)
				data[len(data)-1] ^= 1
				overwrite(t, m, h.Name(), data)
			}
			l, err := OpenNames(t.Context(), l.repo, testTimeline, nil)
			require.NoError(t, err)
			if n := len(l.Coverage()); n != c.spans {
				t.Errorf("names show %d spans", n)
			}
			last := c.pieces[len(c.pieces)-1].last
			got, err := collect(t, l, 1, last)
			if uint64(len(got)) != c.ends || (err == nil) != (c.ends == last) {
				t.Errorf("%d entries, %v", len(got), err)
			}
		})
	}
}

// What joins two chains counts although names call it needless, and what is cut to less
// than a header is damage: then all headers are read at once.
func TestNamesThatLeaveOutWhatCounts(t *testing.T) {
	joined := []piece{{"a", 1, 1, 120, 1, nil, 0}, {"a", 90, 90, 120, 0, nil, 0}, {"a", 90, 121, 200, 1, nil, 0}}
	for name, c := range map[string]struct {
		pieces  []piece
		cut     int // position; 0: none
		damaged int
	}{
		"a small one joins two merged ones":     {joined, 0, 0},
		"and names show that both hold it":      {append(slices.Clone(joined), piece{"a", 90, 121, 200, 0, nil, 90}, piece{"a", 90, 201, 210, 0, nil, 121}), 0, 0},
		"one in the middle is cut to few bytes": {longLog(80, 0), 20, 1},
	} {
		t.Run(name, func(t *testing.T) {
			m := sinktest.NewMemory()
			repo := stored(t, m, c.pieces...).repo
			if c.cut > 0 {
				h, data := c.pieces[c.cut].encode(t)
				overwrite(t, m, h.Name(), data[:10])
			}
			all, err := OpenLog(t.Context(), repo, testTimeline, nil)
			require.NoError(t, err)
			l, err := OpenNames(t.Context(), repo, testTimeline, nil)
			require.NoError(t, err)
			if got, want := fmt.Sprint(l.Coverage()), fmt.Sprint(all.Coverage()); got != want {
				t.Errorf("%s, not %s", got, want)
			}
			if len(l.Damaged()) != c.damaged || c.damaged == 0 && len(l.Coverage()) != 1 {
				t.Errorf("damaged: %v; spans: %+v", l.Damaged(), l.Coverage())
			}
		})
	}
}
