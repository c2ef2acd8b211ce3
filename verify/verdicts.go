package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/verdict"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// readVerdicts reads what earlier runs wrote. Where that fails this run goes on
// without: it binds nothing, since it could be what took the place of something
// that was proved before.
func (e *examination) readVerdicts(ctx context.Context) error {
	e.verdicts, e.unread = verdict.ReadAll(ctx, e.repo)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// checkVerdicts checks the earlier verdicts, and what is left of what
// they saw.
func (e *examination) checkVerdicts(ctx context.Context) error {
	if e.unread != nil {
		for i := range e.report.Checks {
			e.report.Checks[i].Objects, e.report.Checks[i].Log = nil, nil
		}
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

// provedLog are the ends of the ranges of a timeline's log that verdicts saw, the newest
// first.
func (e *examination) provedLog(t repository.TimelineID, do func(entry verdict.Entry, s report.Range)) {
	for _, entry := range slices.Backward(e.verdicts.Entries) {
		if entry.Err != nil || entry.Verdict.Timeline != t {
			continue
		}
		for _, one := range entry.Verdict.Log {
			do(entry, one)
		}
	}
}

// logWasThere says that a verdict saw a log of a timeline.
func (e *examination) logWasThere(t repository.TimelineID) (was bool) {
	e.provedLog(t, func(verdict.Entry, report.Range) { was = true })
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
	l.provedLog(l.part.timeline, func(entry verdict.Entry, s report.Range) {
		by := fmt.Sprintf("(%s, of %s)", entry.Name, entry.Verdict.Finished.Format("2006-01-02"))
		switch sums := l.chain.sumsAt(s.Last); {
		case s.Last > end && s.Last <= l.prunedTo: // recorded before it went
		case s.Last > end && s.Last <= full && !shorter:
			shorter = true
			l.note("the log of timeline %s was verified to index %d before, and ends at %d now: what was between was pruned or deleted, and the full snapshot at %d is after it %s",
				l.part.timeline, s.Last, end, full, by)
		case s.Last > end && !shorter && l.damagedWithin(end+1, s.Last) == 0:
			shorter = true
			found(l.check, report.Finding{Kind: report.KindGap, Where: fmt.Sprintf("index %d to %d", end+1, s.Last),
				Text: "these entries at the log's end are not there, and were verified before: objects were deleted " + by})
		case len(sums) > 0 && s.After != "" && !other && !slices.ContainsFunc(sums, func(sum raftlog.Sum) bool { return sum.String() == s.After }):
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

// backupID names a backup in the whole repository.
type backupID struct {
	timeline repository.TimelineID
	id       string
}

func (b backupID) String() string { return fullName(b.timeline, b.id) }

// provedBackups are the backups of what is looked at whose bytes verdicts bound,
// each with all of what they said, the newest first. All verdicts count, not only
// the newest: a run that finds a backup replaced must not make its findings the
// measure of the next.
func (e *examination) provedBackups() map[backupID][]binding {
	all := map[backupID][]binding{}
	for _, entry := range slices.Backward(e.verdicts.Entries) {
		if entry.Err != nil {
			continue
		}
		by := fmt.Sprintf(" (%s, of %s)", entry.Name, entry.Verdict.Finished.Format("2006-01-02"))
		if s := entry.Verdict; s.Backup != "" && len(s.Objects) > 0 && e.concerns(s.Timeline) {
			b := backupID{s.Timeline, s.Backup}
			all[b] = append(all[b], binding{s.Objects, by})
		}
	}
	return all
}

// concerns reports whether the backups of a timeline matter to what is looked at. To
// the newest of all, those of timelines that have none left do: one of them would be
// it, and an older one in another timeline must not pass in its place.
func (e *examination) concerns(t repository.TimelineID) bool {
	if e.all || slices.Contains(e.timelines, t) {
		return true
	}
	return e.Backup == Latest && e.Timeline == "" &&
		!slices.ContainsFunc(e.catalog.Manifests, func(m *snapshot.Manifest) bool { return m.Timeline == t }) &&
		!slices.ContainsFunc(e.catalog.Damaged, func(d snapshot.DamagedBackup) bool { return d.Timeline == t })
}

// binding is what one verdict saw of a backup.
type binding struct {
	objects []report.Object
	by      string // which verdict, to go behind a sentence
}

// compareSeen holds the backups that verdicts proved against what is there now.
func (e *examination) compareSeen(ctx context.Context, c *report.Check) error {
	proved := e.provedBackups()
	pruned, err := e.prunedBackups(ctx)
	if err != nil {
		return err
	}
	for _, m := range e.catalog.Manifests {
		b := backupID{m.Timeline, m.ID}
		if f := replaced(m, proved[b]); f != nil {
			e.replacedBackup(b, *f)
		}
		delete(proved, b)
	}
	for _, d := range e.catalog.Damaged { // it has its own finding
		delete(proved, backupID{d.Timeline, d.ID})
	}
	for _, u := range e.catalog.Unread {
		maps.DeleteFunc(proved, func(b backupID, _ []binding) bool { return b.timeline == u.Timeline })
	}
	for _, full := range e.catalog.Incomplete {
		b := backupID{full.Timeline, full.ID}
		recorded, err := e.wasPruned(ctx, b, len(proved[b]) > 0 && pruned[b])
		if err != nil {
			return err
		}
		if words := proved[b]; len(words) > 0 && !recorded {
			found(c, report.Finding{Kind: report.KindMissing, Object: b.String(),
				Text: "its manifest is gone, its object is there, and no record says that it was pruned: it was verified before" + words[0].by})
		}
		delete(proved, b)
	}
	return e.checkGone(ctx, c, proved, pruned)
}

// replaced reports a backup that is not the one that verdicts saw; nil where it is.
func replaced(m *snapshot.Manifest, words []binding) *report.Finding {
	now := verdict.ObjectsOf(m)
	for _, w := range words {
		for _, o := range w.objects {
			switch {
			case slices.Contains(now, o):
				continue
			case o.Name == now[1].Name && slices.Contains(w.objects, now[0]):
				return &report.Finding{Kind: report.KindManifest,
					Text: fmt.Sprintf("the manifest's SHA-256 is %s, and was %s when it was verified before: what it says of the same object was changed%s", now[1].StoredSHA256, o.StoredSHA256, w.by)}
			}
			return &report.Finding{Kind: report.KindManifest,
				Text: fmt.Sprintf("the manifest names an object with the SHA-256 %s: it is not the backup that was verified before%s", now[0].StoredSHA256, w.by)}
		}
	}
	return nil
}

// replacedBackup makes a finding one of the backup itself, so that the verdict
// says so of it, and binds nothing of it.
func (e *examination) replacedBackup(b backupID, f report.Finding) {
	for i := range e.report.Checks {
		if c := &e.report.Checks[i]; c.Level == report.Checksum && c.Object == b.String() {
			c.Objects = nil
			found(c, f)
			return
		}
	}
	e.add(report.Check{Level: report.Checksum, Object: b.String(), Compared: "the manifest with what earlier verdicts saw of it", Findings: []report.Finding{f}})
}

// checkGone looks at backups of which nothing is left. Old ones are pruned, by
// requorum with a record and by hand without. But nobody prunes the newest one:
// where nothing newer is there it is missing.
func (e *examination) checkGone(ctx context.Context, c *report.Check, proved map[backupID][]binding, pruned map[backupID]bool) error {
	unrecorded := 0
	for _, b := range sorted(proved) {
		if e.hasNewer(b) {
			if !pruned[b] {
				unrecorded++
			}
			continue
		}
		recorded, err := e.wasPruned(ctx, b, pruned[b])
		if err != nil {
			return err
		}
		if !recorded {
			found(c, report.Finding{Kind: report.KindMissing, Object: b.String(),
				Text: "it is gone, no newer backup is there, and no record says that it was pruned: it was verified before" + proved[b][0].by})
		}
	}
	if unrecorded > 0 {
		e.note("%s gone that had been verified, and no record says that it was pruned; newer ones are there", report.Counted(unrecorded, "backup is", "backups are"))
	}
	return nil
}

// wasPruned reads the record that a backup was pruned, where one is listed: one that is
// not whole says nothing.
func (e *examination) wasPruned(ctx context.Context, b backupID, listed bool) (bool, error) {
	if !listed {
		return false, nil
	}
	_, err := e.repo.ReadPruned(ctx, repository.PrunedName(b.timeline, b.id))
	switch {
	case errors.Is(err, repository.ErrAltered):
		return false, nil
	case errors.Is(err, sinks.ErrNotFound): // it was there when all were listed
		return true, nil
	}
	return err == nil, err
}

// hasNewer reports whether there is a backup newer than one that is gone, by the
// times in their IDs: in its timeline, or anywhere where that has none left.
func (e *examination) hasNewer(b backupID) bool {
	var newest, inTimeline string
	see := func(t repository.TimelineID, id string) {
		newest = max(newest, id)
		if t == b.timeline {
			inTimeline = max(inTimeline, id)
		}
	}
	for _, m := range e.catalog.Manifests {
		see(m.Timeline, m.ID)
	}
	for _, d := range e.catalog.Damaged {
		see(d.Timeline, d.ID)
	}
	if inTimeline != "" {
		newest = inTimeline
	}
	return newest > b.id
}

// missesAll says that there is no backup though verdicts proved some that nobody
// pruned: nothing to look at, and so nothing found, would pass for good.
func (e *examination) missesAll(ctx context.Context) (bool, error) {
	proved := e.provedBackups()
	if len(proved) == 0 {
		return false, nil
	}
	pruned, err := e.prunedBackups(ctx)
	if err != nil {
		return false, err
	}
	for b := range proved {
		if recorded, err := e.wasPruned(ctx, b, pruned[b]); err != nil || !recorded {
			return err == nil, err
		}
	}
	return false, nil
}

func sorted(all map[backupID][]binding) []backupID {
	var ids []backupID
	for b := range all {
		ids = append(ids, b)
	}
	slices.SortFunc(ids, func(a, b backupID) int { return strings.Compare(a.String(), b.String()) })
	return ids
}
