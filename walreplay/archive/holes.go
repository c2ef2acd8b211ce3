package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/segment"
)

// Hole is a run of entries that the archive lacks although it goes on behind
// them.
type Hole struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	// Due: no full snapshot is behind it, so nothing there can be restored.
	Due bool `json:"due"`
}

// hole is one that this archiver may fill, or has to report. Either it is
// recorded as a gap, or an object was deleted or lost: then nobody recorded it.
type hole struct {
	repository.GapName
	recorded, due bool
	since         time.Time // when this one found it
	tried         bool      // this member's log does not fill it
	reported      bool      // nobody did; a full snapshot is called for, and it stays a hole until then
	checkAt       time.Time // when to look whether another one did
}

// known tells whether this process has reported it.
func (h *hole) known(gaps []Gap) bool {
	return slices.ContainsFunc(gaps, func(g Gap) bool {
		return g.Timeline == h.Timeline.String() && g.First-g.Missing <= h.First && h.Last < g.First
	})
}

// assess makes holes of what is missing, those first that matter most: behind
// the newest full snapshot. What is known of those from before stays known.
func (s *session) assess(f found, now time.Time) []*hole {
	var all []*hole
	if s.fill != nil {
		all = append(all, s.fill.hole)
	}
	for _, r := range f.missing {
		if s.fill != nil && s.fill.hole.First <= r.First && r.Last <= s.fill.hole.Last {
			continue
		}
		h := &hole{GapName: repository.GapName{Timeline: s.timeline, First: r.First, Last: r.Last}, since: now}
		if i := slices.IndexFunc(s.holes, func(o *hole) bool { return o.GapName == h.GapName }); i >= 0 {
			h = s.holes[i]
			h.tried, h.reported = h.tried && !h.reported, false
		}
		h.due = f.full < r.Last
		h.recorded = slices.ContainsFunc(f.records, func(g repository.GapName) bool { return g.First <= r.First && r.Last <= g.Last })
		all = append(all, h)
	}
	slices.SortStableFunc(all, func(a, b *hole) int {
		if a.due != b.due && a.due {
			return -1
		} else if a.due != b.due {
			return 1
		}
		return cmp.Compare(b.First, a.First)
	})
	return all
}

// tellHoles keeps the alarm: it is raised for a hole behind which nothing can be
// restored, and is over when there is none and no full snapshot is due.
func (s *session) tellHoles() {
	gaps := s.a.State().Gaps
	for _, h := range s.holes {
		if h.due && !h.known(gaps) {
			s.a.alarms.raise(AlarmGap, fmt.Sprintf("%s: nothing behind them can be restored until they are archived again, or there is a new full snapshot", h.text()))
			return
		}
	}
	if s.position.Gap == nil {
		s.a.alarms.clear(AlarmGap)
	}
}

func (h *hole) text() string {
	return fmt.Sprintf("entries %d to %d of timeline %s are not in the archive, though it goes on behind them: an object was deleted or lost", h.First, h.Last, h.Timeline)
}

// nextHole is the one to work on now; nil for none. Only a log that was compared
// with the archive may fill a hole, and only one before the end of what was
// compared: further on it may hold what was refused.
func (s *session) nextHole(now time.Time) *hole {
	if s.fill != nil {
		return s.fill.hole
	}
	if !s.joined {
		return nil
	}
	var check *hole
	for _, h := range s.holes {
		switch {
		case h.Last >= s.end.index, h.reported:
		case !h.tried:
			return h
		case check == nil && !now.Before(h.checkAt):
			check = h
		}
	}
	return check
}

// mend does the next step for a hole: to fill it, to see whether another one
// did, or to report it when none does.
func (s *session) mend(ctx context.Context, h *hole, now time.Time) error {
	if !h.tried {
		return s.fillNext(ctx, h)
	}
	known := h.known(s.a.State().Gaps)
	switch {
	case !h.due && (known || h.recorded):
		s.dropHole(h) // there is nothing more to report
		return nil
	case known && s.position.Gap != nil:
		h.reported = true
		return nil
	}
	// One that is known and for which nothing is due any more is reported again:
	// what did for it is gone, or was called off for another hole.
	s.do(ctx, putLimit, func(ctx context.Context) func() error {
		p, err := s.filled(ctx, h.GapName)
		return func() error {
			switch {
			case err != nil:
				return s.unreachable(err)
			case p.next > h.Last:
				s.dropHole(h)
			case now.Sub(h.since) > gapTakeovers*s.takeover():
				s.report(h)
			default:
				h.checkAt = now.Add(s.takeover())
			}
			return nil
		}
	})
	return nil
}

// report writes a hole down that no archiver has filled in several takeover
// times, and has a full snapshot taken where that is due. It is not final: each
// archiver that starts, or looks again, still tries to fill it.
func (s *session) report(h *hole) {
	g := s.gapOf(h)
	if h.due {
		s.callFor(g)
	} else {
		s.a.failed(errors.New(g.Reason))
	}
	if !h.known(s.a.State().Gaps) {
		s.a.update(func(st *State) { st.Gaps = append(st.Gaps, g) })
	}
	if !h.recorded {
		s.record(g)
	}
	if h.reported = h.due; !h.due {
		s.dropHole(h)
	}
}

func (s *session) gapOf(h *hole) Gap {
	return Gap{
		Timeline: h.Timeline.String(), First: h.Last + 1, Missing: h.Last - h.First + 1,
		Reason: fmt.Sprintf("%s, and no archiver put them back within %s", h.text(), (gapTakeovers * s.takeover()).Round(time.Second)),
	}
}

// record writes a gap down when its turn comes.
func (s *session) record(g Gap) {
	s.unwritten = append(s.unwritten, segment.GapRecord{
		Timeline: s.timeline, First: g.First - g.Missing, Last: g.First - 1, Reason: g.Reason,
		Member: snapshot.ID(s.id.MemberID), Created: s.Now(),
	})
}

// dropHole is done with a hole, filled or not.
func (s *session) dropHole(h *hole) {
	s.holes = slices.DeleteFunc(s.holes, func(o *hole) bool { return o == h })
	s.tellHoles()
}

// settled tells that Once has nothing to wait for: the archive was looked
// through, no hole is left that keeps from restoring what it archived, and a full
// snapshot that is due was tried.
func (s *session) settled() bool {
	if s.a.call.done != nil || s.position.Gap != nil && s.OnGap != nil && s.dueAt.IsZero() {
		return false
	}
	return s.searches > 0 && s.fill == nil && len(s.unwritten) == 0 && !slices.ContainsFunc(s.holes, func(h *hole) bool {
		return h.Last < s.end.index && !h.reported && (h.due || !h.tried)
	})
}

// recoverable is the last entry that a full snapshot and the log behind it lead
// to, as far as holes are known; 0 where there is no full snapshot.
func (s *session) recoverable() uint64 {
	if s.searches > 0 && !s.some {
		return 0
	}
	last := s.end.index
	for _, h := range s.holes {
		if h.due {
			last = min(last, max(h.First-1, s.full))
		}
	}
	if g := s.position.Gap; g != nil && g.Timeline == s.timeline.String() {
		last = min(last, g.First-g.Missing-1)
	}
	return last
}

// exposed is how long it is known that the end of the archive cannot be
// restored.
func (s *session) exposed(now time.Time) (d time.Duration) {
	for _, h := range s.holes {
		if h.due {
			d = max(d, now.Sub(h.since))
		}
	}
	if s.position.Gap != nil {
		d = max(d, now.Sub(s.dueSince))
	}
	return d
}
