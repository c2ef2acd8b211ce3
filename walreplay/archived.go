package walreplay

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// OpenArchive is the history of one timeline: its full snapshots that c lists,
// and its archived log. It lists the log and reads the segments' headers.
// identities are for encrypted ones.
func OpenArchive(ctx context.Context, repo *repository.Repository, c *snapshot.Catalog, t repository.TimelineID, identities ...age.Identity) (*History, error) {
	log, err := segment.OpenLog(ctx, repo, t, identities...)
	if err != nil {
		return nil, fmt.Errorf("open the archived log of timeline %s in %s: %w", t, repo, err)
	}
	return historyOf(repo, c, log, identities...), nil
}

// historyOf is the history of a timeline whose log is open.
func historyOf(repo *repository.Repository, c *snapshot.Catalog, log *segment.Log, identities ...age.Identity) *History {
	t := log.Timeline()
	h := &History{Name: fmt.Sprintf("timeline %s in %s", t, repo), Timeline: t}
	for _, m := range c.Manifests {
		if m.Timeline != t {
			continue
		}
		b := &Base{Name: "backup " + m.ID, ID: m.ID, Image: snapshot.OpenStored(repo, m, identities...), Facts: m.Facts, Manifest: m}
		if b.Taken = m.Started; m.Synthetic() { // the cluster may have been further when that was made
			b.Taken = m.Synthesis.Observed
		}
		h.bases = append(h.bases, b)
	}
	a := &archived{log: log, bases: h.bases}
	h.log, h.clock, h.chainAt = a, a, a.chain
	return h
}

// archived is the archive as a log to replay and as a clock.
type archived struct {
	log   *segment.Log
	bases []*Base
}

func (a *archived) stretches() []stretch {
	var all []stretch
	for _, s := range a.log.Spans() {
		all = append(all, stretch{First: s.FirstIndex, Last: s.LastIndex, Revision: s.LastRevision, Until: s.LastMark})
	}
	return all
}

func (a *archived) entries(ctx context.Context, first, last uint64) iter.Seq2[raftlog.Entry, error] {
	return a.log.Entries(ctx, first, last)
}

// size adds up the raw bytes of the segments of the lowest level there is for
// each part of the range; where levels overlap it may be up to twice too much.
func (a *archived) size(first, last uint64) int64 {
	var sum int64
	next := first
	for _, h := range a.log.Headers() {
		if h.FirstIndex > last || h.LastIndex < next {
			continue
		}
		sum += h.Object.RawSize
		next = h.LastIndex + 1
	}
	return sum
}

func (a *archived) encrypted(first, last uint64) bool {
	return slices.ContainsFunc(a.log.Headers(), func(s segment.Header) bool {
		return s.FirstIndex <= last && first <= s.LastIndex && s.Object.Encrypted()
	})
}

func (a *archived) marks(ctx context.Context, first, last uint64, newest int) iter.Seq2[segment.Alive, error] {
	return a.log.AliveMarks(ctx, first, last, newest)
}

// damageAt is the damage that may hide entries of a range; nil where there is
// none.
func (a *archived) damageAt(first, last uint64) error {
	damaged := a.log.Damaged()
	for _, d := range damaged {
		n, err := repository.ParseSegmentName(d.Name)
		if err != nil {
			continue
		}
		if n.Level == 0 {
			n.Last = a.lastOf(n, damaged)
		}
		if n.First > last || n.Last < first {
			continue
		}
		if later := a.basesBetween(first, n.First); later {
			continue // what is behind it does not need it
		}
		return d.Err
	}
	return nil
}

// lastOf is up to where a segment of level 0 can reach: its name does not tell,
// but the next one begins behind it, or nobody knows.
func (a *archived) lastOf(n repository.SegmentName, damaged []segment.Damage) uint64 {
	last := uint64(math.MaxUint64)
	next := func(o repository.SegmentName) {
		if o.Level == 0 && o.First > n.First {
			last = min(last, o.First-1)
		}
	}
	for _, h := range a.log.Headers() {
		next(repository.SegmentName{Level: h.Level, First: h.FirstIndex})
	}
	for _, d := range damaged {
		if o, err := repository.ParseSegmentName(d.Name); err == nil {
			next(o)
		}
	}
	return last
}

// basesBetween tells whether an image makes the log before it needless.
func (a *archived) basesBetween(first, last uint64) bool {
	for _, b := range a.bases {
		if first <= b.Index() && b.Index() <= last {
			return true
		}
	}
	return false
}

// around counts the full snapshots as well: the cluster had not gone beyond one's
// index before it was begun, and had reached it when it was finished.
func (a *archived) around(ctx context.Context, t time.Time) (before, after *Seen, err error) {
	low, high, err := a.log.At(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	before, after = seen(low), seen(high)
	for _, b := range a.bases {
		done, began := b.around(t)
		before, after = further(before, done), nearer(after, began)
	}
	return before, after, nil
}

// around is what a stored backup tells as a clock does.
func (b *Base) around(t time.Time) (before, after *Seen) {
	if done := b.Manifest.Finished; !done.After(t) {
		before = &Seen{b.Index(), done}
	}
	if began := b.Taken; !began.Before(t) {
		after = &Seen{b.Index(), began}
	}
	return before, after
}

func seen(m *raftlog.Mark) *Seen {
	if m == nil {
		return nil
	}
	return &Seen{m.Index, m.Time}
}

// of looks at the marks between the segments around an index.
func (a *archived) of(ctx context.Context, index uint64) (before, after *Seen, err error) {
	var from, to time.Time
	for _, h := range a.log.Headers() {
		if h.Marks > 0 && h.LastIndex < index && h.LastMark.After(from) {
			from = h.LastMark
		}
		if h.Marks > 0 && h.FirstIndex >= index && (to.IsZero() || h.FirstMark.Before(to)) {
			to = h.FirstMark
		}
	}
	for m, err := range a.log.Marks(ctx, from, to) {
		if err != nil {
			return nil, nil, err
		}
		switch {
		case m.Index < index && (before == nil || m.Time.After(before.Time)):
			before = &Seen{m.Index, m.Time}
		case m.Index >= index && (after == nil || m.Time.Before(after.Time)):
			after = &Seen{m.Index, m.Time}
		}
	}
	if before != nil && after != nil && after.Time.Before(before.Time) {
		before = nil // clocks that disagree
	}
	return before, after, nil
}

func (a *archived) spread(ctx context.Context, first, last uint64) (time.Duration, error) {
	return a.log.Spread(ctx, first, last, exact)
}

// errNoChain says that the archive has no chain value at an index.
var errNoChain = errors.New("the archived log does not hold it")

// chain is the archive's chain value at an index, out of the segment that holds
// it: from the header alone where the segment ends there.
func (a *archived) chain(ctx context.Context, index uint64) (raftlog.Sum, error) {
	var from *segment.Header
	for _, h := range a.log.Headers() {
		if !h.Holds(index) {
			continue
		}
		if h.LastIndex == index {
			return h.After, nil
		}
		if from == nil || h.FirstIndex > from.FirstIndex {
			from = &h
		}
	}
	if from == nil {
		return raftlog.Sum{}, errNoChain
	}
	sum := from.Before
	for e, err := range a.log.Entries(ctx, from.FirstIndex, index) {
		if err != nil {
			return raftlog.Sum{}, err
		}
		sum = sum.Next(e)
	}
	return sum, nil
}
