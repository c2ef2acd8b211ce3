package repository

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/sinks"
)

const (
	levelFolder = "/l" // with one digit behind it
	marksFolder = "/marks/"
	gapsFolder  = "/gaps/"
	startSuffix = "-start"

	smallFormat  = timelineFormat + levelFolder + "0/%016x"
	mergedFormat = timelineFormat + levelFolder + "%d/%016x-%016x"
	markFormat   = timelineFormat + marksFolder + "%016x-%016x-%016x" + documentSuffix
	gapFormat    = timelineFormat + gapsFolder + "%016x-%016x" + documentSuffix
)

// MaxLevel is the highest level that a merged segment can have.
const MaxLevel = 9

// SegmentName names a segment of the raft log.
//
// At level 0 it holds the first index of the segment that ends right before it,
// so that a listing alone shows where each ends, and what is missing. Writers
// that go on from the same segment choose the same name, whatever the codecs: a
// conditional put decides between them. What overlaps others has a level above 0.
type SegmentName struct {
	Timeline TimelineID
	Level    int // 0: as an archiver wrote it; above: merged from lower ones, or one that overlaps others
	First    uint64
	Last     uint64 // 0 at level 0, whose names do not hold it
	Previous uint64 // at level 0 only: the first index of the segment that ends right before it; 0 where none does, or the chain begins anew
	Start    bool   // above level 0 only: a chain begins with it, and nothing joins it to what ends right before it
}

func (n SegmentName) String() string {
	switch {
	case n.Level > 0 && n.Start:
		return fmt.Sprintf(mergedFormat+startSuffix, n.Timeline.ClusterID, n.Timeline.N, n.Level, n.First, n.Last)
	case n.Level > 0:
		return fmt.Sprintf(mergedFormat, n.Timeline.ClusterID, n.Timeline.N, n.Level, n.First, n.Last)
	case n.Previous > 0:
		return fmt.Sprintf(smallFormat+"-%016x", n.Timeline.ClusterID, n.Timeline.N, n.First, n.Previous)
	}
	return fmt.Sprintf(smallFormat, n.Timeline.ClusterID, n.Timeline.N, n.First)
}

// ParseSegmentName reads what String wrote.
func ParseSegmentName(name string) (n SegmentName, err error) {
	scan(name, mergedFormat, &n.Timeline.ClusterID, &n.Timeline.N, &n.Level, &n.First, &n.Last)
	valid := n.First <= n.Last
	if n.Level > 0 {
		n.Start = strings.HasSuffix(name, startSuffix)
	} else { // what follows is its predecessor, if any
		n.Last, n.Previous = 0, n.Last
		valid = n.Previous == 0 || n.Previous < n.First
	}
	if err = checkName(name, n.String(), "a log segment", valid && n.Timeline.N > 0 && n.Level <= MaxLevel); err != nil {
		return SegmentName{}, err
	}
	return n, nil
}

// MarkName names an alive mark: at Time, by its own clock, the one who asked
// heard that Member had applied Index.
type MarkName struct {
	Timeline TimelineID
	Index    uint64
	Time     time.Time // in UTC; names hold nanoseconds from 1970 to 2262
	Member   uint64
}

func (n MarkName) String() string {
	return fmt.Sprintf(markFormat, n.Timeline.ClusterID, n.Timeline.N, n.Index, uint64(n.Time.UnixNano()), n.Member)
}

// ParseMarkName reads what String wrote.
func ParseMarkName(name string) (n MarkName, err error) {
	nanos := int64(-1)
	scan(name, markFormat, &n.Timeline.ClusterID, &n.Timeline.N, &n.Index, &nanos, &n.Member)
	n.Time = time.Unix(0, nanos).UTC()
	return n, checkName(name, n.String(), "a mark", n.Timeline.N > 0 && nanos >= 0)
}

// GapName names the record of a gap that nobody can fill any more.
type GapName struct {
	Timeline    TimelineID
	First, Last uint64 // the entries that are missing
}

func (n GapName) String() string {
	return fmt.Sprintf(gapFormat, n.Timeline.ClusterID, n.Timeline.N, n.First, n.Last)
}

// ParseGapName reads what String wrote.
func ParseGapName(name string) (n GapName, err error) {
	scan(name, gapFormat, &n.Timeline.ClusterID, &n.Timeline.N, &n.First, &n.Last)
	return n, checkName(name, n.String(), "a gap", n.Timeline.N > 0 && n.First <= n.Last)
}

// Segment is what a listing says of a log segment.
type Segment struct {
	SegmentName
	Object sinks.Object
}

// Segments lists all log segments of one timeline, level by level, each level
// ordered by first index. Objects with other names are passed over.
func (r *Repository) Segments(ctx context.Context, t TimelineID) ([]Segment, error) {
	return r.segments(ctx, t, t.String()+levelFolder, "")
}

// MergedSegments lists those of level 1 and above: some hundred for years of a
// log, where level 0 can have a day of one a second.
func (r *Repository) MergedSegments(ctx context.Context, t TimelineID) ([]Segment, error) {
	return r.segments(ctx, t, t.String()+levelFolder, t.String()+levelFolder+"0~") // behind all of level 0
}

// SmallSegments lists those of level 0 that begin at index from or later.
func (r *Repository) SmallSegments(ctx context.Context, t TimelineID, from uint64) ([]Segment, error) {
	after := ""
	if from > 0 {
		after = SegmentName{Timeline: t, First: from - 1}.String() + "~" // behind those with a predecessor
	}
	return r.segments(ctx, t, t.String()+levelFolder+"0/", after)
}

// FirstSmall is the segment of level 0 that begins first, and false where there
// is none. It takes one request.
func (r *Repository) FirstSmall(ctx context.Context, t TimelineID) (Segment, bool, error) {
	for s, err := range r.eachSegment(ctx, t, t.String()+levelFolder+"0/", "") {
		return s, err == nil, err
	}
	return Segment{}, false, nil
}

func (r *Repository) segments(ctx context.Context, t TimelineID, prefix, after string) ([]Segment, error) {
	var all []Segment
	for s, err := range r.eachSegment(ctx, t, prefix, after) {
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// eachSegment lists log segments; an error is the last that it yields.
func (r *Repository) eachSegment(ctx context.Context, t TimelineID, prefix, after string) iter.Seq2[Segment, error] {
	return func(yield func(Segment, error) bool) {
		for obj, err := range r.sink.List(ctx, prefix, after) {
			if err != nil {
				yield(Segment{}, fmt.Errorf("list the log segments of timeline %s in %s: %w", t, r, err))
				return
			}
			if n, err := ParseSegmentName(obj.Name); err == nil && !yield(Segment{n, obj}, nil) {
				return
			}
		}
	}
}

// Marks lists the alive marks of one timeline, ordered by index, then time. Where
// signatures are checked, unsigned ones are left out that by their names say anything:
// what lies between two of one member at one index says nothing more than these, so it
// is listed unread. An idle cluster has thousands of those.
func (r *Repository) Marks(ctx context.Context, t TimelineID) ([]MarkName, error) {
	all, err := listNamed(ctx, r, t.String()+marksFolder, fmt.Sprintf("marks of timeline %s", t), ParseMarkName)
	if err != nil || !r.Checks() {
		return all, err
	}
	type place struct{ index, member uint64 }
	at := map[place][]MarkName{} // by time, as they are listed
	for _, n := range all {
		at[place{n.Index, n.Member}] = append(at[place{n.Index, n.Member}], n)
	}
	var own []MarkName
	var mu sync.Mutex
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(checkedAtOnce)
	for _, marks := range at {
		group.Go(func() error {
			first, last := 0, len(marks)
			for ; first < last; first++ {
				if counts, err := r.Counts(groupCtx, marks[first].String()); err != nil {
					return err
				} else if counts {
					break
				}
			}
			for ; last > first; last-- {
				if counts, err := r.Counts(groupCtx, marks[last-1].String()); err != nil {
					return err
				} else if counts {
					break
				}
			}
			mu.Lock()
			defer mu.Unlock()
			own = append(own, marks[first:last]...)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(own, func(a, b MarkName) int { return strings.Compare(a.String(), b.String()) })
	return own, nil
}

// Gaps lists the recorded gaps of one timeline, ordered by first index.
func (r *Repository) Gaps(ctx context.Context, t TimelineID) ([]GapName, error) {
	all, err := listNamed(ctx, r, t.String()+gapsFolder, fmt.Sprintf("gaps of timeline %s", t), ParseGapName)
	if err != nil {
		return nil, err
	}
	return dropUnsigned(ctx, r, all, GapName.String)
}
