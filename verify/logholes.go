package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// judgeHoles looks for holes, with the full snapshots as they are after the log was
// listed: of those that were read before it, hours ago perhaps, the old ones can be
// pruned with their part of the log, and a newer one can have closed a gap.
func (l *logCheck) judgeHoles(ctx context.Context) {
	now, err := snapshot.ReadBackups(ctx, l.repo, l.part.timeline)
	if err != nil {
		unchecked(l.check, fmt.Errorf("whether entries are missing is not known: %w", err))
		return
	}
	l.now = now
	_, ended, err := l.repo.Superseded(ctx, l.part.timeline)
	if err != nil && !errors.Is(err, repository.ErrAltered) {
		unchecked(l.check, fmt.Errorf("whether entries are missing is not known: %w", err))
		return
	}
	l.checkHoles(ended)
}

// checkHoles holds the log against what the repository claims to be able to
// restore. A hole is damage unless its entries were recorded as lost when they
// were, and a full snapshot was taken behind it: that is history.
func (l *logCheck) checkHoles(ended bool) {
	bases := l.bases()
	if len(bases) == 0 {
		l.note("timeline %s has an archived log and no full snapshot: nothing can be restored from it until there is one", l.part.timeline)
	}
	spans := l.log.Coverage()
	if len(spans) == 0 {
		return
	}
	l.checkBeginning(bases, spans[0], ended)
	for _, g := range l.log.Gaps() {
		if g.Next > spans[len(spans)-1].LastIndex || g.After < spans[0].FirstIndex || g.Next <= max(l.part.from, 1) {
			continue // recorded before or behind all that there is
		}
		l.checkGap(bases, g)
	}
}

// checkGap looks at one hole between two segments.
func (l *logCheck) checkGap(bases []*snapshot.Manifest, g segment.Gap) {
	claimed := len(bases) > 0 && bases[0].Facts.RaftIndex+1 < g.Next
	closed := firstAt(bases, max(g.Next, 1)-1) != nil
	chainStart := segment.BeginsChain(l.headers, g.Next)
	missing := g.Missing()
	if d := l.damagedWithin(g.After+1, g.Next-1); missing > 0 && d > 0 {
		// What the damaged object may hold is not missing: it has its own finding.
		g.Next, chainStart, missing = d, false, d-g.After-1
		if missing == 0 {
			return
		}
	}
	where := fmt.Sprintf("index %d to %d", g.After+1, g.Next-1)
	switch {
	case missing == 0 && !chainStart:
		found(l.check, report.Finding{Kind: report.KindFork, Where: fmt.Sprintf("index %d", g.Next),
			Text: fmt.Sprintf("the log up to index %d and the log from index %d on are not of one chain: a segment was replaced, or one that joins them is gone", g.After, g.Next)})
	case missing == 0:
		l.noteClosed(bases, closed, fmt.Sprintf("it is not known whether the log of timeline %s from index %d on continues the log before it", l.part.timeline, g.Next))
	case !claimed:
		l.note("the log of timeline %s has no entries %d to %d, before its first full snapshot", l.part.timeline, g.After+1, g.Next-1)
	case !g.Recorded() && !chainStart:
		found(l.check, report.Finding{Kind: report.KindGap, Where: where, Text: "these entries are not there, and nobody recorded that they were lost: objects were deleted"})
	case !g.Recorded() && len(g.Records) > 0:
		found(l.check, report.Finding{Kind: report.KindGap, Where: where, Text: fmt.Sprintf("these entries are not there, and only some of them were recorded as lost (%s): objects were deleted", g.Reason)})
	default:
		text := fmt.Sprintf("the log of timeline %s has no entries %d to %d", l.part.timeline, g.After+1, g.Next-1)
		if g.Reason != "" {
			text += ": " + g.Reason
		}
		l.noteClosed(bases, closed, text)
	}
}

// noteClosed notes a hole behind which a full snapshot was taken. Without one
// what is behind it cannot be restored.
func (l *logCheck) noteClosed(bases []*snapshot.Manifest, closed bool, text string) {
	switch {
	case closed:
		l.note("%s; a full snapshot was taken after it", text)
	case len(bases) > 0:
		found(l.check, report.Finding{Kind: report.KindGap, Text: text + "; nothing after it can be restored until a full snapshot is taken: requorum backup"})
	}
}

// checkBeginning checks where the log begins. Retention deletes a log from its beginning
// on, so entries that are missing there after an old full snapshot are no fault. It keeps
// those after the newest one, unless the timeline has ended.
func (l *logCheck) checkBeginning(bases []*snapshot.Manifest, s segment.Coverage, ended bool) {
	if len(bases) == 0 || s.FirstIndex <= l.part.from+1 || bases[0].Facts.RaftIndex+1 >= s.FirstIndex {
		return
	}
	if l.damagedWithin(bases[0].Facts.RaftIndex+1, s.FirstIndex-1) > 0 {
		return
	}
	var before *snapshot.Manifest
	for _, m := range bases {
		if m.Facts.RaftIndex+1 < s.FirstIndex {
			before = m
		}
	}
	if ended || firstAt(bases, s.FirstIndex-1) != nil {
		l.note("the log of timeline %s begins at index %d: the entries between full snapshot %s and it were pruned, or deleted by something else", l.part.timeline, s.FirstIndex, before.ID)
		return
	}
	found(l.check, report.Finding{Kind: report.KindGap, Where: fmt.Sprintf("index %d to %d", before.Facts.RaftIndex+1, s.FirstIndex-1),
		Text: fmt.Sprintf("these entries between full snapshot %s and the log after it are not there: nothing in the log can be restored until a full snapshot is taken: requorum backup", before.ID)})
}

// firstAt is the first full snapshot at or behind an index, or nil.
func firstAt(bases []*snapshot.Manifest, index uint64) *snapshot.Manifest {
	for _, m := range bases { // from the oldest state to the newest
		if m.Facts.RaftIndex >= index {
			return m
		}
	}
	return nil
}

// damagedWithin is the first index of a range that a damaged object may hold; 0
// where none does.
func (l *logCheck) damagedWithin(first, last uint64) uint64 {
	var lowest uint64
	for _, d := range l.log.Damaged() {
		if from := max(d.First, first); d.MayHold(first, last) && (lowest == 0 || from < lowest) {
			lowest = from
		}
	}
	return lowest
}

// checkBranches holds the log against the timelines that branched off it with a
// value of its chain.
func (l *logCheck) checkBranches() {
	for _, t := range l.catalog.Timelines {
		if t.Parent == nil || t.Parent.Timeline != l.part.timeline || t.Parent.Chain == "" {
			continue
		}
		var want raftlog.Sum
		if err := want.UnmarshalText([]byte(t.Parent.Chain)); err != nil {
			found(l.check, report.Finding{Kind: report.KindTimeline, Object: "timelines/" + t.ID.String() + ".json", Text: err.Error()})
			continue
		}
		if sums := l.chain.sumsAt(t.Parent.RaftIndex); len(sums) > 0 && !slices.Contains(sums, want) {
			found(l.check, report.Finding{Kind: report.KindFork, Object: "timelines/" + t.ID.String() + ".json", Where: fmt.Sprintf("index %d", t.Parent.RaftIndex),
				Text: fmt.Sprintf("it branched off timeline %s where the chain had another value than the log has now: one of the two was replaced", l.part.timeline)})
		}
	}
}

// checkTerms holds the entry at each full snapshot's index against the term that
// the snapshot has: a snapshot of another history does not continue into this log.
func (l *logCheck) checkTerms() {
	for _, m := range l.bases() {
		term, known := l.chain.terms[m.Facts.RaftIndex]
		if !known || m.Facts.RaftIndex < l.part.from || term == m.Facts.RaftTerm {
			continue
		}
		found(l.check, report.Finding{Kind: report.KindFork, Object: fullName(m.Timeline, m.ID), Where: fmt.Sprintf("index %d", m.Facts.RaftIndex),
			Text: fmt.Sprintf("the snapshot ends with the entry of term %d, and the log's entry at this index is of term %d: they are of two histories", m.Facts.RaftTerm, term)})
	}
}

// checkRevisions compares the revisions of two full snapshots with the entries between them,
// each of which raises the revision by one at most. More than that shows a member that was
// given the database of another history, and went on with its log.
func (l *logCheck) checkRevisions() {
	var before *snapshot.Manifest
	for _, m := range l.bases() {
		if before != nil && m.Facts.RaftIndex >= l.part.from {
			revisions, entries := m.Facts.Revision-before.Facts.Revision, m.Facts.RaftIndex-before.Facts.RaftIndex
			if revisions < 0 || uint64(revisions) > entries {
				found(l.check, report.Finding{Kind: report.KindFork, Object: fullName(m.Timeline, m.ID), Where: fmt.Sprintf("index %d", m.Facts.RaftIndex),
					Text: fmt.Sprintf("it has revision %d, and %s, %s before it, has revision %d: the member's database was replaced by one of another history", m.Facts.Revision, before.ID, report.Counted(int(entries), "entry", "entries"), before.Facts.Revision)})
			}
		}
		before = m
	}
}

// checkMarked holds the alive marks against the entries that they name.
func (l *logCheck) checkMarked() {
	order := func(a, b markedEntry) int { return cmp.Or(cmp.Compare(a.index, b.index), cmp.Compare(a.term, b.term)) }
	for _, at := range slices.SortedFunc(maps.Keys(l.alive), order) {
		name := l.alive[at]
		if term, known := l.chain.terms[at.index]; known && term != at.term {
			found(l.check, report.Finding{Kind: report.KindMark, Object: name, Where: fmt.Sprintf("index %d", at.index),
				Text: fmt.Sprintf("it names the entry of term %d, and the log's entry is of term %d", at.term, term)})
		}
	}
}
