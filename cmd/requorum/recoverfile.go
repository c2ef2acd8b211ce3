package main

import (
	"context"
	"fmt"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
)

// writeSnapshot writes the one file, and the plan for the hosts that restore it.
func (l *localRecovery) writeSnapshot(ctx context.Context, image *walreplay.Rebuilt) error {
	plan, err := restore.NewSnapshotFilePlan(ctx, l.snapshotRequest(image))
	if err != nil {
		return err
	}
	meter := l.g.newMeter()
	result, err := restore.WriteSnapshotFile(ctx, plan, image, restore.ExecOptions{
		Logger:   l.g.logger(),
		Progress: func(p restore.Progress) { meter.update(string(p.Phase), p.Done, p.Total) },
	})
	meter.finish()
	if err != nil {
		return err
	}
	report := l.report()
	report.Snapshot = result
	var incomplete error
	if l.o.plan != "" {
		members, err := l.planForHosts(ctx, result.Path)
		if err != nil {
			return err
		}
		report.HostPlan, report.PlanFile = members, l.o.plan
		report.Repositories = l.succeed(ctx, members, plan.Source)
		for _, d := range report.Repositories {
			if d.Failed != "" {
				incomplete = partlyError{fmt.Sprintf("%s does not know of the new cluster: %s", d.Repository, d.Failed)}
			}
		}
	}
	return orUnproven(l.plan, l.g.printRecovered(report), incomplete)
}

// planForHosts plans the members that each host builds from the file, in which the
// revision is raised already.
func (l *localRecovery) planForHosts(ctx context.Context, path string) (*restore.Plan, error) {
	file, err := snapshot.OpenFile(path)
	if err != nil {
		return nil, err
	}
	req := l.request(file)
	req.Bump, req.HighestKnownRevision = restore.BumpRequest{Mode: restore.BumpNone}, 0
	plan, err := restore.NewPlan(ctx, req)
	if err != nil {
		return nil, err
	}
	return plan, l.o.writePlan(plan)
}
