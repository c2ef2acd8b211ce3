package segment

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// chain checks that a batch is what a header describes, all but After, and
// returns the chain's value of its last entry.
func chain(h Header, b Batch) (raftlog.Sum, error) {
	if len(b.Entries) != h.Entries || len(b.Marks) != h.Marks {
		return raftlog.Sum{}, fmt.Errorf("%d entries and %d marks, not %d and %d", len(b.Entries), len(b.Marks), h.Entries, h.Marks)
	}
	sum, want := h.Before, raftlog.Entry{Index: h.FirstIndex, Term: h.FirstTerm}
	for i, e := range b.Entries {
		switch {
		case e.Index != want.Index:
			return raftlog.Sum{}, fmt.Errorf("%s where index %d should be", e, want.Index)
		case e.Term < want.Term || e.Term > h.LastTerm || i == 0 && e.Term != h.FirstTerm:
			return raftlog.Sum{}, fmt.Errorf("%s: the terms before and behind it are %d and %d", e, want.Term, h.LastTerm)
		}
		sum = sum.Next(e)
		want.Index, want.Term = want.Index+1, e.Term
	}
	if last := b.Entries[len(b.Entries)-1]; last.Index != h.LastIndex || last.Term != h.LastTerm {
		return raftlog.Sum{}, fmt.Errorf("the last one is %s, not index %d of term %d", last, h.LastIndex, h.LastTerm)
	}
	return sum, checkMarks(h, b)
}

func checkMarks(h Header, b Batch) error {
	if !slices.IsSortedFunc(b.Marks, markOrder) {
		return errors.New("its marks are not in order")
	}
	for _, m := range b.Marks {
		if m.Index == h.FirstIndex-1 && m.Index > 0 && m.Term <= h.FirstTerm {
			continue
		}
		if !h.Holds(m.Index) {
			return fmt.Errorf("a mark of index %d, which is not within %d and %d", m.Index, h.FirstIndex, h.LastIndex)
		}
		if e := b.Entries[m.Index-h.FirstIndex]; e.Term != m.Term {
			return fmt.Errorf("a mark of index %d with term %d: it is %s", m.Index, m.Term, e)
		}
	}
	if first, last := timesOf(b.Marks); !first.Equal(h.FirstMark) || !last.Equal(h.LastMark) {
		return fmt.Errorf("its marks are from %s to %s, not from %s to %s", first, last, h.FirstMark, h.LastMark)
	}
	return nil
}

// timesOf are the earliest and the latest time, in UTC; zero where there are
// no marks.
func timesOf(marks []raftlog.Mark) (first, last time.Time) {
	for i, m := range marks {
		if i == 0 || m.Time.Before(first) {
			first = m.Time.UTC()
		}
		if i == 0 || m.Time.After(last) {
			last = m.Time.UTC()
		}
	}
	return first, last
}

// sorted is a copy in the order in which segments hold marks, without the
// monotonic clock's part of their times.
func sorted(marks []raftlog.Mark) []raftlog.Mark {
	marks = slices.Clone(marks)
	for i := range marks {
		marks[i].Time = marks[i].Time.UTC().Round(0)
	}
	slices.SortFunc(marks, markOrder)
	return marks
}

func markOrder(a, b raftlog.Mark) int {
	return cmp.Or(cmp.Compare(a.Index, b.Index), a.Time.Compare(b.Time), cmp.Compare(a.Member, b.Member), cmp.Compare(a.Revision, b.Revision))
}
