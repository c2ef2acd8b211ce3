package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
	sample  *sample
	scratch *walreplay.ScratchFolder // nil until it is needed
	seen    []verdict.Seen
	// verdicts are those that earlier runs wrote.
	verdicts verdict.Chain
}

// Repository proves what the request selects in a repository. Faults are in the
// report; the error is for what kept it from being made: a listing that failed,
// nothing that matches, the end of ctx. Seen is what a verdict binds: what was
// read whole and found as it should be.
func Repository(ctx context.Context, repo *repository.Repository, req Request) (_ *report.Report, seen []verdict.Seen, err error) {
	req, err = req.withDefaults()
	if err != nil {
		return nil, nil, err
	}
	e := &examination{run: run{Request: req, report: req.newReport(repo.String())}, repo: repo}
	defer func() { err = errors.Join(err, e.clear()) }()
	if err := e.open(ctx); err != nil {
		return nil, nil, err
	}
	for _, step := range []func(context.Context) error{e.checkMarker, e.checkTimelines, e.checkHistories, e.checkVerdicts, e.checkRest} {
		if err := step(ctx); err != nil {
			return nil, nil, err
		}
	}
	e.report.Sample = e.sample.told()
	return e.finish(), e.seen, nil
}

// open finds out what there is, and what of it is looked at.
func (e *examination) open(ctx context.Context) (err error) {
	if e.selection, e.catalog, err = choose(ctx, e.repo, e.Request); err != nil {
		return err
	}
	if e.verdicts, err = verdict.ReadAll(ctx, e.repo, e.Trusted...); err != nil {
		return err
	}
	e.sample, err = e.draw(ctx)
	return err
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
			c.Compared = "the timeline's descriptor with its own SHA-256 and place, and with its parent"
			e.checkDescriptor(ctx, c, id)
			_, _, err := e.repo.Superseded(ctx, id)
			if errors.Is(err, repository.ErrAltered) {
				found(c, report.Finding{Kind: report.KindMark, Object: repository.SupersededName(id), Text: err.Error()})
			} else if err != nil {
				unchecked(c, err)
			}
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
		found(c, report.Finding{Kind: report.KindTimeline, Text: "it is gone: where this history came from is not known"})
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

// checkRest accounts for what belongs to no backup and no log: only when
// everything is looked at.
func (e *examination) checkRest(ctx context.Context) error {
	for _, full := range e.catalog.Incomplete {
		if !slices.Contains(e.timelines, full.Timeline) || !e.all {
			continue
		}
		var bytes int64
		for _, o := range full.Objects {
			bytes += o.Size
		}
		e.note("%s/full/%s has no manifest (%d bytes): what an interrupted backup left, or one that runs now", full.Timeline, full.ID, bytes)
	}
	if !e.all {
		return nil
	}
	if err := e.checkClaims(ctx); err != nil {
		return err
	}
	return e.nameUnknown(ctx)
}

// fullName is what reports call a backup.
func fullName(t repository.TimelineID, id string) string { return fmt.Sprintf("%s/full/%s", t, id) }

// logName is what reports call a timeline's log.
func logName(t repository.TimelineID) string { return t.String() + "/log" }
