package segment

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// Heartbeat is a mark that is an object of its own. It distinguishes a quiet cluster from
// a dead archiver.
type Heartbeat struct {
	Format   int                   `json:"format"`
	Timeline repository.TimelineID `json:"timeline"`
	raftlog.Mark
	// Agent describes the writer; nil if it is not an agent, or an older version.
	Agent *repository.Agent `json:"agent,omitempty"`
}

// WriteMark stores an alive mark. One that is stored already stays as it is, and is no
// error: its name holds all that counts.
func WriteMark(ctx context.Context, repo *repository.Repository, t repository.TimelineID, m raftlog.Mark) error {
	return Heartbeat{Timeline: t, Mark: m}.Write(ctx, repo)
}

// Write is WriteMark with all fields.
func (a Heartbeat) Write(ctx context.Context, repo *repository.Repository) error {
	a.Format, a.Time = repository.Format, a.Time.UTC().Round(0)
	return putDocument(ctx, repo, a.name().String(), a)
}

func (a Heartbeat) name() repository.MarkName {
	return repository.MarkName{Timeline: a.Timeline, Index: a.Index, Time: a.Time, Member: a.Member}
}

// ReadMark reads one alive mark. One that was altered or moved is a
// *snapshot.DamagedError.
func ReadMark(ctx context.Context, repo *repository.Repository, n repository.MarkName) (Heartbeat, error) {
	return readDocument(ctx, repo, n.String(), func(a Heartbeat) (int, bool, string) {
		return a.Format, a.name().String() == n.String(), "the mark " + a.name().String()
	})
}

// readMarks reads many marks, some at once.
func readMarks(ctx context.Context, repo *repository.Repository, names []repository.MarkName) iter.Seq2[Heartbeat, error] {
	return func(yield func(Heartbeat, error) bool) {
		for len(names) > 0 {
			n := min(parallelSmall, len(names))
			marks, errs := make([]Heartbeat, n), make([]error, n)
			var group errgroup.Group
			for i, name := range names[:n] {
				group.Go(func() error {
					marks[i], errs[i] = ReadMark(ctx, repo, name)
					return nil
				})
			}
			_ = group.Wait() // each has its own error
			names = names[n:]
			for i := range marks {
				switch {
				case errors.Is(errs[i], sinks.ErrNotFound), errors.Is(errs[i], repository.ErrUnsigned): // it does not exist
				case errs[i] != nil && !snapshot.IsDamaged(errs[i]):
					yield(Heartbeat{}, errs[i])
					return
				case !yield(marks[i], errs[i]):
					return
				}
			}
		}
	}
}

// marked are those of a view's segments with marks, less those that a merged one
// replaces, in their order.
func (l *Log) marked(segments []Header) []Header {
	var all []Header
	var merged []Header // that may hold what comes
	for _, h := range segments {
		if h.Level > 0 && !l.spoiled(h.name()) {
			merged = append(merged, h)
		}
	}
	// Merged segments are ordered by their first index: those that end before a
	// segment begins need not be looked at again.
	for _, h := range segments {
		for len(merged) > 0 && merged[0].LastIndex < h.FirstIndex {
			merged = merged[1:]
		}
		if h.Marks > 0 && !l.spoiled(h.name()) && !replaced(h, merged) {
			all = append(all, h)
		}
	}
	return all
}

// replaced reports whether one of the merged segments replaces h.
func replaced(h Header, merged []Header) bool {
	for _, m := range merged {
		if m.FirstIndex > h.FirstIndex {
			return false
		}
		if m.Level > h.Level && m.LastIndex >= h.LastIndex {
			return true
		}
	}
	return false
}

// marks reads the marks of a segment. Where it is damaged, or was deleted,
// those of others that hold its range stand in.
func (l *Log) marks(ctx context.Context, h Header) ([]raftlog.Mark, error) {
	return l.marksOr(ctx, h, true)
}

// marksOr does that; the listing is made anew once at most.
func (l *Log) marksOr(ctx context.Context, h Header, relist bool) ([]raftlog.Mark, error) {
	_, b, err := l.body(ctx, h)
	v := l.current()
	if err != nil && v.byNames && (snapshot.IsDamaged(err) || errors.Is(err, sinks.ErrNotFound) || errors.Is(err, errChanged)) {
		return nil, ErrNotAsNamed
	}
	switch gone := errors.Is(err, sinks.ErrNotFound) || errors.Is(err, errChanged); {
	case err == nil:
		return b.Marks, nil
	case gone && relist:
		l.forget(h.Name())
		if v, err = l.refresh(ctx, v); err != nil {
			return nil, err
		}
		relist = false
	case gone:
		return nil, nil
	case !snapshot.IsDamaged(err):
		return nil, err
	}
	var all []raftlog.Mark
	for _, other := range l.marked(v.segments) {
		if other.FirstIndex > h.LastIndex || other.LastIndex < h.FirstIndex || other.name() == h.name() {
			continue
		}
		marks, err := l.marksOr(ctx, other, relist)
		if err != nil {
			return nil, err
		}
		all = append(all, marks...)
	}
	return all, nil
}

// MarksAround reads marks around an index: those whose times lie between the last
// mark of the segments before the one that holds it and the first mark of the
// segments behind it. Those of segments come in the order of these, then the alive
// marks; a mark that several segments hold comes as often. Damaged ones are passed
// over, and reported by Damaged then. The error is the last that is yielded.
func (l *Log) MarksAround(ctx context.Context, index uint64) iter.Seq2[raftlog.Mark, error] {
	return func(yield func(raftlog.Mark, error) bool) {
		var near []raftlog.Mark
		var from, to time.Time
		within := func(t time.Time) bool {
			return (from.IsZero() || !t.Before(from)) && (to.IsZero() || !t.After(to))
		}
		err := l.look(ctx, func(v *view) error {
			near, from, to = nil, time.Time{}, time.Time{}
			headers, err := l.nearIndex(ctx, v, index)
			if err != nil {
				return err
			}
			for _, h := range headers {
				if h.Marks > 0 && h.LastIndex < index && h.LastMark.After(from) {
					from = h.LastMark
				}
				if h.Marks > 0 && h.FirstIndex >= index && (to.IsZero() || h.FirstMark.Before(to)) {
					to = h.FirstMark
				}
			}
			for _, h := range l.marked(headers) {
				if !from.IsZero() && h.LastMark.Before(from) || !to.IsZero() && h.FirstMark.After(to) {
					continue
				}
				marks, err := l.marks(ctx, h)
				if err != nil {
					return err
				}
				near = append(near, slices.DeleteFunc(marks, func(m raftlog.Mark) bool { return !within(m.Time) })...)
			}
			return nil
		})
		if err != nil {
			yield(raftlog.Mark{}, err)
			return
		}
		for _, m := range near {
			if !yield(m, nil) {
				return
			}
		}
		alive := slices.DeleteFunc(l.Heartbeat(), func(n repository.MarkName) bool { return !within(n.Time) })
		for a, err := range readMarks(ctx, l.repo, alive) {
			if snapshot.IsDamaged(err) {
				continue
			}
			if !yield(a.Mark, err) {
				return
			}
		}
	}
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
// Damaged ones are passed over: the interval is the wider for it. In a log that
// OpenNames opened they are found by halving: there a clock that was set back by
// less than the time between two of the headers that it begins with, and not near t,
// may go unnoticed.
func (l *Log) At(ctx context.Context, t time.Time) (low, high *raftlog.Mark, err error) {
	err = l.look(ctx, func(v *view) error {
		headers, err := l.nearTime(ctx, v, t)
		if err == nil {
			low, high, err = l.at(ctx, l.marked(headers), t)
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return l.atAlive(ctx, l.current(), t, low, high)
}

func (l *Log) at(ctx context.Context, marked []Header, t time.Time) (low, high *raftlog.Mark, err error) {
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
	return low, high, nil
}

// isLow reports whether m is a better mark below a time: of a higher index, or,
// with an equal one, nearer to the time.
func isLow(m raftlog.Mark, best *raftlog.Mark) bool {
	return best == nil || cmp.Or(cmp.Compare(m.Index, best.Index), m.Time.Compare(best.Time)) > 0
}

func isHigh(m raftlog.Mark, best *raftlog.Mark) bool {
	return best == nil || cmp.Or(cmp.Compare(m.Index, best.Index), m.Time.Compare(best.Time)) < 0
}

// atAlive betters both by alive marks. Names show index and time, so only what
// is chosen is read.
func (l *Log) atAlive(ctx context.Context, v *view, t time.Time, low, high *raftlog.Mark) (*raftlog.Mark, *raftlog.Mark, error) {
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
			case snapshot.IsDamaged(err), errors.Is(err, sinks.ErrNotFound):
				continue
			case err != nil:
				return nil, err
			}
			return &a.Mark, nil
		}
		return best, nil
	}
	low, err := better(slices.Backward(v.alive), func(n repository.MarkName) bool { return !n.Time.After(t) }, isLow, low)
	if err != nil {
		return nil, nil, err
	}
	high, err = better(slices.All(v.alive), func(n repository.MarkName) bool { return !n.Time.Before(t) }, isHigh, high)
	if err != nil {
		return nil, nil, err
	}
	return low, high, nil
}

// Duration is the time between the earliest and the latest mark of the entries from
// first to last, alive marks included; 0 where there are none. Once it is more
// than enough the rest is not read, and it may be longer.
func (l *Log) Duration(ctx context.Context, first, last uint64, enough time.Duration) (time.Duration, error) {
	var s Coverage
	err := l.look(ctx, func(v *view) (err error) {
		s = Coverage{}
		for _, m := range v.alive {
			if first <= m.Index && m.Index <= last {
				s.marked(m.Time, m.Time)
			}
		}
		var headers []Header
		for _, h := range v.segments {
			if h.LastIndex >= first && h.FirstIndex-1 <= last { // a mark may be of the entry before
				headers = append(headers, h)
			}
		}
		if headers, err = l.describe(ctx, headers); err != nil {
			return err
		}
		for _, h := range l.marked(headers) {
			marks, err := l.marks(ctx, h)
			if err != nil {
				return err
			}
			for _, m := range marks {
				if first <= m.Index && m.Index <= last {
					s.marked(m.Time, m.Time)
				}
			}
			if s.LastMark.Sub(s.FirstMark) > enough {
				break
			}
		}
		return nil
	})
	return s.LastMark.Sub(s.FirstMark), err
}
