package archive

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/requorum/requorum/walreplay/segment"
)

// holed tells that what this member has cannot follow what is archived: entries
// are missing between, or it could not be proved that it continues it.
func (s *session) holed() bool {
	if s.queue.empty() {
		return false
	}
	if s.fresh {
		return s.tip.index > 0 && s.queue.first() > s.nextIndex()
	}
	return !s.joined || s.queue.first() > s.nextIndex()
}

// crossGap goes on behind a hole: after several takeover times in which any
// other archiver that holds the entries would have stored them, and a listing.
func (s *session) crossGap(ctx context.Context, now time.Time) error {
	if s.gapSince.IsZero() {
		s.gapSince = now
	}
	since := s.gapSince
	if s.advanced.After(since) {
		since = s.advanced
	}
	if now.Sub(since) <= gapTakeovers*s.takeover() {
		return nil
	}
	s.whenEndIsKnown(ctx, func() error {
		first := s.queue.first()
		gap := Gap{Timeline: s.timeline.String(), First: first, Missing: first - s.nextIndex()}
		if gap.Missing > 0 {
			gap.Reason = fmt.Sprintf("entries %d to %d are in no log that an archiver could read within %s", s.nextIndex(), first-1, (gapTakeovers * s.takeover()).Round(time.Second))
		} else {
			gap.Reason = fmt.Sprintf("the log of %s begins at entry %d and holds none of those archived before it: that it continues them is not proved", s.id, first)
		}
		s.crossing = &gap
		// Without a segment from before the hole there is nothing to be late for.
		return s.put(ctx, true)
	})
	return nil
}

// recordGap writes the gap down, once the segment behind it is stored, and
// calls for a full snapshot.
func (s *session) recordGap(g Gap) {
	g.Found = s.Now().UTC().Round(0)
	s.a.update(func(st *State) { st.Gaps = append(st.Gaps, g) })
	s.callFor(g)
	if g.Missing > 0 {
		s.record(g)
	}
}

// callFor has a full snapshot taken for a gap. One that is due already is not
// forgotten: what does for the later one does for both.
func (s *session) callFor(g Gap) {
	s.a.alarms.raise(AlarmGap, g.Reason+"; a full snapshot is due")
	if due := s.position.Gap; due == nil {
		s.dueSince = time.Now()
	} else if due.Timeline == g.Timeline && due.First > g.First && g.Found.IsZero() {
		return
	}
	s.position.Gap = &g
	s.dueAt = time.Time{}
	if err := s.savePosition(true); err != nil {
		s.a.failed(err)
	}
}

// writeGap stores the record of a gap.
func (s *session) writeGap(ctx context.Context) {
	g := s.unwritten[0]
	s.do(ctx, lookLimit, func(ctx context.Context) func() error {
		err := segment.WriteGap(ctx, s.repo, g)
		return func() error {
			if err != nil {
				return s.refused(err)
			}
			s.taken()
			s.unwritten = s.unwritten[1:]
			return nil
		}
	})
}

// callAgain is how soon OnGap is called again after it failed.
const callAgain = time.Minute

// call is an OnGap that is under way. It may outlive the session that made it.
type call struct {
	gap  Gap
	done chan error // nil while none is under way
}

// callForSnapshot calls OnGap while a full snapshot is due.
func (s *session) callForSnapshot(ctx context.Context, now time.Time) {
	if s.position.Gap == nil || s.OnGap == nil || s.a.call.done != nil || now.Before(s.dueAt) {
		return
	}
	c := call{gap: *s.position.Gap, done: make(chan error, 1)}
	s.a.call = c
	go func() { c.done <- s.OnGap(ctx, c.gap) }()
}

// snapshotTaken notes how OnGap ended. A gap that was found since then is still
// due.
func (s *session) snapshotTaken(err error) {
	gap := s.a.call.gap
	s.a.call = call{}
	if err != nil {
		s.a.failed(fmt.Errorf("the full snapshot that is due: %w", err))
		s.dueAt = time.Now().Add(callAgain)
		return
	}
	if s.position.Gap == nil || *s.position.Gap != gap {
		return
	}
	s.position.Gap = nil
	s.full, s.some = max(s.full, gap.First-1), true // at least there: the next look tells
	for _, h := range s.holes {
		h.due = h.due && h.Last >= gap.First
	}
	s.holes = slices.DeleteFunc(s.holes, func(h *hole) bool { return h.reported && !h.due })
	s.tellHoles()
	s.a.alarms.clear(AlarmTimeline)
	if err := s.savePosition(true); err != nil {
		s.a.failed(err)
	}
}
