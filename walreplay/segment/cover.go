package segment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
)

// Run is a run of entries: those from index First to Last.
type Run struct{ First, Last uint64 }

// Cover tells which entries the log of one timeline lacks, now and again. It
// remembers what headers told, so that to look again takes a few listings, and
// a small read for each segment that is new, not merged and not made known by
// Know, which may be called while Missing is under way.
//
// It goes by indexes alone: whether what is there joins, Log tells.
type Cover struct {
	repo     *repository.Repository
	timeline repository.TimelineID
	first    uint64 // where the log began when all of it was looked at; 0: it never was

	mu   sync.Mutex
	ends map[repository.SegmentName]end // of segments whose headers are good
}

// end is the last entry of a segment, and the size that its object should have:
// one that is listed with another was cut short since.
type end struct {
	last uint64
	size int64
}

// NewCover reads nothing yet.
func NewCover(repo *repository.Repository, t repository.TimelineID) *Cover {
	return &Cover{repo: repo, timeline: t, ends: map[repository.SegmentName]end{}}
}

// Timeline is whose log it is about.
func (c *Cover) Timeline() repository.TimelineID { return c.timeline }

// Know takes the header of a segment that the caller has stored, or read in the
// repository: it is not read again.
func (c *Cover) Know(h Header) {
	if h.Timeline != c.timeline {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ends[h.name()] = end{h.LastIndex, h.Size()}
}

// Missing are the runs of entries that the log lacks although it goes on behind
// them, in their order, and the last entry that it has; 0 where it has none.
// Where it begins behind index from, what is between is missing as well; 0: it
// may begin anywhere. Damaged segments hold nothing. One that a newer version
// wrote is snapshot.ErrNewerFormat.
func (c *Cover) Missing(ctx context.Context, from uint64) (missing []Run, last uint64, err error) {
	merged, err := c.merged(ctx)
	if err != nil {
		return nil, 0, err
	}
	// What is merged up to here needs no look at what it was made of.
	if c.first > 0 && len(merged) > 0 && merged[0].First <= c.first {
		held, err := c.withSmall(ctx, merged, merged[0].Last+1)
		if err != nil {
			return nil, 0, err
		}
		// Otherwise one that begins before that point may reach beyond it.
		if last := held[len(held)-1].Last; last > merged[len(merged)-1].Last && len(lacking(held, from)) == 0 {
			return nil, last, nil
		}
	}
	held, err := c.withSmall(ctx, merged, 0)
	if err != nil || len(held) == 0 {
		return nil, 0, err
	}
	c.first = held[0].First
	return lacking(held, from), held[len(held)-1].Last, nil
}

// merged are the runs that good merged segments hold.
func (c *Cover) merged(ctx context.Context) ([]Run, error) {
	behind := repository.SegmentName{Timeline: c.timeline, First: 1<<64 - 1}.String()
	found, err := c.list(ctx, fmt.Sprintf("%s/l", c.timeline), behind)
	if err != nil {
		return nil, err
	}
	c.forget(func(n repository.SegmentName) bool { return n.Level > 0 }, found)
	return c.read(ctx, found)
}

// withSmall adds what segments of level 0 hold, of those that begin at index
// from or later. Those that a merged one replaces, as far as names tell, are not
// read.
func (c *Cover) withSmall(ctx context.Context, merged []Run, from uint64) ([]Run, error) {
	prefix := repository.SegmentName{Timeline: c.timeline}.String()
	after := ""
	if from > 0 {
		after = repository.SegmentName{Timeline: c.timeline, First: from - 1}.String()
	}
	found, err := c.list(ctx, prefix[:len(prefix)-16], after)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b repository.Segment) int { return cmp.Compare(a.First, b.First) })
	needed := found[:0:0]
	for i, s := range found {
		if i+1 < len(found) && holds(merged, Run{s.First, found[i+1].First - 1}) {
			continue
		}
		needed = append(needed, s)
	}
	c.forget(func(n repository.SegmentName) bool { return n.Level == 0 }, needed)
	small, err := c.read(ctx, needed)
	return united(append(small, merged...)), err
}

func (c *Cover) list(ctx context.Context, prefix, after string) ([]repository.Segment, error) {
	var found []repository.Segment
	for o, err := range c.repo.Sink().List(ctx, prefix, after) {
		if err != nil {
			return nil, fmt.Errorf("list the log segments of timeline %s in %s: %w", c.timeline, c.repo, err)
		}
		if n, err := repository.ParseSegmentName(o.Name); err == nil {
			found = append(found, repository.Segment{SegmentName: n, Object: o})
		}
	}
	return found, nil
}

// forget drops what is known of one kind of segments, but for those listed.
func (c *Cover) forget(kind func(repository.SegmentName) bool, listed []repository.Segment) {
	there := make(map[repository.SegmentName]bool, len(listed))
	for _, s := range listed {
		there[s.SegmentName] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := range c.ends {
		if kind(n) && !there[n] {
			delete(c.ends, n)
		}
	}
}

// read tells the runs that segments hold, united. It reads the headers that are
// not known.
func (c *Cover) read(ctx context.Context, segments []repository.Segment) ([]Run, error) {
	group, limited := errgroup.WithContext(ctx)
	group.SetLimit(parallelSmall)
	for _, s := range segments {
		if c.end(s) > 0 {
			continue
		}
		group.Go(func() error {
			h, err := readListed(limited, c.repo.Sink(), s)
			switch {
			case errors.Is(err, sinks.ErrNotFound), isDamage(err):
				return nil
			case err != nil:
				return err
			}
			c.Know(h)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var held []Run
	for _, s := range segments {
		if last := c.end(s); last > 0 {
			held = append(held, Run{s.First, last})
		}
	}
	return united(held), nil
}

// end is the last entry of a listed segment; 0 where that is not known.
func (c *Cover) end(s repository.Segment) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.ends[s.SegmentName]; e.size == s.Object.Size {
		return e.last
	}
	return 0
}

// united are the same entries in as few runs as there can be, in their order.
func united(runs []Run) []Run {
	slices.SortFunc(runs, func(a, b Run) int { return cmp.Compare(a.First, b.First) })
	var all []Run
	for _, r := range runs {
		if n := len(all); n > 0 && r.First <= all[n-1].Last+1 {
			all[n-1].Last = max(all[n-1].Last, r.Last)
			continue
		}
		all = append(all, r)
	}
	return all
}

// holds tells that united runs hold all of r.
func holds(runs []Run, r Run) bool {
	i, found := slices.BinarySearchFunc(runs, r.First, func(held Run, first uint64) int { return cmp.Compare(held.First, first) })
	if !found {
		i--
	}
	return i >= 0 && runs[i].First <= r.First && r.Last <= runs[i].Last
}

// lacking are the runs between united runs, and the one before the first where
// that begins behind from.
func lacking(held []Run, from uint64) []Run {
	var all []Run
	for i, r := range held {
		if i > 0 {
			all = append(all, Run{held[i-1].Last + 1, r.First - 1})
		} else if from > 0 && from < r.First {
			all = append(all, Run{from, r.First - 1})
		}
	}
	return all
}
