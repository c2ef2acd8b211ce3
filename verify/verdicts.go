package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/verdict"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// readVerdicts reads what earlier runs wrote. Where that fails this run goes on
// without: it binds nothing, since it could be what took the place of something
// that was proved before.
func (e *examination) readVerdicts(ctx context.Context) error {
	e.verdicts, e.unread = verdict.ReadAll(ctx, e.repo, e.Trusted...)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// checkVerdicts checks the chain of earlier verdicts, and what is left of what
// they saw.
func (e *examination) checkVerdicts(ctx context.Context) error {
	if e.unread != nil {
		e.seen = nil
		return e.failed(ctx, verdict.CheckObject, e.unread)
	}
	c := e.verdicts.Check()
	for _, n := range e.verdicts.Notes {
		e.note("%s", n)
	}
	if len(e.verdicts.Entries) == 0 {
		return nil
	}
	if err := e.compareSeen(ctx, &c); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		unchecked(&c, err)
	}
	e.add(c)
	return nil
}

// Verdict is what a report says of a repository, to be written there. That a live
// member could not be asked takes nothing from what was proved without it.
func Verdict(r *report.Report, seen []verdict.Seen) verdict.Verdict {
	proved := *r
	proved.Checks = slices.DeleteFunc(slices.Clone(r.Checks), func(c report.Check) bool {
		return c.Status == report.Unchecked && strings.HasSuffix(c.Object, liveSuffix)
	})
	return verdict.FromReport(&proved, seen...)
}

// proved are the ends of the stretches of a log that verdicts saw, the newest
// first.
func (l *logCheck) proved(do func(entry verdict.Entry, s verdict.Stretch)) {
	for _, entry := range slices.Backward(l.verdicts.Entries) {
		if !entry.Counts {
			continue
		}
		for _, s := range entry.Verdict.Subjects {
			if s.Timeline != l.part.timeline {
				continue
			}
			for _, one := range s.Log {
				do(entry, one)
			}
		}
	}
}

// wasThere tells that a verdict saw a log of this timeline.
func (l *logCheck) wasThere() (was bool) {
	l.proved(func(verdict.Entry, verdict.Stretch) { was = true })
	return was
}

// checkProved holds the log against what verdicts saw of it: the chain's value
// at an index never changes, and the log's end never comes sooner.
func (l *logCheck) checkProved() {
	var end uint64
	for _, h := range l.log.Headers() {
		end = max(end, h.LastIndex)
	}
	var full uint64 // a log that ends before it may have been pruned
	for _, m := range l.bases() {
		full = max(full, m.Facts.RaftIndex)
	}
	shorter, other := false, false
	l.proved(func(entry verdict.Entry, s verdict.Stretch) {
		by := fmt.Sprintf("(%s, of %s)", entry.Name, entry.Verdict.Finished.Format("2006-01-02"))
		switch sums := l.chain.sumsAt(s.Last); {
		case s.Last > end && s.Last <= l.letGo: // recorded before it went
		case s.Last > end && s.Last <= full && !shorter:
			shorter = true
			l.note("the log of timeline %s was verified to index %d before, and ends at %d now: what was between was pruned or deleted, and the full snapshot at %d is behind it %s",
				l.part.timeline, s.Last, end, full, by)
		case s.Last > end && !shorter && l.damagedWithin(end+1, s.Last) == 0:
			shorter = true
			found(l.check, report.Finding{Kind: report.KindGap, Where: fmt.Sprintf("index %d to %d", end+1, s.Last),
				Text: "these entries at the log's end are not there, and were verified before: objects were deleted " + by})
		case len(sums) > 0 && !slices.Contains(sums, s.After) && !other && s.After != (raftlog.Sum{}):
			other = true
			found(l.check, report.Finding{Kind: report.KindFork, Where: fmt.Sprintf("index %d", s.Last),
				Text: "the log up to this index is another one than was verified before " + by})
		}
	})
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
