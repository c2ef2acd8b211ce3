package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/verdict"
	"github.com/requorum/requorum/walreplay"
)

// examination is a verification of a repository.
type examination struct {
	run
	repo    *repository.Repository
	catalog *snapshot.Catalog
	*selection
	scratch  *walreplay.ScratchFolder // nil until it is needed
	verdicts verdict.List             // that earlier runs wrote; empty until checkVerdicts
	// opened and sealed are encrypted objects that were read, with and without an
	// identity that opens them.
	opened, sealed atomic.Int64
}

// Repository proves what the request selects in a repository. Faults are in the
// report, and so is what could not be looked at. The error is for what kept it
// from being begun, such as nothing that matches or manifests that could not be
// listed, and for the end of ctx: there is no report then.
func Repository(ctx context.Context, repo *repository.Repository, req Request) (*report.Report, error) {
	req, err := req.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &examination{run: run{Request: req, report: req.newReport(repo.String())}, repo: repo}
	if err := e.open(ctx); err != nil {
		return nil, err
	}
	// A step files what it could not do: its error is the end of ctx.
	for _, step := range []func(context.Context) error{e.checkMarker, e.checkTimelines, e.checkHistories, e.checkVerdicts} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, e.clear())
		}
	}
	if err := e.failed(ctx, "scratch", e.clear()); err != nil {
		return nil, err
	}
	e.noteIncomplete()
	e.noteIdentities()
	e.noteNextSteps()
	return e.finish(), nil
}

// open finds out what there is, and what of it is checked. A repository without a backup
// is refused: nothing can be restored from it, whatever else is there.
func (e *examination) open(ctx context.Context) (err error) {
	all, err := walreplay.ReadInventory(ctx, e.repo)
	if err != nil {
		return err
	}
	e.catalog = all.Catalog
	if e.selection, err = choose(ctx, all, e.Request); err != nil {
		return err
	}
	compared := e.timelines
	if e.Timeline == "" && e.Backup == Latest {
		compared = nil // all: one that was emptied is not the latest any more
	}
	if err := all.CheckReached(ctx, compared...); err != nil {
		return err
	}
	if len(e.backups)+len(e.damaged) > 0 {
		return nil
	}
	if e.Timeline != "" {
		if _, err := e.catalog.Find(Latest, e.Timeline); err != nil {
			return err
		}
	}
	return e.catalog.None()
}

// noteIdentities says that what was given to decrypt with opened nothing: on the
// level checksum nothing else would.
func (e *examination) noteIdentities() {
	switch sealed := e.sealed.Load(); {
	case len(e.Identities) == 0 || e.opened.Load() > 0:
	case sealed > 0:
		e.note("the identity that was given opened none of %s read: only the stored bytes were compared. Give one of a recipient that 'requorum show' names", report.Counted(int(sealed), "encrypted object that was", "encrypted objects that were"))
	default:
		e.note("an identity was given, and nothing that was read is encrypted")
	}
}

// clear removes the scratch folder.
func (e *examination) clear() error {
	if e.scratch == nil {
		return nil
	}
	return e.scratch.Remove()
}

func (e *examination) checkMarker(ctx context.Context) error {
	_, err := e.check(ctx, report.Checksum, "requorum.json", func(c *report.Check) error {
		c.Compared = "the repository's marker with its own SHA-256"
		if err := e.repo.Damage(); err != nil {
			found(c, report.Finding{Kind: report.KindMarker, Text: err.Error()})
		}
		return nil
	})
	return err
}

// checkTimelines looks at each timeline's descriptor and at how it ended.
func (e *examination) checkTimelines(ctx context.Context) error {
	for _, id := range e.timelines {
		_, err := e.check(ctx, report.Checksum, "timelines/"+id.String()+".json", func(c *report.Check) error {
			c.Compared = "the timeline's descriptor with its own SHA-256 and place, and with its parent, and the marks that end it"
			e.checkDescriptor(ctx, c, id)
			e.checkEnding(ctx, c, id)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *examination) checkDescriptor(ctx context.Context, c *report.Check, id repository.TimelineID) {
	t, err := e.repo.Timeline(ctx, id)
	switch {
	case errors.Is(err, sinks.ErrNotFound):
		found(c, report.Finding{Kind: report.KindTimeline, Text: "it is gone, and no backup makes it anew: put it back from a copy of the repository. Backups and log restore without it; where this history came from is not known"})
	case errors.Is(err, repository.ErrAltered):
		found(c, report.Finding{Kind: report.KindTimeline, Text: err.Error()})
	case err != nil:
		unchecked(c, err)
	case t.Parent != nil:
		if t.Parent.Timeline == id {
			found(c, report.Finding{Kind: report.KindTimeline, Text: "it names itself as its parent"})
		}
		parents := func(known repository.Timeline) bool { return known.ID == t.Parent.Timeline }
		if !slices.ContainsFunc(e.catalog.Timelines, parents) {
			e.note("timeline %s branched off %s, which is not in the repository any more", id, t.Parent.Timeline)
		}
	}
}

// checkEnding reads all marks that end a timeline, those as well that count for
// nothing any more. They are numbered, and none is ever deleted: behind one that is
// gone nobody would look, and a timeline that ended would pass for living.
func (e *examination) checkEnding(ctx context.Context, c *report.Check, id repository.TimelineID) {
	names, err := e.repo.SupersededNames(ctx, id)
	if err != nil {
		unchecked(c, err)
		return
	}
	for n := 1; ; n++ {
		name := repository.SupersededName(id, n)
		_, err := e.repo.ReadSuperseded(ctx, name)
		switch {
		case errors.Is(err, sinks.ErrNotFound) && n > len(names):
			return
		case errors.Is(err, sinks.ErrNotFound):
			found(c, report.Finding{Kind: report.KindMark, Object: name, Text: fmt.Sprintf("%s in %s is gone, and later marks that end the timeline are there", name, e.repo)})
			return
		case errors.Is(err, repository.ErrAltered):
			found(c, report.Finding{Kind: report.KindMark, Object: name, Text: err.Error()})
		case err != nil:
			unchecked(c, err)
			return
		}
	}
}

// checkVerdicts checks what earlier runs wrote.
func (e *examination) checkVerdicts(ctx context.Context) (err error) {
	if e.verdicts, err = verdict.ReadAll(ctx, e.repo); err != nil {
		return e.failed(ctx, verdict.CheckObject, err)
	}
	for _, n := range e.verdicts.Notes {
		e.note("%s", n)
	}
	if len(e.verdicts.Entries)+len(e.verdicts.Findings) > 0 {
		e.add(e.verdicts.Check())
	}
	return nil
}

// noteIncomplete notes backups without a manifest: of all, or of those that would be
// newer than the newest one, by the times in their IDs.
func (e *examination) noteIncomplete() {
	for _, full := range e.catalog.Incomplete {
		older := func(m *snapshot.Manifest) bool { return full.Timeline == m.Timeline && full.ID > m.ID }
		if !e.all && (e.Backup != Latest || !slices.ContainsFunc(e.backups, older)) {
			continue
		}
		var bytes int64
		for _, o := range full.Objects {
			bytes += o.Size
		}
		e.note("%s has no manifest (%d bytes): it was pruned a short while ago, was interrupted, or is being taken now", fullName(full.Timeline, full.ID), bytes)
	}
}

// noteNextSteps says what to do about damage: what can still be relied on in each
// timeline where it is, and how to get something whole.
func (e *examination) noteNextSteps() {
	for _, t := range timelinesOf(e.report.Findings()) {
		sound := fmt.Sprintf("no backup of timeline %s is proved by a verdict", t)
		if proved := e.stillProved(t); proved != "" {
			sound = fmt.Sprintf("%s of timeline %s can be relied on", proved, t)
		}
		e.note("next step: %s; take a new full backup (requorum backup)", sound)
	}
}

// timelinesOf are those that findings are about, sorted.
func timelinesOf(all []report.Finding) []repository.TimelineID {
	var ids []repository.TimelineID
	for _, f := range all {
		if id := verdict.TimelineOf(f.Object); id.N > 0 && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b repository.TimelineID) int { return strings.Compare(a.String(), b.String()) })
	return ids
}

// stillProved names the newest backup of a timeline that was proved, by this run or
// by a verdict, and that this run did not find damaged; empty where none was.
func (e *examination) stillProved(t repository.TimelineID) string {
	for _, m := range slices.Backward(e.catalog.Manifests) {
		if m.Timeline != t {
			continue
		}
		status := (&report.Report{Checks: e.checksOf(m)}).Status()
		if status == report.Damaged {
			continue
		}
		if status == report.Passed {
			return fmt.Sprintf("backup %s, which passed this run up to the level %s,", m.ID, e.Level)
		}
		if w, ok := e.verdicts.Best(m); ok {
			return fmt.Sprintf("backup %s, which the verdict of %s proved up to the level %s,", m.ID, w.Verdict.Finished.Format("2006-01-02"), w.Verdict.Reached)
		}
	}
	return ""
}

// checksOf are the checks of one backup in this run.
func (e *examination) checksOf(m *snapshot.Manifest) []report.Check {
	var own []report.Check
	name := fullName(m.Timeline, m.ID)
	for _, c := range e.report.Checks {
		if c.Object == name || strings.HasPrefix(c.Object, name+"/") {
			own = append(own, c)
		}
	}
	return own
}

// fullName is what reports call a backup.
func fullName(t repository.TimelineID, id string) string { return fmt.Sprintf("%s/full/%s", t, id) }

// logName is what reports call a timeline's log.
func logName(t repository.TimelineID) string { return t.String() + "/log" }

// selection is what of a repository is looked at.
type selection struct {
	all       bool
	timelines []repository.TimelineID
	backups   []*snapshot.Manifest
	damaged   []snapshot.Unusable
	logs      []logPart
}

// logPart is the part of a timeline's log from an index on.
type logPart struct {
	timeline repository.TimelineID
	from     uint64 // 0: from its beginning
}

// choose finds what was asked for. Nothing that matches is snapshot.ErrNoBackup,
// and more than one history snapshot.ErrAmbiguous.
func choose(ctx context.Context, all *walreplay.Inventory, r Request) (*selection, error) {
	if r.Backup == All {
		return chooseAll(ctx, all, r.Timeline)
	}
	m, err := all.Find(ctx, r.Backup, r.Timeline)
	var damaged *snapshot.Unusable
	switch {
	case errors.As(err, &damaged):
		s := &selection{timelines: []repository.TimelineID{damaged.Timeline}, damaged: []snapshot.Unusable{*damaged}}
		if r.Backup == Latest { // from where on its log goes nobody knows
			s.logs = []logPart{{damaged.Timeline, 0}}
		}
		return s, nil
	case err != nil:
		return nil, err
	}
	s := &selection{timelines: []repository.TimelineID{m.Timeline}, backups: []*snapshot.Manifest{m}}
	if r.Backup == Latest {
		s.logs = []logPart{{m.Timeline, m.Facts.RaftIndex}}
	}
	return s, nil
}

// chooseAll takes everything, or everything in one timeline.
func chooseAll(ctx context.Context, c *walreplay.Inventory, timeline string) (*selection, error) {
	ids, err := c.Repo.TimelineIDs(ctx)
	if err != nil {
		return nil, err
	}
	s := &selection{all: timeline == ""}
	for _, id := range ids {
		if timeline != "" && timeline != id.String() {
			continue
		}
		s.timelines = append(s.timelines, id)
		s.logs = append(s.logs, logPart{timeline: id})
	}
	for _, m := range c.Manifests {
		if slices.Contains(s.timelines, m.Timeline) {
			s.backups = append(s.backups, m)
		}
	}
	for _, d := range c.Damaged {
		if slices.Contains(s.timelines, d.Timeline) {
			s.damaged = append(s.damaged, d)
		}
	}
	return s, nil
}
