package segment

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// Marks reads the marks whose time is not before from and not after to; a zero
// time is no bound. Those of segments come in the order of these, then the
// alive marks; a mark that several segments hold comes as often. Segments that
// a merged one replaces are not read, nor those whose headers show that they
// have none of that time. Damaged ones are passed over, and told by Damaged
// then. The error is the last that is yielded.
func (l *Log) Marks(ctx context.Context, from, to time.Time) iter.Seq2[raftlog.Mark, error] {
	within := func(t time.Time) bool {
		return (from.IsZero() || !t.Before(from)) && (to.IsZero() || !t.After(to))
	}
	return func(yield func(raftlog.Mark, error) bool) {
		v := l.current()
		for _, h := range l.marked(v) {
			if !from.IsZero() && h.LastMark.Before(from) || !to.IsZero() && h.FirstMark.After(to) {
				continue
			}
			marks, err := l.marks(ctx, h)
			if err != nil {
				yield(raftlog.Mark{}, err)
				return
			}
			for _, m := range marks {
				if within(m.Time) && !yield(m, nil) {
					return
				}
			}
		}
		alive := slices.DeleteFunc(slices.Clone(v.alive), func(n repository.MarkName) bool { return !within(n.Time) })
		for a, err := range readMarks(ctx, l.repo, alive) {
			if isDamage(err) {
				continue
			}
			if !yield(a.Mark, err) {
				return
			}
		}
	}
}

// AliveMarks reads the alive marks whose index is from first to last, ordered by
// index, then time; of these the newest so many, or all for 0. A damaged one
// comes with its *snapshot.DamagedError, and the next ones after it; any other
// error is the last.
func (l *Log) AliveMarks(ctx context.Context, first, last uint64, newest int) iter.Seq2[Alive, error] {
	names := slices.DeleteFunc(l.Alive(), func(n repository.MarkName) bool { return n.Index < first || n.Index > last })
	if newest > 0 {
		names = names[max(0, len(names)-newest):]
	}
	return readMarks(ctx, l.repo, names)
}

// At finds the marks around a time, over all segments and alive marks. low is
// the one with the highest index among those of t or before, high the one with
// the lowest index among those of t or after; nil where there is none.
//
// What the cluster had applied at t lies between their indexes, as far as the
// clocks of those who asked can be trusted. Marks of several members whose
// clocks disagree can make low.Index the higher one: that is an interval as
// well, from high.Index to low.Index.
//
// It reads the few segments that can hold them, and one or two alive marks.
// Damaged ones are passed over: the interval is the wider for it.
func (l *Log) At(ctx context.Context, t time.Time) (low, high *raftlog.Mark, err error) {
	v := l.current()
	marked := l.marked(v)
	read := map[repository.SegmentName][]raftlog.Mark{} // a few: both ends are often in one
	marksOf := func(h Header) ([]raftlog.Mark, error) {
		marks, ok := read[h.name()]
		if ok {
			return marks, nil
		}
		marks, err := l.marks(ctx, h)
		read[h.name()] = marks
		return marks, err
	}
	// From the highest index down, as long as a better one may follow.
	slices.SortFunc(marked, func(a, b Header) int { return cmp.Compare(b.LastIndex, a.LastIndex) })
	for _, h := range marked {
		if low != nil && h.LastIndex < low.Index {
			break
		}
		if h.FirstMark.After(t) {
			continue
		}
		marks, err := marksOf(h)
		if err != nil {
			return nil, nil, err
		}
		for _, m := range marks {
			if !m.Time.After(t) && isLow(m, low) {
				low = &m
			}
		}
	}
	// And from the lowest up.
	slices.SortFunc(marked, func(a, b Header) int { return cmp.Compare(a.FirstIndex, b.FirstIndex) })
	for _, h := range marked {
		if high != nil && h.FirstIndex-1 > high.Index { // a mark may be of the entry before
			break
		}
		if h.LastMark.Before(t) {
			continue
		}
		marks, err := marksOf(h)
		if err != nil {
			return nil, nil, err
		}
		for _, m := range marks {
			if !m.Time.Before(t) && isHigh(m, high) {
				high = &m
			}
		}
	}
	return l.atAlive(ctx, v, t, low, high)
}

// isLow tells whether m is a better mark below a time: of a higher index, or,
// with an equal one, nearer to the time.
func isLow(m raftlog.Mark, best *raftlog.Mark) bool {
	return best == nil || cmp.Or(cmp.Compare(m.Index, best.Index), m.Time.Compare(best.Time)) > 0
}

func isHigh(m raftlog.Mark, best *raftlog.Mark) bool {
	return best == nil || cmp.Or(cmp.Compare(m.Index, best.Index), m.Time.Compare(best.Time)) < 0
}

// atAlive betters both by alive marks. Names tell index and time, so only what
// is chosen is read.
func (l *Log) atAlive(ctx context.Context, v *view, t time.Time, low, high *raftlog.Mark) (*raftlog.Mark, *raftlog.Mark, error) {
	alive := slices.Clone(v.alive)
	slices.SortFunc(alive, func(a, b repository.MarkName) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), a.Time.Compare(b.Time))
	})
	better := func(names iter.Seq2[int, repository.MarkName], side func(repository.MarkName) bool, isBetter func(raftlog.Mark, *raftlog.Mark) bool, best *raftlog.Mark) (*raftlog.Mark, error) {
		for _, n := range names {
			if !side(n) {
				continue
			}
			if !isBetter(raftlog.Mark{Index: n.Index, Time: n.Time}, best) {
				break
			}
			a, err := ReadMark(ctx, l.repo, n)
			switch {
			case isDamage(err), errors.Is(err, sinks.ErrNotFound):
				continue
			case err != nil:
				return nil, err
			}
			return &a.Mark, nil
		}
		return best, nil
	}
	low, err := better(slices.Backward(alive), func(n repository.MarkName) bool { return !n.Time.After(t) }, isLow, low)
	if err != nil {
		return nil, nil, err
	}
	high, err = better(slices.All(alive), func(n repository.MarkName) bool { return !n.Time.Before(t) }, isHigh, high)
	if err != nil {
		return nil, nil, err
	}
	return low, high, nil
}
