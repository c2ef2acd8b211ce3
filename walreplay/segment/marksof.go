package segment

import (
	"context"
	"errors"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// marked are the segments with marks, less those that a merged one replaces,
// in the order of the view.
func (l *Log) marked(v *view) []Header {
	var all []Header
	var merged []Header // that may hold what comes
	for _, h := range v.segments {
		if h.Level > 0 && !l.spoiled(h.name()) {
			merged = append(merged, h)
		}
	}
	// Merged segments are ordered by their first index: those that end before a
	// segment begins need not be looked at again.
	for _, h := range v.segments {
		for len(merged) > 0 && merged[0].LastIndex < h.FirstIndex {
			merged = merged[1:]
		}
		if h.Marks > 0 && !l.spoiled(h.name()) && !replaced(h, merged) {
			all = append(all, h)
		}
	}
	return all
}

// replaced tells whether one of the merged segments replaces h.
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
	b, err := l.body(ctx, h)
	v := l.current()
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
	case !isDamage(err):
		return nil, err
	}
	var all []raftlog.Mark
	for _, other := range l.marked(v) {
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
