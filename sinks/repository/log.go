package repository

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/requorum/requorum/sinks"
)

const (
	levelFolder = "/l" // with one digit behind it
	marksFolder = "/marks/"
	gapsFolder  = "/gaps/"
)

// MaxLevel is the highest level that a merged segment can have.
const MaxLevel = 9

// SegmentName names a segment of the raft log. One first index has one name at
// level 0, whatever the codecs, so that a conditional put decides between
// writers.
type SegmentName struct {
	Timeline TimelineID
	Level    int // 0: as an archiver wrote it; above: merged from lower ones
	First    uint64
	Last     uint64 // 0 at level 0, whose names do not tell it
}

func (n SegmentName) String() string {
	if n.Level == 0 {
		return fmt.Sprintf("%s%s0/%016x", n.Timeline, levelFolder, n.First)
	}
	return fmt.Sprintf("%s%s%d/%016x-%016x", n.Timeline, levelFolder, n.Level, n.First, n.Last)
}

// ParseSegmentName reads what String wrote.
func ParseSegmentName(name string) (SegmentName, error) {
	timeline, rest, err := cutName(name, levelFolder)
	if err == nil {
		var n SegmentName
		folder, base, _ := strings.Cut(rest, "/")
		n.Timeline = timeline
		n.Level, err = strconv.Atoi(folder)
		first, last, merged := strings.Cut(base, "-")
		n.First = parseHex(first, &err)
		if merged {
			n.Last = parseHex(last, &err)
		}
		// The round trip refuses every second spelling of a name.
		if err == nil && n.Level >= 0 && n.Level <= MaxLevel && (n.Level == 0 || n.First <= n.Last) && n.String() == name {
			return n, nil
		}
	}
	return SegmentName{}, fmt.Errorf("%q is not the name of a log segment", name)
}

// MarkName names an alive mark: at Time, by its own clock, the one who asked
// was told that Member had applied Index.
type MarkName struct {
	Timeline TimelineID
	Index    uint64
	Time     time.Time // in UTC; names hold nanoseconds from 1970 to 2262
	Member   uint64
}

func (n MarkName) String() string {
	return fmt.Sprintf("%s%s%016x-%016x-%016x%s", n.Timeline, marksFolder, n.Index, uint64(n.Time.UnixNano()), n.Member, documentSuffix)
}

// ParseMarkName reads what String wrote.
func ParseMarkName(name string) (MarkName, error) {
	timeline, base, err := cutName(name, marksFolder)
	if parts := strings.Split(strings.TrimSuffix(base, documentSuffix), "-"); err == nil && len(parts) == 3 {
		n := MarkName{Timeline: timeline, Index: parseHex(parts[0], &err)}
		nanos := parseHex(parts[1], &err)
		n.Member = parseHex(parts[2], &err)
		n.Time = time.Unix(0, int64(nanos)).UTC()
		if err == nil && int64(nanos) >= 0 && n.String() == name {
			return n, nil
		}
	}
	return MarkName{}, fmt.Errorf("%q is not the name of a mark", name)
}

// GapName names the record of a gap that nobody can fill any more.
type GapName struct {
	Timeline    TimelineID
	First, Last uint64 // the entries that are missing
}

func (n GapName) String() string {
	return fmt.Sprintf("%s%s%016x-%016x%s", n.Timeline, gapsFolder, n.First, n.Last, documentSuffix)
}

// ParseGapName reads what String wrote.
func ParseGapName(name string) (GapName, error) {
	timeline, base, err := cutName(name, gapsFolder)
	if err == nil {
		first, last, _ := strings.Cut(strings.TrimSuffix(base, documentSuffix), "-")
		n := GapName{timeline, parseHex(first, &err), parseHex(last, &err)}
		if err == nil && n.First <= n.Last && n.String() == name {
			return n, nil
		}
	}
	return GapName{}, fmt.Errorf("%q is not the name of a gap", name)
}

// Segment is what a listing tells of a log segment.
type Segment struct {
	SegmentName
	Object sinks.Object
}

// Segments lists the log segments of one timeline, level by level, each level
// ordered by first index. Objects with other names are passed over.
func (r *Repository) Segments(ctx context.Context, t TimelineID) ([]Segment, error) {
	var all []Segment
	for obj, err := range r.list(ctx, t, levelFolder) {
		if err != nil {
			return nil, fmt.Errorf("list the log segments of timeline %s in %s: %w", t, r, err)
		}
		if n, err := ParseSegmentName(obj.Name); err == nil {
			all = append(all, Segment{n, obj})
		}
	}
	return all, nil
}

// Marks lists the alive marks of one timeline, ordered by index, then time.
func (r *Repository) Marks(ctx context.Context, t TimelineID) ([]MarkName, error) {
	var all []MarkName
	for obj, err := range r.list(ctx, t, marksFolder) {
		if err != nil {
			return nil, fmt.Errorf("list the marks of timeline %s in %s: %w", t, r, err)
		}
		if n, err := ParseMarkName(obj.Name); err == nil {
			all = append(all, n)
		}
	}
	return all, nil
}

// Gaps lists the recorded gaps of one timeline, ordered by first index.
func (r *Repository) Gaps(ctx context.Context, t TimelineID) ([]GapName, error) {
	var all []GapName
	for obj, err := range r.list(ctx, t, gapsFolder) {
		if err != nil {
			return nil, fmt.Errorf("list the gaps of timeline %s in %s: %w", t, r, err)
		}
		if n, err := ParseGapName(obj.Name); err == nil {
			all = append(all, n)
		}
	}
	return all, nil
}

func (r *Repository) list(ctx context.Context, t TimelineID, folder string) iter.Seq2[sinks.Object, error] {
	return r.sink.List(ctx, t.String()+folder, "")
}

// cutName takes a name apart at folder.
func cutName(name, folder string) (t TimelineID, rest string, err error) {
	timeline, rest, ok := strings.Cut(name, folder)
	if !ok {
		return t, "", fmt.Errorf("it is not in %s", folder)
	}
	t, err = ParseTimelineID(timeline)
	return t, rest, err
}

// parseHex reads 64 bits; the first failure is kept in err.
func parseHex(s string, err *error) uint64 {
	n, failed := strconv.ParseUint(s, 16, 64)
	if *err == nil {
		*err = failed
	}
	return n
}
