package merge

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// headerReaders is how many headers are read at once, to hide the round trips.
const headerReaders = 16

// facts are the part of a header that planning needs, small enough to be kept
// for a day's segments.
type facts struct {
	last          uint64
	firstTerm     uint64
	lastTerm      uint64
	before, after raftlog.Sum
	anchor        bool
	encrypted     bool
	marks         int
	firstMark     int64 // the earliest of their times, in nanoseconds; and the latest
	lastMark      int64
	raw           int64
}

func factsOf(h segment.Header) facts {
	return facts{
		h.LastIndex, h.FirstTerm, h.LastTerm, h.Before, h.After, h.Anchor, h.Object.Encrypted(),
		h.Marks, h.FirstMark.UnixNano(), h.LastMark.UnixNano(), h.Object.RawSize,
	}
}

// remembered is what the header of an object said. Another one may have taken its
// name since: what was lost is archived anew, and cut elsewhere.
type remembered struct {
	size int64
	came time.Time // as it is listed
	facts
}

// remember is what is known of a listed object.
func (m *Merger) remember(o sinks.Object) (facts, bool) {
	r, ok := m.headers[o.Name]
	return r.facts, ok && r.size == o.Size && r.came.Equal(o.ModTime)
}

// item is a segment with what its header says.
type item struct {
	repository.Segment
	facts
}

// read adds to segments what their headers say, in their order. Those that
// vanished are left out, and those that cannot be used as well, with a report.
func (m *Merger) read(ctx context.Context, segments []repository.Segment, r *Report) ([]item, error) {
	var mu sync.Mutex
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(headerReaders)
	for _, s := range segments {
		name := s.Object.Name
		mu.Lock()
		_, known := m.remember(s.Object)
		mu.Unlock()
		if known {
			continue
		}
		group.Go(func() error {
			h, err := segment.ReadHeader(groupCtx, m.Repo.Sink(), name)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				m.headers[name] = remembered{s.Object.Size, s.Object.ModTime, factsOf(h)}
			case unusable(err):
				r.Damaged = append(r.Damaged, err)
			case !errors.Is(err, sinks.ErrNotFound):
				return err
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	items, _ := m.known(segments)
	return items, nil
}

// known are those of segments whose headers were read, and whether all were.
func (m *Merger) known(segments []repository.Segment) (items []item, all bool) {
	for _, s := range segments {
		if f, ok := m.remember(s.Object); ok {
			items = append(items, item{s, f})
		}
	}
	return items, len(items) == len(segments)
}

// plan forms the runs that are to be merged now.
func (m *Merger) plan(l *listing, r rule, items []item) [][]item {
	// Names did not tell where those of level 0 end; now it is known.
	items = slices.DeleteFunc(items, func(i item) bool { return len(l.holders(r.level, i.First, i.last)) > 0 })
	return plan(items, r, m.Target, func(i item) bool { return l.old(i.Object, r.age) })
}

// unusable tells errors that are about one object and that waiting won't mend.
func unusable(err error) bool {
	var damaged *snapshot.DamagedError
	return errors.As(err, &damaged) || errors.Is(err, snapshot.ErrNewerFormat)
}

// plan forms runs of segments that follow each other in one chain, each of up
// to target raw bytes. A run that is not full is left alone until old says that
// its first one is; a run ends at every gap, anchor and overlap.
func plan(items []item, r rule, target int64, old func(item) bool) [][]item {
	var runs [][]item
	var run []item
	var raw int64
	end := func(full bool) {
		if len(run) >= r.least && len(run) > 0 && (full || old(run[0])) {
			runs = append(runs, run)
		}
		run, raw = nil, 0
	}
	for _, next := range items {
		if len(run) > 0 {
			if !follows(run[len(run)-1], next) {
				end(false)
			} else if raw+next.raw > target {
				end(true)
			}
		}
		run, raw = append(run, next), raw+next.raw
	}
	end(raw >= target)
	return runs
}

// follows tells whether next continues the chain where last ends.
func follows(last, next item) bool {
	return next.First == last.last+1 && !next.anchor && next.before == last.after && next.firstTerm >= last.lastTerm
}

// forget drops what is remembered of segments that are gone.
func (m *Merger) forget(l *listing) {
	there := map[string]bool{}
	for _, segments := range l.levels {
		for _, s := range segments {
			there[s.Object.Name] = true
		}
	}
	for name := range m.headers {
		if !there[name] {
			delete(m.headers, name)
		}
	}
	for _, known := range []map[string]time.Time{m.locked, m.unheld} {
		for name := range known {
			if !there[name] {
				delete(known, name)
			}
		}
	}
	for _, mark := range l.marks {
		there[mark.object.Name] = true
	}
	for name := range m.stamped {
		if !there[name] {
			delete(m.stamped, name)
		}
	}
}
