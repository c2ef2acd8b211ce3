package retention

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/segment"
)

// readLog adds what a timeline's log holds, as far as headers tell.
func (r *reading) readLog(ctx context.Context, t *Timeline) error {
	log, err := segment.OpenLog(ctx, r.repo, t.ID)
	if err != nil {
		return err
	}
	for _, s := range log.Spans() {
		t.Spans = append(t.Spans, Run{s.FirstIndex, s.LastIndex})
	}
	for _, h := range log.Headers() {
		t.Segments = append(t.Segments, Segment{Name: h.Name(), First: h.FirstIndex, Last: h.LastIndex, Bytes: h.Size()})
		r.see(t, h.LastMark)
		if h.Level == 0 { // one without marks was read from a member that answered
			r.see(t, h.Cut)
		}
	}
	for _, d := range log.Damaged() {
		if errors.Is(d.Err, snapshot.ErrNewerFormat) {
			return d.Err
		}
		if n, err := repository.ParseSegmentName(d.Name); err == nil {
			t.Segments = append(t.Segments, Segment{Name: d.Name, First: n.First, Last: n.Last, Bytes: r.segments[d.Name].Size, Damaged: true})
		}
	}
	t.endDamaged()
	t.Marks = log.Alive()
	for _, m := range t.Marks {
		r.see(t, m.Time)
	}
	t.orderTimes(log.Headers(), r.now)
	if t.LetGo, err = r.wasLetGo(ctx, t.ID); err != nil {
		return err
	}
	t.Gaps, err = r.repo.Gaps(ctx, t.ID)
	return err
}

// orderTimes lets no backup be finished before a lower index was seen: the host
// that took it had a clock that was behind, and it would pass for one from before
// all that is promised. What was seen in the planner's future tells nothing.
func (t *Timeline) orderTimes(headers []segment.Header, now time.Time) {
	type seen struct {
		index uint64
		at    time.Time
	}
	var all []seen
	for _, h := range headers {
		all = append(all, seen{h.LastIndex, h.LastMark})
	}
	for _, m := range t.Marks {
		all = append(all, seen{m.Index, m.Time})
	}
	for _, b := range t.Backups {
		if b.known() {
			all = append(all, seen{b.Index, b.Finished})
		}
	}
	slices.SortFunc(all, func(a, b seen) int { return cmp.Compare(a.index, b.index) })
	var last time.Time
	next := 0
	for i := range t.Backups { // by index
		b := &t.Backups[i]
		for ; next < len(all) && all[next].index < b.Index; next++ {
			if !all[next].at.After(now) {
				last = later(last, all[next].at)
			}
		}
		b.Finished = later(b.Finished, last)
	}
}

// wasLetGo are the indexes up to which records say that a log was let go. One
// that is not whole, or belongs elsewhere, says nothing.
func (r *reading) wasLetGo(ctx context.Context, t repository.TimelineID) ([]uint64, error) {
	var all []uint64
	for _, index := range r.letGo[t] {
		_, err := r.repo.ReadPrunedLog(ctx, repository.PrunedLogName(t, index))
		switch {
		case errors.Is(err, repository.ErrAltered), errors.Is(err, sinks.ErrNotFound):
		case err != nil:
			return nil, err
		default:
			all = append(all, index)
		}
	}
	return all, nil
}

// endDamaged finds out where damaged segments end whose names do not tell: before
// the next one that an archiver wrote. The last one stays without an end.
func (t *Timeline) endDamaged() {
	slices.SortFunc(t.Segments, func(a, b Segment) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Name, b.Name))
	})
	for i := range t.Segments {
		s := &t.Segments[i]
		if s.Last > 0 {
			continue
		}
		for _, next := range t.Segments[i+1:] {
			if next.First > s.First {
				s.Last = next.First - 1
				break
			}
		}
	}
}
