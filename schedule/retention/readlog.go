package retention

import (
	"cmp"
	"context"
	"errors"
	"slices"

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
		t.see(h.LastMark)
		if h.Level == 0 { // one without marks was read from a member that answered
			t.see(h.Cut)
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
		t.see(m.Time)
	}
	t.Gaps, err = r.repo.Gaps(ctx, t.ID)
	return err
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
