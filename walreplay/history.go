package walreplay

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// Base is a database image that a replay can begin from.
type Base struct {
	// Name is how messages call it, ID what names it in a Recipe: a backup's ID,
	// a file's path, or empty for the empty database before the first entry.
	Name, ID string
	// Image is nil for the empty database.
	Image snapshot.Image
	Facts snapshot.Facts
	Taken time.Time // when the cluster had that state: when the image was read; zero where it is not known
	// Manifest is that of a stored backup, nil otherwise.
	Manifest *snapshot.Manifest
}

// Index is that of the last entry that the image holds.
func (b *Base) Index() uint64 { return b.Facts.RaftIndex }

func (b *Base) point() *Near {
	n := &Near{Index: b.Index(), Revision: b.Facts.Revision, Backup: b.Name}
	if !b.Taken.IsZero() {
		n.Time = instant(b.Taken)
	}
	return n
}

// entryLog is where entries come from: the archive, a member's WAL, or several
// of them.
type entryLog interface {
	// Coverage are the parts without a hole, in order.
	Coverage() []segment.Coverage
	// Entries yields the entries from first to last in order. The first error is
	// the end.
	Entries(ctx context.Context, first, last uint64) iter.Seq2[raftlog.Entry, error]
	// size is about how many bytes the entries from first to last have.
	size(first, last uint64) int64
	// damageAt is damage that may hide entries from first to last; nil where there is
	// none.
	damageAt(first, last uint64) error
	// chain is the archive's chain value at an index; errNoChain where there is none.
	chain(ctx context.Context, index uint64) (raftlog.Sum, error)
}

// History is one history of a cluster: images and the log between and after
// them.
type History struct {
	// Name is how messages call it.
	Name string
	// Timeline is zero for a member's data directory. Of a joined history it is that
	// of the backup which it begins from, zero where it begins from another image.
	Timeline repository.TimelineID

	bases []*Base // by index
	log   entryLog
	clock clock // nil: nothing shows the time
	// kept is what a search read of an archive, to be read again; nil without one.
	kept *os.File
}

// Bases are the images, by index.
func (h *History) Bases() []*Base { return slices.Clone(h.bases) }

// base finds an image by its ID.
func (h *History) base(id string) (*Base, error) {
	for _, b := range h.bases {
		if b.ID == id {
			return b, nil
		}
	}
	return nil, fmt.Errorf("%w: %s has no full snapshot %s", snapshot.ErrNoBackup, h.Name, id)
}

// after is the span of the log that goes on from b, nil where none does.
func (h *History) after(b *Base) *segment.Coverage {
	for _, s := range h.log.Coverage() {
		if s.FirstIndex <= b.Index()+1 && b.Index()+1 <= s.LastIndex {
			return &s
		}
	}
	return nil
}

// Reach is the last index that can be replayed to from b.
func (h *History) Reach(b *Base) uint64 {
	if s := h.after(b); s != nil {
		return s.LastIndex
	}
	return b.Index()
}

// end is the furthest recoverable point, and the newest image before it.
func (h *History) end() (b *Base, last uint64) {
	for _, next := range h.bases {
		if reach := h.Reach(next); b == nil || reach >= last {
			b, last = next, reach
		}
	}
	return b, last
}

// newest is the newest image that passes, or nil.
func (h *History) newest(pass func(*Base) bool) *Base {
	for _, b := range slices.Backward(h.bases) {
		if pass(b) {
			return b
		}
	}
	return nil
}

// nearest are the nearest recoverable points on both sides of a raft index that
// is not recoverable itself.
func (h *History) nearest(index uint64) (before, after *Near) {
	var last uint64
	for _, b := range h.bases {
		if b.Index() > index {
			return before, b.point()
		}
		if reach := h.Reach(b); reach >= last && reach < index {
			last = reach
			before = h.reachPoint(b)
		}
	}
	return before, nil
}

// reachPoint is the end of what can be replayed from b.
func (h *History) reachPoint(b *Base) *Near {
	s := h.after(b)
	if s == nil {
		return b.point()
	}
	n := &Near{Index: s.LastIndex, Revision: max(s.LastRevision, b.Facts.Revision), AtLeast: true}
	if !s.LastMark.IsZero() {
		n.Time = instant(s.LastMark)
	}
	return n
}

// HighestRevision is the highest one that an image or the log is known to have
// reached; 0 where nothing is known.
func (h *History) HighestRevision() int64 {
	var highest int64
	for _, b := range h.bases {
		highest = max(highest, b.Facts.Revision)
	}
	for _, s := range h.log.Coverage() {
		highest = max(highest, s.LastRevision)
	}
	return highest
}

// historyOf is the history of a timeline whose log is open.
func historyOf(repo *repository.Repository, c *snapshot.Catalog, log *segment.Log, identities ...age.Identity) *History {
	t := log.Timeline()
	h := &History{Name: fmt.Sprintf("timeline %s in %s", t, repo), Timeline: t}
	for _, m := range c.Manifests {
		if m.Timeline != t {
			continue
		}
		b := &Base{Name: "backup " + m.ID, ID: m.ID, Image: snapshot.OpenStored(repo, m, identities...), Facts: m.Facts, Manifest: m, Taken: m.Started}
		h.bases = append(h.bases, b)
	}
	a := &archived{Log: log, bases: h.bases}
	h.log, h.clock = a, a
	return h
}

// TakePlain takes log in the clear as well, though an older full snapshot is encrypted:
// for a full snapshot that somebody named.
func (h *History) TakePlain(ctx context.Context) error {
	if a, ok := h.log.(*archived); ok {
		return a.RefusePlain(ctx, nil)
	}
	return nil
}

// archived is the archive as a log to replay and as a clock.
type archived struct {
	*segment.Log
	bases []*Base
}

// size adds up the raw bytes of the segments of the lowest level there is for
// each part of the range; where levels overlap it may be up to twice too much.
func (a *archived) size(first, last uint64) int64 {
	var sum int64
	next := first
	for _, h := range a.Headers() {
		if h.FirstIndex > last || h.LastIndex < next {
			continue
		}
		sum += h.Object.RawSize
		next = h.LastIndex + 1
	}
	return sum
}

// damageAt is the damage that may hide entries of a range; nil where there is
// none.
func (a *archived) damageAt(first, last uint64) error {
	for _, d := range a.Damaged() {
		// What is behind a full snapshot does not need it.
		needless := slices.ContainsFunc(a.bases, func(b *Base) bool { return first <= b.Index() && b.Index() <= d.First })
		if d.MayHold(first, last) && !needless {
			return d.Err
		}
	}
	return nil
}

// marksAt counts the full snapshots as well: the cluster had not gone beyond one's
// index before it was begun, and had reached it when it was finished.
func (a *archived) marksAt(ctx context.Context, t time.Time) (before, after *raftlog.Mark, err error) {
	before, after, err = a.At(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	for _, b := range a.bases {
		done, began := b.marksAt(t)
		before, after = further(before, done), nearer(after, began)
	}
	return before, after, nil
}

// marksAt is what a stored backup shows as a clock does.
func (b *Base) marksAt(t time.Time) (before, after *raftlog.Mark) {
	if done := b.Manifest.Finished; !done.After(t) {
		before = &raftlog.Mark{Index: b.Index(), Time: done}
	}
	if began := b.Taken; !began.Before(t) {
		after = &raftlog.Mark{Index: b.Index(), Time: began}
	}
	return before, after
}

// marksOf looks at the marks between the segments around an index.
func (a *archived) marksOf(ctx context.Context, index uint64) (before, after *raftlog.Mark, err error) {
	for m, err := range a.MarksAround(ctx, index) {
		if err != nil {
			return nil, nil, err
		}
		switch {
		case m.Index < index && (before == nil || m.Time.After(before.Time)):
			before = &m
		case m.Index >= index && (after == nil || m.Time.Before(after.Time)):
			after = &m
		}
	}
	if before != nil && after != nil && after.Time.Before(before.Time) {
		before = nil // clocks that disagree
	}
	return before, after, nil
}

func (a *archived) duration(ctx context.Context, first, last uint64) (time.Duration, error) {
	return a.Duration(ctx, first, last, exact)
}

// errNoChain says that the archive has no chain value at an index.
var errNoChain = errors.New("the archived log does not hold it")

// chain is the archive's chain value at an index, out of the segment that holds
// it: from the header alone where the segment ends there.
func (a *archived) chain(ctx context.Context, index uint64) (raftlog.Sum, error) {
	from, is, err := a.Holding(ctx, index)
	switch {
	case err != nil:
		return raftlog.Sum{}, err
	case !is:
		return raftlog.Sum{}, errNoChain
	case from.LastIndex == index:
		return from.After, nil
	}
	sum := from.Before
	for e, err := range a.Entries(ctx, from.FirstIndex, index) {
		if err != nil {
			return raftlog.Sum{}, err
		}
		sum = sum.Next(e)
	}
	return sum, nil
}

// NotCoveredError says that there is no recoverable point at a target. It is a
// snapshot.ErrNoBackup to errors.Is: there is nothing to restore.
type NotCoveredError struct {
	Target  Target
	History string // where it was looked for
	Reason  string
	// Before and After are the nearest recoverable points; nil where there is
	// none on that side.
	Before, After *Near
}

// Near is a recoverable point near a target.
type Near struct {
	Index    uint64
	Revision int64  // 0 where it is not known
	AtLeast  bool   // Revision is a lower bound
	Time     string // empty where it is not known
	Backup   string // the full snapshot that is exactly there; empty for one in the log
}

func (n Near) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "raft index %d", n.Index)
	switch {
	case n.Revision > 0 && n.AtLeast:
		fmt.Fprintf(&b, ", revision at least %d", n.Revision)
	case n.Revision > 0:
		fmt.Fprintf(&b, ", revision %d", n.Revision)
	}
	if n.Time != "" {
		fmt.Fprintf(&b, ", %s", n.Time)
	}
	if n.Backup != "" {
		fmt.Fprintf(&b, " (%s)", n.Backup)
	}
	return b.String()
}

func (e *NotCoveredError) Error() string {
	text := fmt.Sprintf("%s cannot be restored from %s: %s", e.Target, e.History, e.Reason)
	switch {
	case e.Before != nil && e.After != nil:
		text += fmt.Sprintf("; the nearest recoverable points are %s before it, and %s after it", e.Before, e.After)
	case e.Before != nil:
		text += fmt.Sprintf("; the nearest recoverable point is %s, before it", e.Before)
	case e.After != nil:
		text += fmt.Sprintf("; the nearest recoverable point is %s, after it", e.After)
	}
	return text
}

// Is makes it one of "nothing to restore".
func (e *NotCoveredError) Is(target error) bool { return target == snapshot.ErrNoBackup }

// LogError says that the log could not be replayed on from a good point: it is
// damaged there, or holds what cannot be applied. Err is the reason.
type LogError struct {
	Good Near // the last point before it
	Err  error
}

func (e *LogError) Error() string {
	return fmt.Sprintf("%v; the last good point before it is %s: --index %d restores up to there", e.Err, e.Good, e.Good.Index)
}

func (e *LogError) Unwrap() error { return e.Err }
