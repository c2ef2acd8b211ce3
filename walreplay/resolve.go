package walreplay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
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
	// Revision is that of the state, 0 where only the replay shows it. AtLeast says
	// that it may be a higher one.
	Revision int64
	AtLeast  bool
	// Time says when the last entry was written, in words; empty where nothing
	// shows it.
	Time string
	// Found is what a search for the changes of keys found.
	Found *Found
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
		var at *raftlog.Mark
		if p.Last, at, err = h.resolveTime(ctx, t); err != nil {
			return nil, err
		}
		if t.Nearest {
			p.Notes = append(p.Notes, fmt.Sprintf("the observation nearest to %s is raft index %d at %s", t, at.Index, instant(at.Time)))
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
	if m, ok := h.log.(*member); ok {
		p.Notes = append(p.Notes, m.notes...)
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
		if s := h.after(p.Base); s != nil && s.LastIndex == p.Last {
			p.Revision = max(p.Revision, s.LastRevision)
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
	for _, s := range h.log.Coverage() {
		switch {
		case s.FirstIndex > last+1:
			return fmt.Sprintf("the log goes on with entries %d to %d, but %d to %d are missing", s.FirstIndex, s.LastIndex, last+1, s.FirstIndex-1)
		case s.LastIndex > last:
			return fmt.Sprintf("the log goes on with entries %d to %d, but does not join what is before them", s.FirstIndex, s.LastIndex)
		}
	}
	return ""
}

func (h *History) resolveIndex(p *Point) error {
	begin := p.Base
	if begin == nil {
		begin = h.newest(func(b *Base) bool { return b.Index() <= p.Last })
	}
	before, after := h.nearest(p.Last)
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
	for _, s := range h.log.Coverage() {
		if s.FirstIndex > reach+1 {
			return fmt.Sprintf("entries %d to %d are missing in the log", reach+1, s.FirstIndex-1)
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
		before, after := h.nearestRevision(n)
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
	_, after := h.nearestRevision(p.MaxRevision)
	return &NotCoveredError{Target: p.Target, History: h.Name, Reason: h.whyEnds(p.Base), Before: &at, After: after}
}

// nearestRevision are the nearest points of a revision that is not covered, as
// far as they are known without a replay.
func (h *History) nearestRevision(n int64) (before, after *Near) {
	for _, b := range h.bases {
		if b.Facts.Revision > n {
			return before, b.point()
		}
		before = h.reachPoint(b)
	}
	return before, nil
}

// damageBehind is a *LogError where the log cannot go on behind last because of
// damage, and a target lies there (0: any), nil otherwise. What a later image
// makes good is no error.
func (h *History) damageBehind(b *Base, last, target uint64) error {
	if target == 0 {
		target = ^uint64(0)
	}
	if err := h.log.damageAt(last+1, target); err != nil {
		return &LogError{Good: *h.reachPoint(b), Err: err}
	}
	return nil
}

// Find finds one backup, as snapshot.Catalog.Find does. For the newest state it looks up
// in Archived how far the logs went on which that depends.
func (a *Inventory) Find(ctx context.Context, ref, timeline string) (*snapshot.Manifest, error) {
	if ref != snapshot.Latest || timeline != "" {
		return a.Catalog.Find(ref, timeline)
	}
	if err := a.addArchived(ctx); err != nil {
		return nil, err
	}
	m, err := a.Catalog.Find(ref, timeline)
	var several *snapshot.SeparateError
	if !errors.As(err, &several) {
		return m, err
	}
	for _, t := range several.Timelines {
		if a.Archived[t], err = a.lastSeen(ctx, t); err != nil {
			return nil, fmt.Errorf("find the end of timeline %s in %s: %w", t, a.Repo, err)
		}
	}
	return a.Catalog.Find(ref, timeline)
}

// CheckStartedOver fills in Archived, and returns a *snapshot.StartedOverError if a cluster
// began again without archived writes and nobody has answered.
func (a *Inventory) CheckStartedOver(ctx context.Context) error {
	if err := a.addArchived(ctx); err != nil {
		return err
	}
	return a.Catalog.CheckStartedOver()
}

// addArchived fills in Archived for all timelines that others branch off or share a
// cluster ID with, and for those others: nothing depends on that of the rest.
func (a *Inventory) addArchived(ctx context.Context) error {
	a.Archived = map[repository.TimelineID]snapshot.Archived{}
	for _, t := range a.Timelines {
		var end snapshot.Archived
		var err error
		switch {
		case slices.ContainsFunc(a.Timelines, func(o repository.Timeline) bool {
			return o.Parent != nil && o.Parent.Timeline == t.ID || o.ID.ClusterID == t.ID.ClusterID && o.ID != t.ID
		}):
			end, err = a.lastSeen(ctx, t.ID)
		case t.Parent != nil:
			end, err = ending(ctx, a.Repo, t.ID)
		default:
			continue
		}
		if err != nil {
			return fmt.Errorf("find the end of timeline %s in %s: %w", t.ID, a.Repo, err)
		}
		a.Archived[t.ID] = end
	}
	return nil
}

// ending reports whether a timeline was ended by a mark.
func ending(ctx context.Context, repo *repository.Repository, t repository.TimelineID) (snapshot.Archived, error) {
	ended, is, err := repo.Superseded(ctx, t)
	if errors.Is(err, repository.ErrAltered) {
		err = nil // in doubt it went on: the user is asked then
	}
	return snapshot.Archived{Superseded: is, By: ended.By, Undone: is && ended.Undone}, err
}

func (a *Inventory) lastSeen(ctx context.Context, t repository.TimelineID) (snapshot.Archived, error) {
	end, err := ending(ctx, a.Repo, t)
	if err != nil {
		return end, err
	}
	log, err := a.open(ctx, t)
	if err != nil {
		return end, err
	}
	for _, h := range log.Headers() {
		end.Revision = max(end.Revision, h.Revision)
		// One without marks was read while catching up, from a member that answered.
		seen := h.LastMark
		if h.Level == 0 && h.Cut.After(seen) {
			seen = h.Cut
		}
		if seen.After(end.Seen) {
			end.Seen = seen
		}
	}
	for _, m := range log.Heartbeat() {
		if m.Time.After(end.Seen) {
			end.Seen = m.Time
		}
	}
	return end, nil
}

// Preview is the image of a point before it is rebuilt, as far as it is known:
// for a plan that is only shown. Its name shows the base, and how much is to be
// replayed; it is at most about as large.
func (p *Point) Preview() snapshot.Image {
	name, facts := p.Base.Name, p.Base.Facts
	facts.DamagedMeta = ""
	if n := p.Entries(); n > 0 {
		name = fmt.Sprintf("%s and up to %d entries of the log", name, n)
	}
	if facts.PageSize == 0 {
		facts.PageSize = os.Getpagesize()
	}
	facts.RaftIndex, facts.Revision = p.Last, max(1, p.Revision)
	return snapshot.Preview{Title: name, Bytes: grown(p.Base, p.Bytes), Known: facts}
}

// Probe reads the beginnings of what Rebuild reads of an archive: of the image, and of
// the log what segment.Log's Probe does. What is gone, and identities that do not
// fit, show that way without a rebuild. The error is as Rebuild's.
func (h *History) Probe(ctx context.Context, p *Point) error {
	if err := snapshot.Probe(ctx, p.Base.Image); err != nil {
		return err
	}
	log, ok := h.log.(interface {
		Probe(ctx context.Context, first, last uint64) error
	})
	if !ok || p.Entries() == 0 {
		return nil
	}
	err := log.Probe(ctx, p.Base.Index()+1, p.Last)
	if endsLog(err) {
		err = &LogError{Good: *p.Base.point(), Err: err}
	}
	return err
}
