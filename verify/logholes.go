package verify

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
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
	if l.prunedTo, err = l.prunedLogTo(ctx); err != nil {
		unchecked(l.check, fmt.Errorf("whether entries are missing is not known: %w", err))
		return
	}
	l.checkHoles()
}

// checkHoles holds the log against what the repository claims to be able to
// restore. A hole is damage unless its entries were recorded as lost when they
// were, and a full snapshot was taken behind it: that is history.
func (l *logCheck) checkHoles() {
	bases := l.bases()
	if len(bases) == 0 {
		l.note("timeline %s has an archived log and no full snapshot: nothing can be restored from it until there is one", l.part.timeline)
	}
	spans := l.log.Coverage()
	if len(spans) == 0 {
		return
	}
	l.checkBeginning(bases, spans[0])
	for _, g := range l.log.Gaps() {
		if g.Next > spans[len(spans)-1].LastIndex || g.After < spans[0].FirstIndex || g.Next <= max(l.part.from, l.prunedTo+1) {
			continue // recorded before or behind all that there is, or pruned
		}
		l.checkGap(bases, g)
	}
}

// checkGap looks at one hole between two segments.
func (l *logCheck) checkGap(bases []*snapshot.Manifest, g segment.Gap) {
	claimed := len(bases) > 0 && bases[0].Facts.RaftIndex+1 < g.Next
	closed := firstAt(bases, max(g.Next, 1)-1) != nil
	chainStart := l.beginsAt(g.Next, func(h segment.Header) bool { return h.ChainStart })
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
	case !recorded(g) && !chainStart:
		found(l.check, report.Finding{Kind: report.KindGap, Where: where, Text: "these entries are not there, and nobody recorded that they were lost: objects were deleted"})
	case !recorded(g) && len(g.Records) > 0:
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

// recorded reports whether the records of a gap name all entries that are missing.
func recorded(g segment.Gap) bool {
	next := g.After + 1
	for again := true; again; {
		again = false
		for _, r := range g.Records {
			if r.First <= next && r.Last >= next {
				next, again = r.Last+1, true
			}
		}
	}
	return next >= g.Next
}

// checkBeginning looks at where the log begins. That old segments were pruned is
// no fault; that those are there which nothing can be restored with, since they
// join no full snapshot, is: what joined them is gone.
func (l *logCheck) checkBeginning(bases []*snapshot.Manifest, s segment.Coverage) {
	if len(bases) == 0 || s.FirstIndex <= max(l.part.from, l.prunedTo)+1 || bases[0].Facts.RaftIndex+1 >= s.FirstIndex {
		return
	}
	next := firstAt(bases, s.FirstIndex-1)
	if l.damagedWithin(bases[0].Facts.RaftIndex+1, s.FirstIndex-1) > 0 {
		return
	}
	var before *snapshot.Manifest
	for _, m := range bases {
		if m.Facts.RaftIndex+1 < s.FirstIndex {
			before = m
		}
	}
	where := fmt.Sprintf("index %d to %d", before.Facts.RaftIndex+1, s.FirstIndex-1)
	switch {
	case next == nil:
		found(l.check, report.Finding{Kind: report.KindGap, Where: where,
			Text: fmt.Sprintf("these entries between full snapshot %s and the log after it are not there: nothing in the log can be restored until a full snapshot is taken: requorum backup", before.ID)})
	case l.beginsAt(s.FirstIndex, func(h segment.Header) bool { return !h.ChainStart && h.LastIndex < next.Facts.RaftIndex }):
		found(l.check, report.Finding{Kind: report.KindGap, Where: where,
			Text: fmt.Sprintf("these entries between full snapshot %s and the log after it are not there, and the log after it had some before it: objects were deleted", before.ID)})
	}
}

// beginsAt reports whether a segment that begins at an index, or all of those that
// do, are what is asks for.
func (l *logCheck) beginsAt(index uint64, is func(segment.Header) bool) bool {
	any := false
	for _, h := range l.headers {
		if h.FirstIndex == index {
			if !is(h) {
				return false
			}
			any = true
		}
	}
	return any
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
		n, err := repository.ParseSegmentName(d.Name)
		if err != nil || n.First > last || max(n.First, n.Last) < first {
			continue
		}
		if from := max(n.First, first); lowest == 0 || from < lowest {
			lowest = from
		}
	}
	return lowest
}

// checkTerms holds the entry at each full snapshot's index against the term that
// the snapshot has: a snapshot of another history does not continue into this log.
func (l *logCheck) checkTerms() {
	for _, m := range l.bases() {
		term, known := l.chain.terms[m.Facts.RaftIndex]
		if !known || m.Facts.RaftTerm == 0 || m.Facts.RaftIndex < l.part.from || term == m.Facts.RaftTerm {
			continue
		}
		found(l.check, report.Finding{Kind: report.KindFork, Object: fullName(m.Timeline, m.ID), Where: fmt.Sprintf("index %d", m.Facts.RaftIndex),
			Text: fmt.Sprintf("the snapshot ends with the entry of term %d, and the log's entry at this index is of term %d: they are of two histories", m.Facts.RaftTerm, term)})
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
