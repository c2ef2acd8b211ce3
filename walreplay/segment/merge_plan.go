package segment

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
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
	if m.Repo.Checks() {
		merged, err := ownMerged(ctx, m.Repo, m.Timeline)
		if err != nil {
			return nil, err
		}
		segments = append(slices.DeleteFunc(segments, func(s repository.Segment) bool { return s.Level > 0 }), merged...)
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
// far as names tell, the end of the archive apart.
func (l *listing) sources(r rule) []repository.Segment {
	below := l.levels[r.level-1]
	var found []repository.Segment
	for i, s := range below {
		last := s.Last
		if s.Level == 0 {
			last = lastByName(below, i)
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

// item is a segment as it is listed, with what its header said.
type item struct {
	Header // as planned gives it
	listed sinks.Object
}

var encryptedCodecs = []string{codec.Age}

// planned leaves out of a header what nobody looks at before the segment is read
// again. A day of a busy log has 86,400 segments, which are all remembered until a
// merged one replaces them, and an agent is to stay below 256 MiB.
func planned(h Header) Header {
	body := codec.Encoding{RawSize: h.Object.RawSize, StoredSize: h.Object.StoredSize, StoredSHA256: h.Object.StoredSHA256}
	if h.Object.Encrypted() {
		body.Codecs = encryptedCodecs // one for all
	}
	h.Kind, h.Tool, h.Object = "", "", body
	return h
}

// read adds to segments what their headers say, in their order. Those that
// vanished are left out, and those that cannot be used as well, with a report.
func (m *Merger) read(ctx context.Context, segments []repository.Segment, r *MergeReport) ([]*item, error) {
	headers, err := m.log.readHeaders(ctx, segments)
	if err != nil {
		return nil, err
	}
	var items []*item
	for _, s := range segments {
		switch found, ok := headers[s.String()]; {
		case !ok, errors.Is(found.err, repository.ErrForeign): // it does not exist
		case found.err != nil:
			r.Damaged = append(r.Damaged, found.err)
		default:
			found.header = planned(found.header)
			m.log.headers[s.String()] = found
			items = append(items, &item{found.header, s.Object})
		}
	}
	return items, nil
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
	for _, mark := range l.marks {
		there[mark.object.Name] = true
	}
	maps.DeleteFunc(m.log.headers, func(name string, _ listed) bool { return !there[name] })
	maps.DeleteFunc(m.left, func(name string, _ leftAlone) bool { return !there[name] })
}
