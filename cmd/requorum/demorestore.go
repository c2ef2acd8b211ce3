package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/walreplay"
)

// demoCluster is a cluster that was restored.
type demoCluster struct {
	*store.LocalCluster
	result *restore.Result
	recipe *walreplay.Recipe
}

// restored rebuilds a point of the archive into a new cluster of some members,
// and starts it. The caller kills it.
func (d *demo) restored(ctx context.Context, folder string, members int, target walreplay.Target) (_ *demoCluster, err error) {
	ports, err := store.FreePorts(2 * members)
	if err != nil {
		return nil, err
	}
	var initial, clients []string
	for i := range members {
		initial = append(initial, fmt.Sprintf("m%d=http://127.0.0.1:%d", i+1, ports[2*i]))
		clients = append(clients, fmt.Sprintf("m%d=http://127.0.0.1:%d", i+1, ports[2*i+1]))
	}
	c, err := d.build(ctx, filepath.Join(d.dir, folder), strings.Join(initial, ","), target)
	if err != nil {
		return nil, err
	}
	c.LocalCluster, err = d.startPlanned(ctx, c.result.Plan, clients)
	return c, err
}

// startPlanned starts the members that a plan built, with these client URLs.
func (d *demo) startPlanned(ctx context.Context, plan *restore.Plan, clients []string) (*store.LocalCluster, error) {
	configs, err := (&startOptions{clientURLs: clients}).configs(plan, "")
	if err != nil {
		return nil, err
	}
	for i := range configs {
		configs[i].LogLevel, configs[i].LogOutputs = demoQuiet.LogLevel, demoQuiet.LogOutputs
	}
	return store.StartMembers(ctx, configs)
}

// build is what 'requorum restore' does.
func (d *demo) build(ctx context.Context, dir, initialCluster string, target walreplay.Target) (_ *demoCluster, err error) {
	sink, err := disk.New(filepath.Join(d.dir, "repository"))
	if err != nil {
		return nil, err
	}
	defer sink.Close() //nolint:errcheck // a folder: nothing is held open
	repo, err := repository.Open(ctx, sink)
	if err != nil {
		return nil, err
	}
	m, catalog, err := walreplay.FindIn(ctx, repo, snapshot.Latest, "")
	if err != nil {
		return nil, err
	}
	history, err := walreplay.OpenArchive(ctx, repo, catalog, m.Timeline)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	options := walreplay.Options{ScratchDir: dir, Logger: d.logger()}
	point, err := history.Resolve(ctx, target, "", options)
	if err != nil {
		return nil, err
	}
	image, err := history.Rebuild(ctx, point, options)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, image.Close()) }()
	highest, err := walreplay.HighestRevision(ctx, repo, catalog)
	if err != nil {
		return nil, err
	}
	plan, err := restore.NewPlan(ctx, restore.Request{
		Image: image, Repository: repo.String(), BackupID: point.Base.ID, InitialCluster: initialCluster, Target: target.String(),
		DataDir: filepath.Join(dir, "{name}"), HighestKnownRevision: highest,
	})
	if err != nil {
		return nil, err
	}
	result, err := restore.Execute(ctx, plan, image, restore.ExecOptions{Logger: d.logger()})
	if err != nil {
		return nil, err
	}
	return &demoCluster{result: result, recipe: image.Recipe}, nil
}
