package walreplay

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// Part is a part of a history's log: the entries from First to Last.
type Part struct {
	// Owner is how a Recipe calls it; the history's name where it is empty.
	Owner       string
	History     *History
	First, Last uint64
}

func (p Part) owner() string {
	if p.Owner != "" {
		return p.Owner
	}
	return p.History.Name
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
// What archives among the parts tell of times, chains and live hashes counts up
// to the end of their last part: nothing behind that is known to be the same
// history. Closing the result closes nothing; the caller keeps the parts'
// histories open for as long as it uses it, and closes them.
func Join(ctx context.Context, name string, base *Base, parts []Part) (*History, error) {
	if base == nil {
		return nil, fmt.Errorf("%s: there is no image to begin from", name)
	}
	j := &joined{name: name, base: base, parts: slices.Clone(parts)}
	if err := j.check(ctx); err != nil {
		return nil, err
	}
	h := &History{Name: name, bases: []*Base{base}, log: j, chainAt: j.chain}
	if base.Manifest != nil {
		h.Timeline = base.Manifest.Timeline
	}
	if c := j.clock(); c != nil {
		h.clock = c
	}
	return h, nil
}

// Holds tells whether the log has all entries from first to last.
func (h *History) Holds(first, last uint64) bool {
	return slices.ContainsFunc(h.log.stretches(), func(s stretch) bool { return s.First <= first && last <= s.Last })
}

// entry is one entry of the log.
func (h *History) entry(ctx context.Context, index uint64) (raftlog.Entry, error) {
	for e, err := range h.log.entries(ctx, index, index) {
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
			return j.refuse(p.First, "the part of %s ends before it begins, with raft index %d", p.owner(), p.Last)
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
			err = fmt.Errorf("compare the log of %s with what comes before it: %w", p.owner(), err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lacks says why a log does not hold its part.
func (j *joined) lacks(p Part) error {
	if d, ok := p.History.log.(damageable); ok {
		if err := d.damageAt(p.First, p.Last); err != nil {
			return fmt.Errorf("the log of %s, of which %s needs the entries %d to %d: %w", p.owner(), j.name, p.First, p.Last, err)
		}
	}
	return j.refuse(p.First, "the log of %s does not hold all of the entries %d to %d", p.owner(), p.First, p.Last)
}

// checkBase holds the image against the first part.
func (j *joined) checkBase(ctx context.Context, p Part) error {
	index, term := j.base.Index(), j.base.Facts.RaftTerm
	own := slices.Contains(p.History.bases, j.base)
	switch {
	case p.First > index+1 || p.Last < index:
		return j.refuse(index, "%s ends there, and the part of %s has the entries %d to %d", j.base.Name, p.owner(), p.First, p.Last)
	case index == 0:
		return nil
	case own && (term == 0 || !p.History.Holds(index, index)):
		return nil
	case term == 0:
		return j.refuse(index, "%s does not tell its term, as etcd 3.4 writes none: only its owner's log shows that %s goes on from it", j.base.Name, p.owner())
	case !p.History.Holds(index, index):
		return j.refuse(index, "%s ends there, and the log of %s begins behind that: nothing shows that it goes on from it", j.base.Name, p.owner())
	}
	e, err := p.History.entry(ctx, index)
	if err == nil && e.Term != term {
		err = j.refuse(index, "%s ends with an entry of term %d, and the log of %s has %s: they are of two histories", j.base.Name, term, p.owner(), e)
	}
	return err
}

// checkNext holds two parts against each other where the first of them ends.
func (j *joined) checkNext(ctx context.Context, before, p Part) error {
	switch {
	case p.First != before.Last+1:
		return j.refuse(before.Last, "the part of %s ends there, and that of %s begins with raft index %d", before.owner(), p.owner(), p.First)
	case p.History == before.History:
		return nil
	case !p.History.Holds(before.Last, before.Last):
		return j.refuse(before.Last, "the log of %s begins behind the entry that the part of %s ends with: nothing shows that it goes on from it", p.owner(), before.owner())
	}
	one, err := before.History.entry(ctx, before.Last)
	if err != nil {
		return err
	}
	other, err := p.History.entry(ctx, before.Last)
	if err == nil && !one.Equal(other) {
		err = j.refuse(before.Last, "%s has %s, and %s has %s, or they differ in what they hold: they are of two histories", before.owner(), one, p.owner(), other)
	}
	return err
}
