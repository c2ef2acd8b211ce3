package walreplay

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// Kind is what a target goes by.
type Kind string

// The kinds of targets.
const (
	// Latest is the end of the log.
	Latest Kind = ""
	// AtTime is the state at Target.Time.
	AtTime Kind = "time"
	// AtRevision is the last index whose revision is Target.Revision.
	AtRevision Kind = "revision"
	// AtIndex is the state after the entry at Target.Index.
	AtIndex Kind = "index"
	// BeforeKey is just before the newest burst of changes or deletions of
	// Target.Key, what is deleted with it included, and BeforePrefix of those of
	// the keys that begin with it.
	BeforeKey    Kind = "before"
	BeforePrefix Kind = "before-prefix"
)

// Target is the point that is asked for. The zero Target is the end of the log.
// Its JSON form is stable.
type Target struct {
	Kind Kind `json:"kind,omitempty"`

	Time time.Time `json:"time,omitzero"`
	// Nearest takes the observation nearest to Time where none is close enough.
	Nearest  bool   `json:"nearest,omitempty"`
	Revision int64  `json:"revision,omitempty"`
	Index    uint64 `json:"index,omitempty"`
	Key      string `json:"key,omitempty"`
}

// String says it in a sentence: "the state at …" goes before it.
func (t Target) String() string {
	switch t.Kind {
	case Latest:
	case AtTime:
		return instant(t.Time)
	case AtRevision:
		return "revision " + strconv.FormatInt(t.Revision, 10)
	case AtIndex:
		return "raft index " + strconv.FormatUint(t.Index, 10)
	case BeforeKey:
		return fmt.Sprintf("the point just before %q was last changed or deleted", t.Key)
	case BeforePrefix:
		return fmt.Sprintf("the point just before what begins with %q was last changed or deleted", t.Key)
	}
	return "the end of the log"
}

// NeedsReplay reports whether only a replay can say which index a target is.
func (t Target) NeedsReplay() bool {
	return t.Kind == AtRevision || t.Searches()
}

// Searches reports whether a target is looked for in the log, from its end back.
func (t Target) Searches() bool { return t.Kind == BeforeKey || t.Kind == BeforePrefix }

func (t Target) check() error {
	switch {
	case t.Kind == AtTime && t.Time.IsZero(),
		t.Kind == AtRevision && t.Revision < 1,
		t.Kind == AtIndex && t.Index < 1,
		t.Kind == BeforeKey && t.Key == "":
		return fmt.Errorf("%s is no point of a log", t)
	case t.Nearest && t.Kind != AtTime:
		return fmt.Errorf("only a time can be taken to the nearest observation, not %s", t)
	}
	return nil
}

// instant is how messages give a time, exact to the millisecond.
func instant(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.999Z07:00") }

// exact is how far apart two observations may be for the state between them to
// count as that at any time between.
const exact = time.Second

// clock says which index a cluster had reached when, from live observations.
type clock interface {
	// marksAt are the observation of the highest index at or before t, and that of
	// the lowest one at or after it; nil where there is none on that side.
	marksAt(ctx context.Context, t time.Time) (before, after *raftlog.Mark, err error)
	// marksOf are the last observation below index and the first one at or above it.
	marksOf(ctx context.Context, index uint64) (before, after *raftlog.Mark, err error)
	// duration is the time between the earliest and the latest observation of the
	// entries from first to last, or one that is longer than exact.
	duration(ctx context.Context, first, last uint64) (time.Duration, error)
}

// resolveTime finds the index of a time. The state at a time between two
// observations of different indexes is that of the earlier one, if they are
// close; otherwise nobody knows it.
func (h *History) resolveTime(ctx context.Context, t Target) (index uint64, at *raftlog.Mark, err error) {
	refuse := func(reason string, before, after *raftlog.Mark) error {
		e := &NotCoveredError{Target: t, History: h.Name, Reason: reason}
		e.Before, _ = h.nearSeen(before)
		_, e.After = h.nearSeen(after)
		return e
	}
	if h.clock == nil {
		return 0, nil, fmt.Errorf("a time needs the archive's observations, and %s has none: give an index, a revision or a key instead", h.Name)
	}
	before, after, err := h.clock.marksAt(ctx, t.Time)
	if err != nil {
		return 0, nil, fmt.Errorf("find the index at %s: %w", t, err)
	}
	twice, err := h.cameTwice(ctx, before, after)
	if err != nil {
		return 0, nil, fmt.Errorf("find the index at %s: %w", t, err)
	}
	switch {
	case before == nil && after == nil:
		return 0, nil, refuse("nothing in it says when an entry was written", nil, nil)
	case twice && !t.Nearest:
		return 0, nil, refuse(fmt.Sprintf("the archivers' clocks showed that time at about raft index %d and again at about %d (one was set back, or two disagree): name the one that is meant with --index, or take the nearer observation with --at-nearest",
			after.Index, before.Index), after, before)
	case twice:
	case before != nil && before.Time.Equal(t.Time):
		return before.Index, before, nil
	case before != nil && after != nil && (before.Index == after.Index || after.Time.Sub(before.Time) <= exact):
		return before.Index, before, nil
	}
	if t.Nearest {
		at = nearest(t.Time, before, after)
		return at.Index, at, nil
	}
	switch {
	case after == nil && t.Time.After(time.Now()):
		return 0, nil, refuse("by this machine's clock that time is still to come (without a Z or an offset it is in this machine's zone); --latest is the end of the log", before, nil)
	case after == nil:
		return 0, nil, refuse("the last observation is from before it; --latest is the end of the log, --at-nearest the observation", before, nil)
	case before == nil:
		return 0, nil, refuse("the first observation is from after it", nil, after)
	}
	// The members' clocks may disagree: then the earlier one has the higher index.
	low, high := min(before.Index, after.Index), max(before.Index, after.Index)
	return 0, nil, refuse(fmt.Sprintf("entries %d to %d were written at some time in the %s between two observations: name one of them with --index, or take the nearer observation with --at-nearest",
		low+1, high, after.Time.Sub(before.Time).Round(time.Millisecond)), before, after)
}

// cameTwice says that the observations around a time are of two passes of a clock
// that was set back: the earlier one has the higher index, and what lies between
// took longer than two observations of one time may be apart.
func (h *History) cameTwice(ctx context.Context, before, after *raftlog.Mark) (bool, error) {
	if before == nil || after == nil || before.Index <= after.Index {
		return false, nil
	}
	took, err := h.clock.duration(ctx, after.Index, before.Index)
	return took > exact, err
}

// nearSeen are the recoverable points nearest to an observation, on both sides:
// itself, unless the log or a full snapshot to begin from is missing there.
func (h *History) nearSeen(s *raftlog.Mark) (before, after *Near) {
	if s == nil {
		return nil, nil
	}
	for _, b := range h.bases {
		if b.Index() <= s.Index && s.Index <= h.Reach(b) {
			n := &Near{Index: s.Index, Time: instant(s.Time)}
			return n, n
		}
	}
	return h.nearest(s.Index)
}

func nearest(t time.Time, before, after *raftlog.Mark) *raftlog.Mark {
	switch {
	case before == nil:
		return after
	case after == nil || t.Sub(before.Time) <= after.Time.Sub(t):
		return before
	}
	return after
}

// about says when an entry was written, as far as that is known.
func (h *History) about(ctx context.Context, index uint64) (string, error) {
	if h.clock == nil {
		return "", nil
	}
	before, after, err := h.clock.marksOf(ctx, index)
	switch {
	case err != nil:
		return "", err
	case before != nil && after != nil && after.Time.Sub(before.Time) <= exact:
		return "about " + instant(after.Time), nil
	case before != nil && after != nil:
		return "between " + instant(before.Time) + " and " + instant(after.Time), nil
	case after != nil:
		return "before " + instant(after.Time), nil
	case before != nil:
		return "after " + instant(before.Time), nil
	}
	return "", nil
}
