package merge

import (
	"context"
	"fmt"
	"sort"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay/segment"
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

// listing is what names tell of the log.
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

// old tells whether the sink has kept an object for longer than d.
func (l *listing) old(o sinks.Object, d time.Duration) bool { return l.now.Sub(o.ModTime) >= d }

// isEnd tells whether s is the newest that archivers wrote.
func (l *listing) isEnd(s repository.Segment) bool {
	zero := l.levels[0]
	return s.Level == 0 && len(zero) > 0 && s.First == zero[len(zero)-1].First
}

// sources are the segments below a level that are not in a merged one yet, as
// far as names tell, the end of the archive apart.
func (l *listing) sources(r rule) []repository.Segment {
	below := l.levels[r.level-1]
	var found []repository.Segment
	for i, s := range below {
		last := s.Last
		if s.Level == 0 {
			// Its name does not tell. It ends before the next one begins, or
			// overlaps it; where there is a hole behind it it may reach into that,
			// so only its header tells.
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

// due describes the work that there is, or may be as far as names tell; empty
// where there is none. It is the same text for as long as nobody has done any
// of it.
func (m *Merger) due(l *listing) string {
	for _, r := range rules {
		if sources := l.sources(r); len(sources) > 0 && m.mayBeDue(l, r, sources) {
			return fmt.Sprintf("level %d from %d, %d segments", r.level, sources[0].First, len(sources))
		}
	}
	if gone := l.superseded(m.Keep); len(gone) > 0 {
		return fmt.Sprintf("superseded: %d from %s", len(gone), gone[0].segment)
	}
	if again := m.repeated(l); len(again) >= enoughMarks {
		return fmt.Sprintf("marks: %d from %s", len(again), again[0])
	}
	return ""
}

// mayBeDue goes by headers where all of them were read before, so that what
// names suggest in vain does so once.
func (m *Merger) mayBeDue(l *listing, r rule, sources []repository.Segment) bool {
	if items, all := m.known(sources); all {
		return len(m.plan(l, r, items)) > 0
	}
	var size int64
	for i, s := range sources {
		size += s.Object.Size - segment.HeaderSize
		enough := r.least == 1 || i+1 < len(sources) && sources[i+1].First == s.Last+1
		if l.old(s.Object, r.age) && enough || r.level == 1 && size >= m.Target {
			return true
		}
	}
	return false
}

// superseded are the segments that, by their names, one of those that replace
// them may hold for long enough.
func (l *listing) superseded(keep time.Duration) []replaced {
	var found []replaced
	for level, segments := range l.levels[:repository.MaxLevel] {
		for _, s := range segments {
			last := max(s.First, s.Last)
			if l.isEnd(s) || !l.old(s.Object, keep) {
				continue
			}
			for _, by := range l.holders(level+1, s.First, last) {
				if l.old(by.Object, keep) {
					found = append(found, replaced{s, by})
					break
				}
			}
		}
	}
	return found
}

// replaced is a segment and one that may hold all of it.
type replaced struct{ segment, by repository.Segment }
