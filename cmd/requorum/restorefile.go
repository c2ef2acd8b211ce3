package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/requorum/requorum/restore"
)

// snapshotFileReport is the JSON form of `requorum restore --to-snapshot
// --dry-run`.
type snapshotFileReport struct {
	Plan *restore.SnapshotFilePlan `json:"plan"`
	Host []restore.FileSystem      `json:"file_systems"`
	// Point is what the target came to; nil where no point was asked for.
	Point *pointReport `json:"point,omitempty"`
}

// restoreToSnapshot writes one plain snapshot file.
func (g *globals) restoreToSnapshot(ctx context.Context, o *restoreOptions, src *restoreSource) error {
	newPlan := func() (*restore.SnapshotFilePlan, error) {
		return restore.NewSnapshotFilePlan(ctx, restore.SnapshotFileRequest{
			Image: src.image, Repository: src.url(), BackupID: src.backupID(), Path: o.toSnapshot, Owner: o.req.Owner,
			Bump: o.req.Bump, HighestKnownRevision: src.highest, TargetVersion: o.req.TargetVersion,
			Target: src.target, Notes: src.notes,
		})
	}
	plan, err := newPlan()
	if err != nil {
		return err
	}
	if src.needsRebuild(o, nil) {
		if !o.dryRun {
			if _, err := plan.Check(ctx); err != nil {
				return err
			}
		}
		if err := src.rebuild(ctx, g, o, nil); err != nil {
			return err
		}
		if plan, err = newPlan(); err != nil {
			return err
		}
	}
	if o.dryRun {
		host, err := plan.Check(ctx)
		if g.output == "json" {
			return errors.Join(g.printJSON(snapshotFileReport{plan, host, src.pointReport()}), err)
		}
		point, least := src.pointReport(), ""
		if point != nil && !point.RevisionExact {
			least = "at least "
		}
		g.printf("Would write %s at revision %s%d to %s\n", plan.Source.Name, least, plan.Source.Facts.Revision, plan.Path)
		g.printPoint(point)
		g.printPlannedBump(plan.Bump, point)
		g.printNotes(plan.Notes)
		fmt.Fprintln(g.stdout, "Nothing was changed.")
		return err
	}
	meter := g.newMeter()
	result, err := restore.WriteSnapshotFile(ctx, plan, src.image, restore.ExecOptions{
		Logger:   g.logger(),
		Progress: func(p restore.Progress) { meter.update(string(p.Phase), p.Done, p.Total) },
	})
	meter.finish()
	if err != nil {
		return src.nameOlder(ctx, g, err)
	}
	result.Phases = append(src.phases(), result.Phases...)
	if g.output == "json" {
		return g.printJSON(result)
	}
	g.printSnapshotFile(result)
	return nil
}

// printSnapshotFile tells what was written.
func (g *globals) printSnapshotFile(r *restore.SnapshotFileResult) {
	g.printf("Wrote %s (%s, SHA-256 of the database %s)\n", r.Path, size(r.Size), r.DatabaseSHA256)
	g.printAsked(r.Plan.Source)
	g.printBump(r.Plan.Bump)
	for _, a := range r.AlarmsCleared {
		g.printf("alarm %s of member %s was cleared\n", a.Type, a.MemberID)
	}
	g.printNotes(r.Plan.Notes)
}
