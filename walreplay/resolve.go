package walreplay

import (
	"context"
	"fmt"
)

// Point is what a target came to: an image to begin from, and up to where the
// log is to be replayed on it.
type Point struct {
	Target Target
	Base   *Base
	// Last is the index to replay up to. For a revision it is where the log ends
	// at the latest: the replay stops before MaxRevision is passed.
	Last        uint64
	MaxRevision int64
	// Revision is that of the state, 0 where only the replay tells. AtLeast says
	// that it may be a higher one.
	Revision int64
	AtLeast  bool
	// Time says when the last entry was written, in words; empty where nothing
	// tells.
	Time string
	// Change is what a search for a key found.
	Change *Change
	// Reached is the highest revision of this history that was met on the way.
	Reached int64
	// Bytes is about the size of the entries to replay.
	Bytes int64
	// AsIs says that the image itself is the point: nothing is replayed, and no
	// scratch is made. A member's database is always copied first.
	AsIs bool
	// Notes are sentences for the user.
	Notes []string
}

// Entries is how many entries are replayed at most.
func (p *Point) Entries() uint64 { return p.Last - p.Base.Index() }

// Resolve finds the point of a target. With base, the ID of an image, only that
// one is begun from. A key is searched for by replaying, in o.ScratchDir; for
// all other targets nothing is written, and of entries at most a few are read.
//
// What is not covered is a *NotCoveredError; a damaged part of the log that the
// target lies in or behind is a *LogError.
func (h *History) Resolve(ctx context.Context, t Target, base string, o Options) (*Point, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	p := &Point{Target: t}
	if base != "" {
		var err error
		if p.Base, err = h.base(base); err != nil {
			return nil, err
		}
	}
	var err error
	switch t.Kind {
	case Latest:
		err = h.resolveLatest(p)
	case AtRevision:
		err = h.resolveRevision(p)
	case AtIndex:
		p.Last = t.Index
		err = h.resolveIndex(p)
	case AtTime:
		var at *Seen
		if p.Last, at, err = h.resolveTime(ctx, t); err != nil {
			return nil, err
		}
		if t.Nearest {
			p.Notes = append(p.Notes, fmt.Sprintf("the observation nearest to %s is %s", t, at))
		}
		err = h.resolveIndex(p)
	case BeforeKey, BeforePrefix:
		err = h.resolveBefore(ctx, p, o)
	default:
		err = fmt.Errorf("a target of kind %q is not known", t.Kind)
	}
	if err != nil {
		return nil, err
	}
	return p, h.complete(ctx, p)
}

// complete fills in what is known of a point without a replay.
func (h *History) complete(ctx context.Context, p *Point) (err error) {
	p.Bytes = h.log.size(p.Base.Index()+1, p.Last)
	p.AsIs = p.Entries() == 0 && p.Base.Manifest != nil && (p.MaxRevision == 0 || p.MaxRevision == p.Base.Facts.Revision)
	if h.member != nil {
		p.Notes = append(p.Notes, h.member.notes...)
	}
	if p.MaxRevision == 0 {
		if p.Time, err = h.about(ctx, p.Last); err != nil {
			return fmt.Errorf("find out when entry %d was written: %w", p.Last, err)
		}
	}
	switch {
	case p.MaxRevision > 0:
		p.Revision = p.MaxRevision
	case p.Revision == 0:
		p.Revision, p.AtLeast = p.Base.Facts.Revision, p.Entries() > 0
		if s := h.after(p.Base); s != nil && s.Last == p.Last {
			p.Revision = max(p.Revision, s.Revision)
		}
	}
	return nil
}

func (h *History) resolveLatest(p *Point) error {
	if p.Base == nil {
		if p.Base, p.Last = h.end(); p.Base == nil {
			return &NotCoveredError{Target: p.Target, History: h.Name, Reason: "there is no full snapshot to begin from"}
		}
	} else {
		p.Last = h.Reach(p.Base)
	}
	if err := h.damageBehind(p.Base, p.Last, 0); err != nil {
		return err
	}
	if lost := h.behind(p.Last); lost != "" {
		p.Notes = append(p.Notes, lost+" and no full snapshot was taken after them: these later entries cannot be restored")
	}
	return nil
}

// behind says what the log holds behind an entry from which no replay leads to
// it; empty where there is nothing.
func (h *History) behind(last uint64) string {
	for _, s := range h.log.stretches() {
		switch {
		case s.First > last+1:
			return fmt.Sprintf("the log goes on with entries %d to %d, but %d to %d are missing", s.First, s.Last, last+1, s.First-1)
		case s.Last > last:
			return fmt.Sprintf("the log goes on with entries %d to %d, but does not join what is before them", s.First, s.Last)
		}
	}
	return ""
}

func (h *History) resolveIndex(p *Point) error {
	begin := p.Base
	if begin == nil {
		begin = h.newest(func(b *Base) bool { return b.Index() <= p.Last })
	}
	before, after := h.around(p.Last)
	refuse := func(reason string) error {
		return &NotCoveredError{Target: p.Target, History: h.Name, Reason: reason, Before: before, After: after}
	}
	switch {
	case begin == nil:
		return refuse("every full snapshot is from after it")
	case begin.Index() > p.Last:
		return refuse(fmt.Sprintf("%s is from after it, at raft index %d", begin.Name, begin.Index()))
	case h.Reach(begin) >= p.Last:
		p.Base = begin
		return nil
	}
	if err := h.damageBehind(begin, h.Reach(begin), p.Last); err != nil {
		return err
	}
	return refuse(h.whyEnds(begin))
}

// whyEnds says why the replay from b cannot go further.
func (h *History) whyEnds(b *Base) string {
	reach := h.Reach(b)
	for _, s := range h.log.stretches() {
		if s.First > reach+1 {
			return fmt.Sprintf("entries %d to %d are missing in the log", reach+1, s.First-1)
		}
	}
	if h.after(b) == nil {
		return fmt.Sprintf("no log goes on from %s, at raft index %d", b.Name, b.Index())
	}
	return fmt.Sprintf("the log ends at raft index %d", reach)
}

// resolveRevision finds where to begin. An entry moves the revision by one at
// most, so one that is too far is refused without a replay.
func (h *History) resolveRevision(p *Point) error {
	n := p.Target.Revision
	begin := p.Base
	if begin == nil {
		begin = h.newest(func(b *Base) bool { return b.Facts.Revision <= n })
	}
	refuse := func(reason string) error {
		before, after := h.aroundRevision(n)
		return &NotCoveredError{Target: p.Target, History: h.Name, Reason: reason, Before: before, After: after}
	}
	switch {
	case begin == nil:
		return refuse("every full snapshot is from after it; what a later snapshot still knows of it is the history of keys, not the state")
	case begin.Facts.Revision > n:
		return refuse(fmt.Sprintf("%s is from after it, at revision %d", begin.Name, begin.Facts.Revision))
	}
	p.Base, p.Last, p.MaxRevision = begin, h.Reach(begin), n
	if uint64(n-begin.Facts.Revision) > p.Entries() {
		if err := h.damageBehind(begin, p.Last, 0); err != nil {
			return err
		}
		return refuse(h.whyEnds(begin))
	}
	return nil
}

// notReached is the error of a replay that ended below its revision.
func (h *History) notReached(p *Point, at Near) error {
	if err := h.damageBehind(p.Base, p.Last, 0); err != nil {
		return err
	}
	_, after := h.aroundRevision(p.MaxRevision)
	return &NotCoveredError{Target: p.Target, History: h.Name, Reason: h.whyEnds(p.Base), Before: &at, After: after}
}

// aroundRevision are the nearest points of a revision that is not covered, as
// far as they are known without a replay.
func (h *History) aroundRevision(n int64) (before, after *Near) {
	for _, b := range h.bases {
		if b.Facts.Revision > n {
			return before, b.near()
		}
		before = h.nearReach(b)
	}
	return before, nil
}

// damageable is a log that can tell of damage which may hide entries of a range;
// nil where there is none.
type damageable interface {
	damageAt(first, last uint64) error
}

// damageBehind is a *LogError where the log cannot go on behind last because of
// damage, and a target lies there (0: any), nil otherwise. What a later image
// makes good is no error.
func (h *History) damageBehind(b *Base, last, target uint64) error {
	d, ok := h.log.(damageable)
	if !ok {
		return nil
	}
	if target == 0 {
		target = ^uint64(0)
	}
	if err := d.damageAt(last+1, target); err != nil {
		return &LogError{Good: *h.nearReach(b), Err: err}
	}
	return nil
}
