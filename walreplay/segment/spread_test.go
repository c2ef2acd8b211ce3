package segment

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// The spread counts the marks of just the entries that are asked for, one of the
// entry before a segment and alive marks included, and does not read on once it
// is more than enough.
func TestSpread(t *testing.T) {
	s := sinktest.NewFaulty(sinktest.NewMemory())
	var pieces []piece
	for i := range 10 {
		first := uint64(1 + 10*i)
		pieces = append(pieces, piece{"a", 1, first, first + 9, 0, []raftlog.Mark{markOf(first+1, 1, second(10*i)), markOf(first+8, 1, second(10*i+5))}, 0})
	}
	pieces[3].marks = append(pieces[3].marks, markOf(30, 1, second(28))) // of the entry before it
	stored(t, s, pieces...)
	repo := newRepo(t, s)
	require.NoError(t, WriteMark(t.Context(), repo, testTimeline, markOf(95, 2, second(99))))
	l := openLog(t, repo)
	for _, c := range []struct {
		first, last uint64
		want        time.Duration
	}{
		{1, 1, 0},
		{1, 2, 0},
		{2, 9, 5 * time.Second},
		{3, 12, 5 * time.Second},
		{29, 30, 3 * time.Second},
		{99, 99, 0},
		{95, 99, 4 * time.Second},
		{2, 100, 99 * time.Second},
	} {
		if got, err := l.Duration(t.Context(), c.first, c.last, time.Hour); err != nil || got != c.want {
			t.Errorf("%d to %d: %s, want %s (%v)", c.first, c.last, got, c.want, err)
		}
	}
	before := s.Calls(sinktest.Open)
	if got, err := l.Duration(t.Context(), 1, 90, time.Second); err != nil || got <= time.Second {
		t.Errorf("%s, %v", got, err)
	}
	if n := s.Calls(sinktest.Open) - before; n > 2 {
		t.Errorf("%d reads where the first segment is enough", n)
	}
}
