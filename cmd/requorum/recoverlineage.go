package main

import (
	"context"
	"fmt"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/schedule/rescue/lineage"
	"github.com/requorum/requorum/sinks/repository"
)

// succeed opens the new cluster's timeline in each repository, and ends the old
// one's. source is what the new cluster was built from.
func (l *localRecovery) succeed(ctx context.Context, plan *restore.Plan, source restore.Source) []lineage.Done {
	if len(l.repos) == 0 {
		return nil
	}
	req := lineage.Request{
		Repositories: l.repos, NewCluster: uint64(plan.ClusterID), OldCluster: uint64(l.plan.ClusterID),
		Branch: l.branch(source), Reason: fmt.Sprintf("recovered from %s by plan %s", l.plan.Chosen, plan.ID),
	}
	for _, m := range plan.Members {
		req.Members = append(req.Members, m.Name)
	}
	return lineage.Supersede(ctx, req)
}

// branch is where the new history leaves the old one.
func (l *localRecovery) branch(source restore.Source) repository.Branch {
	c := l.plan.Candidate(l.plan.Chosen)
	facts := source.Facts
	b := repository.Branch{Timeline: c.Source.Base.Timeline, Backup: c.Source.Base.Backup, RaftIndex: facts.RaftIndex, Revision: facts.Revision}
	if r := source.Recipe; r != nil && r.Chain != nil {
		b.Chain = r.Chain.String()
	}
	if b.Timeline == (repository.TimelineID{}) && c.History > 0 {
		if all := l.plan.Histories[c.History-1].Timelines; len(all) > 0 {
			b.Timeline = all[len(all)-1]
		}
	}
	return b
}
