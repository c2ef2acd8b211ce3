package main

import (
	"context"
	"errors"

	"github.com/spf13/pflag"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
)

func addTimelineFlag(f *pflag.FlagSet, timeline *string) {
	f.StringVar(timeline, "timeline", "", "look in this timeline only; needed for 'latest' where a cluster has separate histories")
}

// findBackup finds the backup that the arguments name, the newest without any.
func findBackup(ctx context.Context, r *repository.Repository, args []string, timeline string) (*snapshot.Manifest, *snapshot.Catalog, error) {
	ref := snapshot.Latest
	if len(args) > 0 {
		ref = args[0]
	}
	m, c, err := walreplay.FindIn(ctx, r, ref, timeline)
	if errors.Is(err, snapshot.ErrAmbiguous) {
		err = usageError{err}
	}
	return m, c, err
}
