package segment

import (
	"context"
	"errors"
	"slices"
	"sort"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

// rule is when segments of the level below become one of this level.
type rule struct {
	level int
	// age of the oldest source at which a run is merged although it is small.
	age time.Duration
	// least is how many sources are worth it. At level 1 one is enough: what
	// archivers write is not locked, merged segments are.
	least int
}

// rules lead to some hundred segments for years of a quiet cluster.
var rules = []rule{
	{level: 1, age: time.Hour, least: 1},
	{level: 2, age: 24 * time.Hour, least: 2},
	{level: 3, age: 30 * 24 * time.Hour, least: 2},
}

// listing is what names show of the log.
type listing struct {
	// now is the latest time that the sink gave to any of it, so the sink's own
	// clock says that it is at least this late.
	now    time.Time
	levels [repository.MaxLevel + 1][]repository.Segment // each ordered by first index
	marks  []mark                                        // alive marks, ordered by index, then time
}

func (m *Merger) list(ctx context.Context) (*listing, error) {
	segments, err := m.Repo.Segments(ctx, m.Timeline)
	if err != nil {
		return nil, err
	}
	if m.Repo.Checks() {
		// Without the foreign merged ones, and the damaged ones, which may be anybody's: by
		// its name alone one could replace everything.
		merged := slices.DeleteFunc(slices.Clone(segments), func(s repository.Segment) bool { return s.Level == 0 })
		headers, err := (&Log{repo: m.Repo}).readHeaders(ctx, merged)
		if err != nil {
			return nil, err
		}
		segments = slices.DeleteFunc(segments, func(s repository.Segment) bool { return snapshot.IsDamaged(headers[s.String()].err) })
	}
	l := &listing{}
	for _, s := range segments {
		l.levels[s.Level] = append(l.levels[s.Level], s)
		l.seen(s.Object)
	}
	return l, m.listMarks(ctx, l)
}

// seen moves now on.
func (l *listing) seen(o sinks.Object) {
	if o.ModTime.After(l.now) {
		l.now = o.ModTime
	}
}

// old reports whether the sink has kept an object for longer than d.
func (l *listing) old(o sinks.Object, d time.Duration) bool { return l.now.Sub(o.ModTime) >= d }

// isEnd reports whether s is the newest that archivers wrote.
func (l *listing) isEnd(s repository.Segment) bool {
	zero := l.levels[0]
	return s.Level == 0 && len(zero) > 0 && s.First == zero[len(zero)-1].First
}

// sources are the segments below a level that are not in a merged one yet, as
// far as names show, the end of the archive apart.
func (l *listing) sources(r rule) []repository.Segment {
	below := l.levels[r.level-1]
	var found []repository.Segment
	for i, s := range below {
		last := s.Last
		if s.Level == 0 {
			// Its name does not show it. It ends before the next one begins, or
			// overlaps it; where there is a hole behind it it may reach into that,
			// so only its header shows it.
			last = s.First
			if i+1 < len(below) {
				last = max(last, below[i+1].First-1)
			}
		}
		if !l.isEnd(s) && l.old(s.Object, settle) && len(l.holders(r.level, s.First, last)) == 0 {
			found = append(found, s)
		}
	}
	return found
}

// overlapping is how many segments of one level may begin before an entry and
// one of them still be found to hold it. Merged segments hardly ever overlap;
// one that is not found costs a needless merge.
const overlapping = 8

// holders are the segments from a level on whose names say that they hold
// these entries.
func (l *listing) holders(level int, first, last uint64) []repository.Segment {
	var found []repository.Segment
	for _, segments := range l.levels[level:] {
		end := sort.Search(len(segments), func(i int) bool { return segments[i].First > first })
		for _, s := range segments[max(0, end-overlapping):end] {
			if last <= s.Last {
				found = append(found, s)
			}
		}
	}
	return found
}

// due reports whether there is work, or may be as far as names show.
func (m *Merger) due(l *listing) bool {
	return slices.ContainsFunc(rules, func(r rule) bool {
		sources := l.sources(r)
		return len(sources) > 0 && m.mayBeDue(l, r, sources)
	}) || len(l.superseded()) > 0 || len(m.repeated(l)) >= enoughMarks
}

// mayBeDue goes by headers where all of them were read before, so that what
// names suggest in vain does so once.
func (m *Merger) mayBeDue(l *listing, r rule, sources []repository.Segment) bool {
	if items, all := m.known(sources); all {
		return len(m.plan(l, r, items)) > 0
	}
	var size int64
	for i, s := range sources {
		size += s.Object.Size - HeaderSize
		enough := r.least == 1 || i+1 < len(sources) && sources[i+1].First == s.Last+1
		if l.old(s.Object, r.age) && enough || r.level == 1 && size >= m.Target {
			return true
		}
	}
	return false
}

// superseded are the segments that, by their names, one of those that replace
// them may hold for long enough.
func (l *listing) superseded() []isReplaced {
	var found []isReplaced
	for level, segments := range l.levels[:repository.MaxLevel] {
		for _, s := range segments {
			last := max(s.First, s.Last)
			if l.isEnd(s) || !l.old(s.Object, keep) {
				continue
			}
			for _, by := range l.holders(level+1, s.First, last) {
				if l.old(by.Object, keep) {
					found = append(found, isReplaced{s, by})
					break
				}
			}
		}
	}
	return found
}

// replaced is a segment and one that may hold all of it.
type isReplaced struct{ segment, by repository.Segment }

// item is a segment as it is listed, with what its header said. Another one may have
// taken its name since: what was lost is archived anew, and cut elsewhere.
type item struct {
	Header // as planned gives it
	listed sinks.Object
}

// remember is what is known of a listed object.
func (m *Merger) remember(o sinks.Object) (*item, bool) {
	i, ok := m.headers[o.Name]
	return i, ok && i.listed.Size == o.Size && i.listed.ModTime.Equal(o.ModTime)
}

var encryptedCodecs = []string{codec.Age}

// planned leaves out of a header what nobody looks at before the segment is read
// again. A day of a busy log has 86,400 segments, which are all remembered until a
// merged one replaces them, and an agent is to stay below 256 MiB.
func planned(h Header) Header {
	body := codec.Encoding{RawSize: h.Object.RawSize, StoredSHA256: h.Object.StoredSHA256}
	if h.Object.Encrypted() {
		body.Codecs = encryptedCodecs // one for all
	}
	h.Kind, h.Tool, h.Object = "", "", body
	return h
}

// read adds to segments what their headers say, in their order. Those that
// vanished are left out, and those that cannot be used as well, with a report.
func (m *Merger) read(ctx context.Context, segments []repository.Segment, r *MergeReport) ([]*item, error) {
	var mu sync.Mutex
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(parallelSmall)
	for _, s := range segments {
		name := s.Object.Name
		mu.Lock()
		_, known := m.remember(s.Object)
		mu.Unlock()
		if known {
			continue
		}
		group.Go(func() error {
			h, err := ReadHeader(groupCtx, m.Repo, name)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				m.headers[name] = &item{planned(h), s.Object}
			case errors.Is(err, repository.ErrUnsigned): // it does not exist
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
func (m *Merger) known(segments []repository.Segment) (items []*item, all bool) {
	for _, s := range segments {
		if i, ok := m.remember(s.Object); ok {
			items = append(items, i)
		}
	}
	return items, len(items) == len(segments)
}

// plan forms the runs that are to be merged now.
func (m *Merger) plan(l *listing, r rule, items []*item) [][]*item {
	// Names did not show where those of level 0 end; now it is known.
	items = slices.DeleteFunc(items, func(i *item) bool { return len(l.holders(r.level, i.FirstIndex, i.LastIndex)) > 0 })
	return plan(items, r, m.Target, func(i *item) bool { return l.old(i.listed, r.age) })
}

// plan forms runs of segments that follow each other in one chain, each of up
// to target raw bytes. A run that is not full is left alone until old says that
// its first one is; a run ends at every gap, chain start and overlap.
func plan(items []*item, r rule, target int64, old func(*item) bool) [][]*item {
	var runs [][]*item
	var run []*item
	var raw int64
	end := func(full bool) {
		if len(run) >= r.least && len(run) > 0 && (full || old(run[0])) {
			runs = append(runs, run)
		}
		run, raw = nil, 0
	}
	for _, next := range items {
		if len(run) > 0 {
			if last := run[len(run)-1]; !last.GoesOn(next.Header) || next.FirstTerm < last.LastTerm {
				end(false)
			} else if raw+next.Object.RawSize > target {
				end(true)
			}
		}
		run, raw = append(run, next), raw+next.Object.RawSize
	}
	end(raw >= target)
	return runs
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
}
