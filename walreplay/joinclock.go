package walreplay

import (
	"context"
	"slices"
	"time"
)

// joinedClock is what the archives among the parts of a joined history observed,
// each up to the end of its last part, and when the image was taken.
type joinedClock struct {
	base   *Base // a stored backup, or nil
	clocks []partClock
}

type partClock struct {
	clock
	history *History
	until   uint64
}

// clock is nil where nothing tells the time.
func (j *joined) clock() *joinedClock {
	c := &joinedClock{}
	if j.base.Manifest != nil {
		c.base = j.base
	}
	for _, p := range j.parts {
		if p.History.clock == nil {
			continue
		}
		i := slices.IndexFunc(c.clocks, func(o partClock) bool { return o.history == p.History })
		if i < 0 {
			i, c.clocks = len(c.clocks), append(c.clocks, partClock{clock: p.History.clock, history: p.History})
		}
		c.clocks[i].until = p.Last
	}
	if c.base == nil && len(c.clocks) == 0 {
		return nil
	}
	return c
}

func (c *joinedClock) around(ctx context.Context, t time.Time) (before, after *Seen, err error) {
	if c.base != nil {
		before, after = c.base.around(t)
	}
	for _, o := range c.clocks {
		low, high, err := o.around(ctx, t)
		if err != nil {
			return nil, nil, err
		}
		before, after = further(before, low), nearer(after, high)
	}
	return before, after, nil
}

func (c *joinedClock) of(ctx context.Context, index uint64) (before, after *Seen, err error) {
	for _, o := range c.clocks {
		low, high, err := o.of(ctx, index)
		if err != nil {
			return nil, nil, err
		}
		before, after = further(before, low), nearer(after, high)
	}
	if before != nil && after != nil && after.Time.Before(before.Time) {
		before = nil // clocks that disagree
	}
	return before, after, nil
}

// spread counts each archive by its own clock, up to the end of its part.
func (c *joinedClock) spread(ctx context.Context, first, last uint64) (longest time.Duration, err error) {
	for _, o := range c.clocks {
		one, err := o.spread(ctx, first, min(last, o.until))
		if err != nil {
			return 0, err
		}
		longest = max(longest, one)
	}
	return longest, nil
}

// around leaves out what was seen behind the part. At a time when the cluster was
// further than that, the last observation in the part is the nearest.
func (p partClock) around(ctx context.Context, t time.Time) (before, after *Seen, err error) {
	before, after, err = p.clock.around(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	if before != nil && before.Index > p.until {
		if before, _, err = p.clock.of(ctx, p.until+1); err != nil {
			return nil, nil, err
		}
		if before != nil && before.Time.After(t) {
			before = nil // clocks that disagree
		}
		return before, nil, nil
	}
	return before, p.within(after), nil
}

func (p partClock) of(ctx context.Context, index uint64) (before, after *Seen, err error) {
	before, after, err = p.clock.of(ctx, min(index, p.until+1))
	return before, p.within(after), err
}

func (p partClock) within(s *Seen) *Seen {
	if s != nil && s.Index > p.until {
		return nil
	}
	return s
}

func further(a, b *Seen) *Seen {
	if a == nil || b != nil && b.Index > a.Index {
		return b
	}
	return a
}

func nearer(a, b *Seen) *Seen {
	if a == nil || b != nil && b.Index < a.Index {
		return b
	}
	return a
}
