package archive

import (
	"testing"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// Design, Canonical entries: a header says which revision is reached, never more
// than that. An answer's revision may be that of an entry that is being applied: the
// next answer's index bounds it, and the segment has to reach so far.
func TestRevisionIsReached(t *testing.T) {
	s := newSession(&Archiver{}, false)
	var entries []raftlog.Entry
	for i := uint64(1); i <= 30; i++ {
		entries = append(entries, testEntry(i, 1, "x"))
	}
	s.queue.add(entries, time.Now())
	for _, o := range []observation{{index: 10, revision: 14}, {index: 20, revision: 23}, {index: 20, revision: 24}, {index: 29, revision: 31}} {
		s.addHint([]observation{o})
	}
	for last, want := range map[int]int64{10: 0, 19: 0, 20: 23, 21: 23, 28: 23, 30: 24} {
		q := s.queue
		q.entries = entries[:last]
		if _, got := q.batch(maxCut); got > want || got < want-10 {
			t.Errorf("a segment to entry %d is said to reach revision %d, want %d", last, got, want)
		}
	}
}

// Design, Several writers: who fills a hole cuts at the next existing first index.
// The entry there proves the join, and has no segment of its own: that name is
// taken.
func TestFillEndsAtTheNextFirst(t *testing.T) {
	data := make([]byte, maxCut/5)
	f := &filler{hole: &hole{GapName: repository.GapName{Timeline: timelineN(1), First: 5, Last: 8}}}
	for i := uint64(5); i <= 9; i++ {
		e := raftlog.Entry{Index: i, Term: 1, Data: data}
		if i == 9 { // what is before it fills a segment
			e.Data = make([]byte, maxCut/2)
		}
		f.queue.add([]raftlog.Entry{e}, time.Now())
	}
	run := f.run()
	if last := run[len(run)-1].Index; last != 7 {
		t.Fatalf("the first segment ends with %d", last)
	}
	f.queue.drop(7)
	if run = f.run(); run[0].Index != 8 || run[len(run)-1].Index != 9 {
		t.Errorf("the next one is from %d to %d", run[0].Index, run[len(run)-1].Index)
	}
}

// Design, Marks: an answer that took long, or of a member that is cut off or far
// behind, does not tell when its index was reached. It makes no mark, neither of
// its own nor as the last one before the index moved on.
func TestMarksOfPromptAnswersOnly(t *testing.T) {
	now := time.Now()
	for what, c := range map[string]struct {
		took  time.Duration
		late  bool
		marks int
	}{
		"prompt": {10 * time.Millisecond, false, 2},
		"slow":   {2 * time.Second, false, 0},
		"late":   {10 * time.Millisecond, true, 0},
	} {
		s := newSession(&Archiver{}, false)
		for i := range uint64(2) {
			s.addMarks([]observation{{index: 5 + i, term: 1, time: now.Add(time.Duration(i) * time.Second), took: c.took, late: c.late}})
		}
		if n := len(s.queue.marks); n != c.marks {
			t.Errorf("%s: %d marks, want %d", what, n, c.marks)
		}
	}
}
