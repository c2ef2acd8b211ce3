package walreplay

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// Part is a part of a history's log: the entries from First to Last.
type Part struct {
	Owner       string // how messages call it
	History     *History
	First, Last uint64
}

// JoinError says that an image and logs are not of one history, or that nothing
// shows that they are.
type JoinError struct {
	History string // that was to be joined
	Index   uint64 // where
	Reason  string
}

func (e *JoinError) Error() string {
	return fmt.Sprintf("%s cannot be put together at raft index %d: %s", e.History, e.Index, e.Reason)
}

// Join is the history of an image and the parts of several logs after it: each
// begins behind the one before it, the first at the image's last entry or right
// behind it. Without parts it is the image alone.
//
// Parts are joined only where both hold the same entry, by term, type and data:
// the last one of the part before. The first part has to hold the entry that the
// image ends with, of the image's term, unless the image is its own history's:
// there it may begin right behind it. What does not join is a *JoinError, and
// damage that hides entries of a part a *snapshot.DamagedError.
//
// What an archive among the parts shows of times and chains counts up to the end of its
// part: nothing behind that is known to be of the same history. Closing the result closes
// nothing; the caller keeps the parts' histories open for as long as it uses it, and closes
// them.
func Join(ctx context.Context, name string, base *Base, parts []Part) (*History, error) {
	if base == nil {
		return nil, fmt.Errorf("%s: there is no image to begin from", name)
	}
	j := &joined{name: name, base: base, parts: slices.Clone(parts)}
	if err := j.check(ctx); err != nil {
		return nil, err
	}
	h := &History{Name: name, bases: []*Base{base}, log: j}
	if base.Manifest != nil {
		h.Timeline = base.Manifest.Timeline
	}
	for _, p := range parts {
		if p.History.clock != nil {
			h.clock = partClock{p.History.clock, p.Last}
		}
	}
	return h, nil
}

// Holds reports whether the log has all entries from first to last.
func (h *History) Holds(first, last uint64) bool {
	return slices.ContainsFunc(h.log.Coverage(), func(s segment.Coverage) bool { return s.FirstIndex <= first && last <= s.LastIndex })
}

// entry is one entry of the log.
func (h *History) entry(ctx context.Context, index uint64) (raftlog.Entry, error) {
	for e, err := range h.log.Entries(ctx, index, index) {
		e.Data = slices.Clone(e.Data) // valid during the call
		return e, err
	}
	return raftlog.Entry{}, fmt.Errorf("%s ends before raft index %d", h.Name, index)
}

func (j *joined) refuse(index uint64, format string, args ...any) error {
	return &JoinError{History: j.name, Index: index, Reason: fmt.Sprintf(format, args...)}
}

// check proves that all are of one history.
func (j *joined) check(ctx context.Context) error {
	for i, p := range j.parts {
		switch {
		case p.History == nil:
			return fmt.Errorf("%s: part %d has no history", j.name, i+1)
		case p.First > p.Last:
			return j.refuse(p.First, "the part of %s ends before it begins, with raft index %d", p.Owner, p.Last)
		case !p.History.Holds(p.First, p.Last):
			return j.lacks(p)
		}
		var err error
		if i == 0 {
			err = j.checkBase(ctx, p)
		} else {
			err = j.checkNext(ctx, j.parts[i-1], p)
		}
		var refused *JoinError
		if err != nil && !errors.As(err, &refused) {
			err = fmt.Errorf("compare the log of %s with what comes before it: %w", p.Owner, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lacks says why a log does not hold its part.
func (j *joined) lacks(p Part) error {
	if err := p.History.log.damageAt(p.First, p.Last); err != nil {
		return fmt.Errorf("the log of %s, of which %s needs the entries %d to %d: %w", p.Owner, j.name, p.First, p.Last, err)
	}
	return j.refuse(p.First, "the log of %s does not hold all of the entries %d to %d", p.Owner, p.First, p.Last)
}

// checkBase holds the image against the first part.
func (j *joined) checkBase(ctx context.Context, p Part) error {
	index, term := j.base.Index(), j.base.Facts.RaftTerm
	own := slices.Contains(p.History.bases, j.base)
	switch {
	case p.First > index+1 || p.Last < index:
		return j.refuse(index, "%s ends there, and the part of %s has the entries %d to %d", j.base.Name, p.Owner, p.First, p.Last)
	case index == 0:
		return nil
	case own && !p.History.Holds(index, index):
		return nil
	case !p.History.Holds(index, index):
		return j.refuse(index, "%s ends there, and the log of %s begins after that: nothing shows that it goes on from it", j.base.Name, p.Owner)
	}
	e, err := p.History.entry(ctx, index)
	if err == nil && e.Term != term {
		err = j.refuse(index, "%s ends with an entry of term %d, and the log of %s has %s: they are of two histories", j.base.Name, term, p.Owner, e)
	}
	return err
}

// checkNext holds two parts against each other where the first of them ends.
func (j *joined) checkNext(ctx context.Context, before, p Part) error {
	switch {
	case p.First != before.Last+1:
		return j.refuse(before.Last, "the part of %s ends there, and that of %s begins with raft index %d", before.Owner, p.Owner, p.First)
	case p.History == before.History:
		return nil
	case !p.History.Holds(before.Last, before.Last):
		return j.refuse(before.Last, "the log of %s begins after the entry that the part of %s ends with: nothing shows that it goes on from it", p.Owner, before.Owner)
	}
	one, err := before.History.entry(ctx, before.Last)
	if err != nil {
		return err
	}
	other, err := p.History.entry(ctx, before.Last)
	if err == nil && !one.Equal(other) {
		err = j.refuse(before.Last, "%s has %s, and %s has %s, or they differ in what they hold: they are of two histories", before.Owner, one, p.Owner, other)
	}
	return err
}

// joined is several logs as one: each entry is read from the part that has it.
type joined struct {
	name  string
	base  *Base
	parts []Part
}

// Coverage are one, or none where the image is all there is.
func (j *joined) Coverage() []segment.Coverage {
	if len(j.parts) == 0 {
		return nil
	}
	return []segment.Coverage{{FirstIndex: j.parts[0].First, LastIndex: j.parts[len(j.parts)-1].Last}}
}

// Entries are those of the parts, one after the other.
func (j *joined) Entries(ctx context.Context, first, last uint64) iter.Seq2[raftlog.Entry, error] {
	return func(yield func(raftlog.Entry, error) bool) {
		next := first
		for _, p := range j.parts {
			end := min(p.Last, last)
			if end < next {
				continue
			}
			for e, err := range p.History.log.Entries(ctx, next, end) {
				if !yield(e, err) || err != nil {
					return
				}
				next = e.Index + 1
			}
			if next != end+1 {
				yield(raftlog.Entry{}, fmt.Errorf("the log of %s ended before raft index %d, and it had held the entries up to %d: it was changed meanwhile", p.Owner, next, end))
				return
			}
		}
	}
}

func (j *joined) size(first, last uint64) int64 {
	var sum int64
	for _, p := range j.parts {
		if from, to := max(p.First, first), min(p.Last, last); from <= to {
			sum += p.History.log.size(from, to)
		}
	}
	return sum
}

// damageAt is none: the parts were found whole when they were joined.
func (j *joined) damageAt(uint64, uint64) error { return nil }

// chain is that of the archive whose part holds the index.
func (j *joined) chain(ctx context.Context, index uint64) (raftlog.Sum, error) {
	for _, p := range j.parts {
		if p.First <= index && index <= p.Last {
			return p.History.log.chain(ctx, index)
		}
	}
	return raftlog.Sum{}, errNoChain
}

// following yields the entries after an image, up to last. Where the log holds
// the image's own last entry too, its term must be the one that the image has:
// otherwise they are of two histories.
func (h *History) following(ctx context.Context, b *Base, last uint64) iter.Seq2[raftlog.Entry, error] {
	first := b.Index() + 1
	verify := false
	if s := h.after(b); s != nil && s.FirstIndex < first {
		first, verify = first-1, true
	}
	return func(yield func(raftlog.Entry, error) bool) {
		for e, err := range h.log.Entries(ctx, first, last) {
			if err == nil && verify {
				verify = false
				if e.Term == b.Facts.RaftTerm {
					continue
				}
				err = &snapshot.DamagedError{Object: h.Name, Offset: -1, Err: fmt.Errorf("%s ends with raft index %d of term %d, and the log has %s: they are of two histories", b.Name, b.Index(), b.Facts.RaftTerm, e)}
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Entries yields the log's entries from index first on, up to where a gap or the
// log's end is; none where the log does not hold first. The first error is the
// end.
func (h *History) Entries(ctx context.Context, first uint64) iter.Seq2[raftlog.Entry, error] {
	for _, s := range h.log.Coverage() {
		if s.FirstIndex <= first && first <= s.LastIndex {
			return h.log.Entries(ctx, first, s.LastIndex)
		}
	}
	return func(func(raftlog.Entry, error) bool) {}
}

// partClock is what an archive shows up to the end of its part.
type partClock struct {
	clock
	until uint64
}

// marksAt leaves out what was seen behind the part. At a time when the cluster was
// further than that, the last observation in the part is the nearest.
func (p partClock) marksAt(ctx context.Context, t time.Time) (before, after *raftlog.Mark, err error) {
	before, after, err = p.clock.marksAt(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	if before != nil && before.Index > p.until {
		if before, _, err = p.clock.marksOf(ctx, p.until+1); err != nil {
			return nil, nil, err
		}
		if before != nil && before.Time.After(t) {
			before = nil // clocks that disagree
		}
		return before, nil, nil
	}
	return before, p.within(after), nil
}

func (p partClock) marksOf(ctx context.Context, index uint64) (before, after *raftlog.Mark, err error) {
	before, after, err = p.clock.marksOf(ctx, min(index, p.until+1))
	return before, p.within(after), err
}

func (p partClock) duration(ctx context.Context, first, last uint64) (time.Duration, error) {
	return p.clock.duration(ctx, first, min(last, p.until))
}

func (p partClock) within(s *raftlog.Mark) *raftlog.Mark {
	if s != nil && s.Index > p.until {
		return nil
	}
	return s
}

func further(a, b *raftlog.Mark) *raftlog.Mark {
	if a == nil || b != nil && b.Index > a.Index {
		return b
	}
	return a
}

func nearer(a, b *raftlog.Mark) *raftlog.Mark {
	if a == nil || b != nil && b.Index < a.Index {
		return b
	}
	return a
}
