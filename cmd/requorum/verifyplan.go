package main

import (
	"context"
	"errors"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify"
)

// showVerifyPlan prints what would be read.
func (g *globals) showVerifyPlan(ctx context.Context, repo *repository.Repository, req verify.Request) error {
	p, err := verify.PlanRepository(ctx, repo, req)
	if errors.Is(err, snapshot.ErrAmbiguous) {
		err = usageError{err}
	}
	if err != nil {
		return err
	}
	if g.output == "json" {
		return g.printJSON(p)
	}
	for _, b := range p.Backups {
		g.printf("backup %s: %s\n", b.ID, size(b.Bytes))
	}
	for _, l := range p.Logs {
		g.printf("log of timeline %s: %s in %d segments\n", l.Timeline, size(l.Bytes), l.Segments)
	}
	if p.Sample != nil {
		g.printf("Sample (--seed %d): %s\n", p.Sample.Seed, p.Sample.Coverage)
	}
	g.printf("Up to the rung %s: %s to read; %s of scratch space\n", p.Rung, size(p.Bytes), size(p.Scratch))
	return nil
}
