package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/verdict"
)

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
		if !entry.Counts {
			continue
		}
		by := fmt.Sprintf(" (%s, of %s)", entry.Name, entry.Verdict.Finished.Format("2006-01-02"))
		for _, s := range entry.Verdict.Subjects {
			if s.Backup != "" && len(s.Objects) > 0 && e.concerns(s.Timeline) {
				b := backupID{s.Timeline, s.Backup}
				all[b] = append(all[b], binding{s.Objects, by})
			}
		}
	}
	return all
}

// concerns tells whether the backups of a timeline matter to what is looked at. To
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
	objects []verdict.Object
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
	for _, full := range e.catalog.Incomplete {
		b := backupID{full.Timeline, full.ID}
		letGo, err := e.letGo(ctx, b, len(proved[b]) > 0 && pruned[b])
		if err != nil {
			return err
		}
		if words := proved[b]; len(words) > 0 && !letGo {
			found(c, report.Finding{Kind: report.KindMissing, Object: b.String(),
				Text: "its manifest is gone, its object is there, and no record says that it was pruned: it was verified before" + words[0].by})
		}
		delete(proved, b)
	}
	return e.checkGone(ctx, c, proved, pruned)
}

// replaced tells a backup that is not the one that verdicts saw; nil where it is.
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
	e.seen = slices.DeleteFunc(e.seen, func(s verdict.Seen) bool { return s.Timeline == b.timeline && s.Backup == b.id })
	for i := range e.report.Checks {
		if c := &e.report.Checks[i]; c.Rung == report.Checksum && c.Object == b.String() {
			c.Status = report.Damaged
			found(c, f)
			return
		}
	}
	e.add(report.Check{Rung: report.Checksum, Object: b.String(), Compared: "the manifest with what earlier verdicts saw of it", Findings: []report.Finding{f}})
}

// checkGone looks at backups of which nothing is left. Old ones are let go, by
// requorum with a record and by hand without. But nobody lets the newest one go:
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
		letGo, err := e.letGo(ctx, b, pruned[b])
		if err != nil {
			return err
		}
		if !letGo {
			found(c, report.Finding{Kind: report.KindMissing, Object: b.String(),
				Text: "it is gone, no newer backup is there, and no record says that it was pruned: it was verified before" + proved[b][0].by})
		}
	}
	if unrecorded > 0 {
		e.note("%s gone that had been verified, and no record says that it was pruned; newer ones are there", counted(unrecorded, "backup is", "backups are"))
	}
	return nil
}

// letGo reads the record that a backup was pruned, where one is listed: one that is
// not whole says nothing.
func (e *examination) letGo(ctx context.Context, b backupID, listed bool) (bool, error) {
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

// hasNewer tells whether there is a backup newer than one that is gone, by the
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

// missesAll tells that there is no backup though verdicts proved some that nobody
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
		if letGo, err := e.letGo(ctx, b, pruned[b]); err != nil || !letGo {
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
