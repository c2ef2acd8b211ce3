package walreplay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/walreplay/engine"
)

// Found is what a search for the changes of a key or prefix came to. Its JSON form
// is stable.
type Found struct {
	Burst *Burst `json:"burst"` // the newest: the point is before it
	// Alone is the index before its last change alone.
	Alone uint64 `json:"index_before_last_change"`
	// GivenUp are the changes behind the point that are not of the burst, up to the
	// end of the log.
	GivenUp int64  `json:"changes_given_up"`
	End     Moment `json:"end"`
	// Others are bursts before it, or of deletions where it is none, the newest
	// first, since the image that the search began from.
	Others []*Burst `json:"other_bursts"`
	// Unsure says why it may have begun earlier; empty where it has not.
	Unsure string `json:"unsure,omitempty"`

	about string // what it did to which keys
}

// String says what was found: "under \"p/\" 17 keys were deleted from revision …".
func (f *Found) String() string { return f.about + " " + f.Burst.When() }

// describe says what a burst did to the target's keys.
func (t Target) describe(b *Burst) string {
	switch {
	case t.Kind == BeforePrefix:
		return fmt.Sprintf("under %q %s", t.Key, b.What())
	case b.keys() > 1:
		return fmt.Sprintf("with %q %s", t.Key, b.What())
	case !b.Deletions:
		return fmt.Sprintf("key %q was last changed", t.Key)
	case b.DeletedKeys == 0 && b.TouchedKeys > 0:
		return fmt.Sprintf("key %q was last marked for deletion", t.Key)
	}
	return fmt.Sprintf("key %q was last deleted", t.Key)
}

// Notes are sentences that say what was found, and what to type where another point
// is meant.
func (f *Found) Notes() []string {
	b := f.Burst
	notes := []string{f.String()}
	if b.First.Index != b.Last.Index {
		notes[0] += "; the point is before the first of these changes"
	}
	switch n := b.keys(); {
	case n < 2:
	case b.Deletions:
		notes = append(notes, "these keys come back: "+b.names(n))
	default:
		notes = append(notes, "these keys will be as they were before: "+b.names(n))
	}
	if b.Doomed > 0 {
		notes = append(notes, fmt.Sprintf("%s marked for deletion before that, so Kubernetes will delete what comes back of them again: choose an earlier point", count(b.Doomed, "of these keys was", "of these keys were")))
	}
	if f.Unsure != "" {
		notes = append(notes, f.Unsure)
	}
	if f.GivenUp > 0 {
		end := f.End.String()
		if f.End.Time != "" {
			end = fmt.Sprintf("%s, the last of them written %s", Moment{Index: f.End.Index, Revision: f.End.Revision}, f.End.Time)
		}
		notes = append(notes, fmt.Sprintf("given up as well: %s after the point, up to %s", count(f.GivenUp, "other change", "other changes"), end))
	}
	if b.First.Index != b.Last.Index {
		notes = append(notes, fmt.Sprintf("if only the last of these changes was meant: --index %d", f.Alone))
	}
	for _, o := range f.Others {
		notes = append(notes, fmt.Sprintf("if an earlier time was meant: %s: --index %d", o, o.First.Index-1))
	}
	return notes
}

// unchanged begins a sentence on where nothing was found.
func (t Target) unchanged() string {
	if t.Kind == BeforePrefix {
		return fmt.Sprintf("nothing that begins with %q changed", t.Key)
	}
	return "it did not change"
}

// resolveBefore finds the newest burst of changes of a key or prefix: it replays
// from the newest image to the end of the log and, where nothing changed there or
// the burst may have begun before the image, from older ones. Where the log has more
// that no replay leads to, what was found need not be the newest: it is reported, and
// refused.
func (h *History) resolveBefore(ctx context.Context, p *Point, o Options) error {
	begin, last := h.end()
	if p.Base != nil {
		begin, last = p.Base, h.Reach(p.Base)
	}
	if begin == nil {
		return &NotCoveredError{Target: p.Target, History: h.Name, Reason: "there is no full snapshot to begin from"}
	}
	if err := h.damageBehind(begin, last, 0); err != nil {
		return err
	}
	if err := h.keepRead(o.ScratchDir); err != nil {
		return err
	}
	end := last
	var behind int64 // changes of other keys behind last
	seen := &search{target: p.Target, contents: contents(p.Target.Key)}
	for b := begin; b != nil; b = h.older(b) {
		if h.Reach(b) < last {
			return h.notFound(p, b, end, fmt.Sprintf("%s in entries %d to %d, and entries %d to %d, which may have changed it, are missing", p.Target.unchanged(), last+1, end, h.Reach(b)+1, last))
		}
		if b.Index() == last && p.Base != nil {
			return h.notFound(p, b, end, fmt.Sprintf("no log goes on from %s, which was asked for", b.Name))
		}
		if b.Index() == last {
			continue // an image without an entry after it shows no change
		}
		revision, err := seen.run(ctx, h, b, last, o)
		if err != nil {
			return err
		}
		p.Reached = max(p.Reached, revision)
		newest := seen.latest
		if newest == nil {
			behind += seen.rows
			last = b.Index()
			if p.Base != nil {
				return h.notFound(p, b, end, fmt.Sprintf("%s in entries %d to %d", p.Target.unchanged(), last+1, end))
			}
			continue
		}
		if older := h.older(b); newest.joined && len(newest.all) == 1 && !newest.endless && p.Base == nil && older != nil && h.Reach(older) >= b.Index() {
			continue // it may have begun before b
		}
		return h.found(ctx, p, b, end, behind, seen, newest)
	}
	if last == end {
		return h.notFound(p, begin, end, "no log shows changes")
	}
	reason := fmt.Sprintf("%s in entries %d to %d, and no full snapshot with a log that goes on from before them is there", p.Target.unchanged(), last+1, end)
	if seen.looked && !seen.existed {
		reason = fmt.Sprintf("there is no key %q in this history; for everything that begins with it use --before-prefix", p.Target.Key)
	}
	return h.notFound(p, nil, end, reason)
}

// keepRead keeps what is read of an archive from now on: what is searched is replayed once
// more, up to the point that was found.
func (h *History) keepRead(dir string) error {
	a, ok := h.log.(*archived)
	if !ok || h.kept != nil {
		return nil
	}
	scratch, err := NewScratchFolder(dir)
	if err != nil {
		return err
	}
	h.kept, err = safedir.Create(filepath.Join(scratch.Path(), "segments"))
	if err == nil {
		a.KeepIn(h.kept)
	}
	return errors.Join(err, scratch.Remove()) // the file has no name from now on
}

// found makes the point of what a search from b has seen.
func (h *History) found(ctx context.Context, p *Point, b *Base, end uint64, behind int64, seen *search, newest *bursts) (err error) {
	n := len(newest.all) - 1
	f := &Found{about: p.Target.describe(newest.all[n]), Burst: newest.all[n], Alone: newest.all[n].Last.Index - 1, End: Moment{Index: end, Revision: p.Reached}, Others: []*Burst{}}
	f.GivenUp = behind + seen.rows - f.Burst.rows - f.Burst.Changes
	others := newest.all[:n]
	if newest != &seen.deletions { // deletions within it are of it
		others = nil
		for _, o := range seen.deletions.all {
			if o.Last.Index < f.Burst.First.Index || newest.endless {
				others = append(others, o)
			}
		}
	}
	for i := len(others) - 1; i >= 0 && len(f.Others) < shownBursts; i-- {
		f.Others = append(f.Others, others[i])
	}
	for _, o := range append([]*Burst{f.Burst}, f.Others...) {
		for _, m := range []*Moment{&o.First, &o.Last} {
			if m.Time, err = h.about(ctx, m.Index); err != nil {
				return err
			}
		}
	}
	if f.End.Time, err = h.about(ctx, end); err != nil {
		return err
	}
	if newest.joined && n == 0 && b.Index() > 0 {
		f.Unsure = fmt.Sprintf("it may have begun before %s, less than a minute before the first of these changes: what was changed before that stays so", b.Name)
		if older := h.older(b); older != nil && p.Base == nil {
			f.Unsure += fmt.Sprintf(", and entries %d to %d are missing", h.Reach(older)+1, b.Index())
		}
	}
	if newest.endless {
		text := []string{fmt.Sprintf("%s, without a pause of a minute: say which point is meant, before the last of these changes (--index %d) or another", f, f.Alone)}
		for _, o := range f.Others {
			text = append(text, fmt.Sprintf("before %s (--index %d)", o, o.First.Index-1))
		}
		return &NotCoveredError{Target: p.Target, History: h.Name, Reason: strings.Join(text, "; ")}
	}
	if lost := h.behind(end); lost != "" {
		return &NotCoveredError{
			Target: p.Target, History: h.Name,
			Reason: fmt.Sprintf("%s, and a later change may be among all these; %s, as far as is known: --index %d restores the point before that", lost, f, f.Burst.First.Index-1),
		}
	}
	p.Found, p.Last = f, f.Burst.First.Index-1
	if p.Base == nil { // it may be a newer one than that which the search began from
		p.Base = h.newest(func(o *Base) bool { return o.Index() <= p.Last && p.Last <= h.Reach(o) })
	}
	// The state before the change: at the revision before it, whatever that many
	// entries did to leases and users.
	p.Revision = f.Burst.First.Revision - 1
	return nil
}

// older is the next image before b that is of an older state, or nil.
func (h *History) older(b *Base) *Base {
	return h.newest(func(o *Base) bool { return o.Index() < b.Index() })
}

func (h *History) notFound(p *Point, before *Base, end uint64, reason string) error {
	e := &NotCoveredError{Target: p.Target, History: h.Name, Reason: reason}
	if lost := h.behind(end); lost != "" {
		e.Reason += "; " + lost
	}
	if before != nil {
		e.Before = h.reachPoint(before)
	}
	return e
}

// search is one replay that looks for the changes of a target's keys.
type search struct {
	target   Target
	contents func(key []byte) bool // what goes with the key; may be nil
	// existed says that the key was there, though it did not change; it is known
	// once something was looked at.
	looked, existed bool

	// Of the last run:
	rows      int64 // changes of any key
	changes   bursts
	deletions bursts
	// latest is the one of the two that is meant: of deletions where the newest change
	// was one; nil where nothing changed.
	latest *bursts
}

// run replays from b to last. It gives the revision that was reached.
func (s *search) run(ctx context.Context, h *History, b *Base, last uint64, o Options) (revision int64, err error) {
	fail := func(err error) (int64, error) {
		return 0, fmt.Errorf("look for the last changes: %w", err)
	}
	times := &watch{clock: h.clock}
	var from *when
	if b.Index() > 0 {
		if from, err = times.at(ctx, b.Index()); err != nil {
			return fail(err)
		}
	}
	s.rows, s.latest = 0, nil
	s.changes, s.deletions = bursts{last: from}, bursts{deletions: true, last: from}
	r, err := h.replay(ctx, b, PhaseSearch, o, engine.RunOptions{Last: last, Watch: func(c engine.Change) error { return s.see(ctx, times, c) }})
	if err != nil {
		return fail(err)
	}
	if err := r.scratch.Remove(); err != nil {
		return fail(err)
	}
	return r.stopped.Revision, nil
}

// see takes a change of any key.
func (s *search) see(ctx context.Context, times *watch, c engine.Change) error {
	s.rows++
	mine := s.target.selects(c.Key)
	if !mine && s.target.Kind == BeforeKey && !s.looked {
		s.looked = true
		there, err := c.Before([]byte(s.target.Key), false)
		if err != nil {
			return err
		}
		s.existed = there != nil
	}
	if !mine && (s.contents == nil || !s.contents(c.Key)) {
		return nil
	}
	goesOn := false
	if s.target.Kind == BeforeKey {
		owner, err := c.Before([]byte(s.target.Key), true)
		if err != nil {
			return err
		}
		goesOn = owner != nil && beingDeleted(owner.Value)
		if !mine && !goesOn && (owner == nil || !encrypted(owner.Value)) {
			return nil // it was not deleted with the target
		}
	}
	value, err := c.Value()
	if err != nil {
		return err
	}
	deletion := c.Deleted || beingDeleted(value) || mine && s.contents != nil && encrypted(value)
	if !mine && !deletion {
		return nil
	}
	prior, err := c.Before(c.Key, deletion)
	if err != nil {
		return err
	}
	one := change{key: c.Key, revision: c.Revision, deleted: c.Deleted, goesOn: goesOn, rowsSoFar: s.rows - 1}
	if prior != nil {
		one.existed, one.created, one.modified, one.doomed = true, prior.CreateRevision, prior.ModRevision, beingDeleted(prior.Value)
	}
	if one.at, err = times.at(ctx, c.Index); err != nil {
		return err
	}
	s.changes.add(one)
	s.latest = &s.changes
	if deletion {
		s.deletions.add(one)
		s.latest = &s.deletions
	}
	return nil
}

// selects reports whether a key is the target's, or under its prefix.
func (t Target) selects(key []byte) bool {
	if t.Kind == BeforePrefix {
		return bytes.HasPrefix(key, []byte(t.Key))
	}
	return string(key) == t.Key
}
