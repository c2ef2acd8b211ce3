package archive

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/segment"
)

// inventory is what one look through the archive found.
type inventory struct {
	end     uint64 // of the archive, as it was known when the look began
	full    uint64 // index of the newest full snapshot
	some    bool   // there is a full snapshot
	last    uint64 // the last entry that there is
	log     *segment.Log
	missing []segment.Range // that bar from what is behind them: no full snapshot is
	broken  uint64          // where nothing is missing, but what begins there is not proved to go on from what is before; 0: nowhere
	records []repository.GapName
	err     error
}

// gapWatch is what is known of the archive as a whole, and of the full snapshot that it needs.
//
// One look through the archive is under way at most, and one call for a full snapshot. The
// gap for which that is due is in the position, so that it outlives the process.
type gapWatch struct {
	*base
	*folder
	searching chan inventory // a look through it that is under way
	endSearch context.CancelFunc
	searchAt  time.Time
	searches  int
	stored    uint64    // the last entry that was seen to be stored
	full      uint64    // the index of the newest full snapshot, when the archive was looked through
	some      bool      // whether there was one
	dueSince  time.Time // since when a full snapshot is due
	dueAt     time.Time
	elsewhere int // how often OnGap said that another archiver is at it
}

const (
	// searchEvery is how often a running archiver looks whether all is there that
	// was archived. It takes a few listings.
	searchEvery = time.Hour
	// searchAgain is how soon it does after a failure.
	searchAgain = time.Minute
)

// search looks through the archive, beside the requests: it may take long, and
// nothing waits for it.
func (s *session) search(ctx context.Context, now time.Time) {
	if s.searching != nil || s.repo == nil || s.timeline.N == 0 || !s.away.IsZero() {
		return
	}
	if s.a.look.Swap(false) {
		s.dueAt = time.Time{} // that may be the full snapshot which is due
	} else if now.Before(s.searchAt) {
		return
	}
	if s.a.log != nil && s.a.log.Timeline() != s.timeline {
		s.a.log = nil
	}
	ctx, s.endSearch = context.WithCancel(ctx)
	result := make(chan inventory, 1)
	s.searching = result
	repo, id, log, end := s.repo, s.timeline, s.a.log, s.stored
	go func() { result <- takeInventory(ctx, repo, id, log, end) }()
}

// takeInventory lists the archive anew; log is what the look before it found, or
// nil.
func takeInventory(ctx context.Context, repo *repository.Repository, id repository.TimelineID, log *segment.Log, end uint64) (v inventory) {
	ctx, cancel := context.WithTimeout(ctx, branchLimit)
	defer cancel()
	v.end = end
	m, err := newestFull(ctx, repo, id)
	if v.err = err; err != nil {
		return v
	}
	from := uint64(0)
	if v.some = m != nil; v.some {
		v.full = m.Facts.RaftIndex
		from = v.full + 1
	}
	if v.log = log; log != nil {
		v.err = log.Refresh(ctx)
	} else {
		v.log, v.err = segment.OpenNames(ctx, repo, id, nil)
	}
	if v.err != nil {
		return v
	}
	if v.missing, v.last, v.err = v.log.Missing(from); v.err != nil {
		return v
	}
	v.missing = slices.DeleteFunc(v.missing, func(r segment.Range) bool { return r.Last <= v.full })
	if len(v.missing) > 0 {
		v.records, v.err = repo.Gaps(ctx, id)
		return v
	}
	if spans := v.log.Coverage(); len(spans) > 1 && spans[len(spans)-1].FirstIndex > v.full+1 {
		v.broken = spans[len(spans)-1].FirstIndex
	}
	return v
}

// dropSearch does without what a look under way will find.
func (w *gapWatch) dropSearch() {
	if w.searching != nil {
		w.endSearch()
		w.searching, w.a.log = nil, nil // it may take a moment to end
	}
}

// searched takes what a look found. Entries that are gone although the archive goes
// on behind them, since an object was deleted or lost, are a gap: a full snapshot is
// due at once. So it is where a chain begins anew, and who began it has not taken one:
// its host may be lost. Where one is behind already, only old points are lost.
func (s *session) searched(v inventory) error {
	s.endSearch()
	s.searching = nil
	s.searchAt = time.Now().Add(searchEvery)
	if v.err != nil {
		s.searchAt = time.Now().Add(searchAgain)
		s.a.failed(fmt.Errorf("look through the archive of timeline %s: %w", s.timeline, v.err))
		return nil //nolint:nilerr // it is reported, and tried again
	}
	s.a.log = v.log
	s.searches++
	if s.searches > 1 && v.last < v.end {
		// What the archive ended with is gone, and nothing is behind it yet: the
		// next session goes on from what is left.
		return errAgain
	}
	s.full, s.some = v.full, v.some
	if n := len(v.missing); n > 0 {
		g := Gap{Timeline: s.timeline.String(), First: v.missing[n-1].Last + 1}
		g.Missing = g.First - v.missing[0].First
		g.Reason = fmt.Sprintf("entries %s of timeline %s are not in the archive, though it goes on after them: an object was deleted or lost", ranges(v.missing), s.timeline)
		s.requireFull(g)
		for _, r := range v.missing {
			if !slices.Contains(v.records, repository.GapName{Timeline: s.timeline, First: r.First, Last: r.Last}) {
				s.record(r, "an object was deleted or lost")
			}
		}
	} else if v.broken > 0 {
		s.requireFull(Gap{Timeline: s.timeline.String(), First: v.broken,
			Reason: fmt.Sprintf("what is archived of timeline %s from entry %d on is not proved to continue what is before it", s.timeline, v.broken)})
	} else if g := s.position.Gap; g != nil && g.Timeline == s.timeline.String() && g.Found.IsZero() {
		s.fullNotDue() // somebody's spool had the entries, or there is a full snapshot
	}
	s.publish() // who sees that it was looked through sees what was found
	s.a.update(func(st *State) { st.Checked = s.Now() })
	return nil
}

// ranges are some ranges in words.
func ranges(all []segment.Range) string {
	text := fmt.Sprintf("%d to %d", all[0].First, all[0].Last)
	if len(all) > 1 {
		text += fmt.Sprintf(", and %d more ranges up to entry %d,", len(all)-1, all[len(all)-1].Last)
	}
	return text
}

// record notes entries that the archive will not hold. They are written down when
// their turn comes.
func (s *session) record(r segment.Range, reason string) {
	g := Gap{Timeline: s.timeline.String(), First: r.Last + 1, Missing: r.Last + 1 - r.First, Reason: reason}
	if !slices.ContainsFunc(s.a.State().Gaps, func(k Gap) bool { return k.Timeline == g.Timeline && k.First == g.First }) {
		s.a.update(func(st *State) { st.Gaps = append(st.Gaps, g) })
	}
	if !slices.ContainsFunc(s.a.unwritten, func(k segment.GapRecord) bool {
		return k.Timeline == s.timeline && k.First == r.First && k.Last == r.Last
	}) {
		s.a.unwritten = append(s.a.unwritten, segment.GapRecord{
			Timeline: s.timeline, First: r.First, Last: r.Last, Reason: reason, Member: snapshot.ID(s.id.MemberID), Created: s.Now(),
		})
	}
}

// writeGap stores the record of a gap.
func (l *link) writeGap(ctx context.Context) {
	g := l.a.unwritten[0]
	l.do(ctx, lookLimit, func(ctx context.Context) func() error {
		err := segment.WriteGap(ctx, l.repo, g)
		return func() error {
			if err != nil {
				return l.putFailed(err)
			}
			l.putSucceeded()
			l.a.unwritten = l.a.unwritten[1:]
			return nil
		}
	})
}

// settled reports that Once has nothing to wait for: the archive was looked through,
// gaps are written down, and a full snapshot that is due was tried.
func (w *gapWatch) settled() bool {
	if w.a.call.done != nil || w.position.Gap != nil && w.OnGap != nil && w.dueAt.IsZero() {
		return false
	}
	return w.searches > 0 && len(w.a.unwritten) == 0
}

// recoverable is the last entry that a full snapshot and the log behind it lead
// to, as far as gaps are known; 0 where there is no full snapshot.
func (s *session) recoverable() uint64 {
	if s.searches > 0 && !s.some {
		return 0
	}
	if g := s.position.Gap; g != nil && g.Timeline == s.timeline.String() {
		return min(s.end.index, max(g.First-g.Missing-1, min(s.full, g.First-1)))
	}
	return s.end.index
}

// beyondGap reports that what this member has cannot follow what is archived: entries
// are missing between, or it could not be proved that it continues it.
func (b *outbox) beyondGap() bool {
	if b.queue.empty() {
		return false
	}
	if b.fresh {
		return b.captured.index > 0 && b.queue.first() > b.nextIndex()
	}
	return !b.joined || b.queue.first() > b.nextIndex()
}

// crossGap goes on at entry first, behind a gap: after several takeover times in which
// any other archiver that holds the entries would have stored them, and a listing.
func (s *session) crossGap(ctx context.Context, now time.Time, first uint64, send func() error) error {
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
		gap := Gap{Timeline: s.timeline.String(), First: first}
		switch {
		case first > s.end.index+1:
			gap.Missing = first - s.end.index - 1
			gap.Reason = fmt.Sprintf("entries %d to %d are in no log that an archiver could read within %s", s.end.index+1, first-1, (gapTakeovers * s.takeover()).Round(time.Second))
		case s.backlog():
			gap.Reason = fmt.Sprintf("what %s had spooled from entry %d on does not continue what another archiver stored meanwhile", s.id, first)
		default:
			gap.Reason = fmt.Sprintf("the log of %s begins at entry %d and holds none of those archived before it: that it continues them is not proved", s.id, first)
		}
		s.crossing = &gap
		return send()
	})
	return nil
}

// recordGap writes the gap down, once the segment behind it is stored, and has a
// full snapshot taken.
func (s *session) recordGap(g Gap) {
	if g.Found.IsZero() {
		g.Found = s.Now()
	}
	g.Found = g.Found.UTC().Round(0)
	s.requireFull(g)
	if g.Missing > 0 {
		s.record(segment.Range{First: g.First - g.Missing, Last: g.First - 1}, g.Reason)
	} else {
		s.a.update(func(st *State) { st.Gaps = append(st.Gaps, g) })
	}
}

// requireFull has a full snapshot taken for a gap. One that is due already is not
// forgotten: the snapshot has to be behind both.
func (w *gapWatch) requireFull(g Gap) {
	if due := w.position.Gap; due == nil {
		w.dueSince = time.Now()
	} else if due.Timeline == g.Timeline {
		begin := min(due.First-due.Missing, g.First-g.Missing)
		g.First = max(due.First, g.First)
		g.Missing = g.First - begin
		if !g.Found.After(due.Found) {
			g.Found = due.Found
			if g.First == due.First && g.Missing == due.Missing {
				g.Reason = due.Reason
			}
		}
	}
	w.a.alarms.raise(AlarmGap, g.Reason+"; a full snapshot is due")
	if w.position.Gap != nil && *w.position.Gap == g {
		return
	}
	w.position.Gap = &g
	w.dueAt = time.Time{}
	if err := w.savePosition(true); err != nil {
		w.a.failed(err)
	}
}

// fullNotDue notes that no full snapshot is due any more.
func (w *gapWatch) fullNotDue() {
	w.position.Gap = nil
	w.a.alarms.clear(AlarmGap)
	if err := w.savePosition(true); err != nil {
		w.a.failed(err)
	}
}

// ErrElsewhere is OnGap's error while another archiver takes the full snapshot.
var ErrElsewhere = errors.New("another archiver is taking the full snapshot that is due")

// callAgain is how soon OnGap is called again after it failed. Where another archiver
// takes the snapshot it begins with callSoon, and doubles: a small one is there in a
// moment, and until it is seen this archiver says that there is none.
const (
	callAgain = time.Minute
	callSoon  = 500 * time.Millisecond
)

// call is an OnGap that is under way. It may outlive the session that made it.
type call struct {
	gap  Gap
	done chan error // nil while none is under way
}

// callForSnapshot calls OnGap while a full snapshot is due.
func (w *gapWatch) callForSnapshot(ctx context.Context, now time.Time) {
	if w.position.Gap == nil || w.OnGap == nil || w.a.call.done != nil || now.Before(w.dueAt) {
		return
	}
	c := call{gap: *w.position.Gap, done: make(chan error, 1)}
	w.a.call = c
	go func() { c.done <- w.OnGap(ctx, c.gap) }()
}

// snapshotTaken notes how OnGap ended. A gap that was found since then is still
// due.
func (w *gapWatch) snapshotTaken(err error) {
	gap := w.a.call.gap
	w.a.call = call{}
	if err != nil {
		w.a.failed(fmt.Errorf("the full snapshot that is due: %w", err))
		wait := callAgain
		if errors.Is(err, ErrElsewhere) {
			wait = min(callSoon<<min(w.elsewhere, 10), callAgain)
			w.elsewhere++
		}
		w.dueAt = time.Now().Add(wait)
		return
	}
	w.elsewhere = 0
	if w.position.Gap == nil || *w.position.Gap != gap {
		return
	}
	w.full, w.some = max(w.full, gap.First-1), true // at least there: the next look shows it
	if w.searching != nil {                         // it may have begun before
		w.dropSearch()
		w.searchAt = time.Time{}
	}
	w.a.alarms.clear(AlarmTimeline)
	w.fullNotDue()
}
