package main

import (
	"context"

	"github.com/requorum/requorum/schedule/due"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/archive"
)

// newKeeper sees to the full snapshots without which the log is of no use.
func (a *archiving) newKeeper() *due.Keeper {
	k := &due.Keeper{Sink: a.config.Sink, Archiver: a.archiver, Tell: a.report.note}
	if !a.options.noSnapshot {
		k.Take = a.takeSnapshot
	}
	return k
}

func (a *archiving) takeSnapshot(ctx context.Context, timeline repository.TimelineID) error {
	result, err := snapshot.Take(ctx, snapshot.Request{
		Client: a.config.Client, Sinks: []sinks.Sink{a.config.Sink}, Codec: a.config.Codec, Tool: a.config.Tool,
		Timeline: timeline, Reached: archive.Reached, Logger: a.config.Logger,
	})
	if err != nil {
		return err
	}
	a.report.backup(result.Outcomes[0].Manifest)
	return nil
}
