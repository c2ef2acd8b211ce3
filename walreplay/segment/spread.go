package segment

import (
	"context"
	"time"
)

// Spread is the time between the earliest and the latest mark of the entries from
// first to last, alive marks included; 0 where there are none. Once it is more
// than enough the rest is not read, and it may be longer.
func (l *Log) Spread(ctx context.Context, first, last uint64, enough time.Duration) (time.Duration, error) {
	var s Span
	v := l.current()
	for _, m := range v.alive {
		if first <= m.Index && m.Index <= last {
			s.marked(m.Time, m.Time)
		}
	}
	for _, h := range l.marked(v) {
		if h.LastIndex < first || h.FirstIndex-1 > last { // a mark may be of the entry before
			continue
		}
		marks, err := l.marks(ctx, h)
		if err != nil {
			return 0, err
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
	return s.LastMark.Sub(s.FirstMark), nil
}
