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

// checkVerdicts checks the chain of earlier verdicts, and what is left of what
// they saw.
func (e *examination) checkVerdicts(context.Context) error {
	c := e.verdicts.Check()
	for _, n := range e.verdicts.Notes {
		e.note("%s", n)
	}
	if len(e.verdicts.Entries) > 0 {
		e.compareSeen(&c)
		e.add(c)
	}
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

// compareSeen looks at the backups that a verdict once proved: one whose manifest
// is gone while its object stays was not pruned, and one whose manifest names
// other bytes was replaced.
func (e *examination) compareSeen(c *report.Check) {
	type backup struct{ timeline, id string }
	told := map[backup]bool{}
	for _, entry := range slices.Backward(e.verdicts.Entries) {
		if !entry.Counts {
			continue
		}
		for _, s := range entry.Verdict.Subjects {
			b := backup{s.Timeline.String(), s.Backup}
			if s.Backup == "" || len(s.Objects) == 0 || told[b] || !slices.Contains(e.timelines, s.Timeline) {
				continue
			}
			told[b] = true
			if f := e.changed(s); f != nil {
				f.Text += fmt.Sprintf(" (%s, of %s)", entry.Name, entry.Verdict.Finished.Format("2006-01-02"))
				found(c, *f)
			}
		}
	}
}

// changed is what became of a backup that a verdict saw; nil where it is as it
// was, or pruned as a whole.
func (e *examination) changed(s verdict.Subject) *report.Finding {
	name := fullName(s.Timeline, s.Backup)
	for _, m := range e.catalog.Manifests {
		if m.Timeline != s.Timeline || m.ID != s.Backup {
			continue
		}
		now := verdict.Object{Name: m.Object.Name, StoredSize: m.Object.StoredSize, StoredSHA256: m.Object.StoredSHA256}
		if slices.ContainsFunc(s.Objects, func(o verdict.Object) bool { return o.Name == now.Name && o != now }) {
			return &report.Finding{Kind: report.KindManifest, Object: name,
				Text: fmt.Sprintf("the manifest names an object with the SHA-256 %s: it is not the backup that was verified before", now.StoredSHA256)}
		}
		return nil
	}
	for _, full := range e.catalog.Incomplete {
		if full.Timeline == s.Timeline && full.ID == s.Backup {
			return &report.Finding{Kind: report.KindMissing, Object: name,
				Text: "its manifest is gone, its object is there: it was verified before"}
		}
	}
	return nil
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

// checkProved holds the log against what verdicts saw of it: the chain's value
// at an index never changes, and the log's end never comes sooner.
func (l *logCheck) checkProved() {
	var end uint64
	for _, h := range l.log.Headers() {
		end = max(end, h.LastIndex)
	}
	shorter, other := false, false
	l.proved(func(entry verdict.Entry, s verdict.Stretch) {
		by := fmt.Sprintf("(%s, of %s)", entry.Name, entry.Verdict.Finished.Format("2006-01-02"))
		switch sums := l.chain.sumsAt(s.Last); {
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
