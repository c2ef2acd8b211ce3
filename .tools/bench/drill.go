package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	verifyreport "github.com/requorum/requorum/verify/report"
)

// drilled is what was measured of drills of one backup.
type drilled struct {
	outcome outcome
	// phases are by name, in every counted round; order is theirs.
	order  []string
	phases map[string][]time.Duration
	// recovery is what one waits for when it is no drill.
	recovery []time.Duration
}

// recoveryPhases must all be there, or no cluster answered; besides them only
// fetching and replaying, where there was any, count into a recovery.
var recoveryPhases = []string{"build", "boot", "first read"}

// proofPhases are those that a recovery does not have.
var proofPhases = []string{"expect", "serve", "remove"}

// drills measures drills of a backup of one member, and of three with the same
// data.
func (o *options) drills(ctx context.Context, b *bench, r *report) error {
	if err := b.makeThree(ctx); err != nil {
		return fmt.Errorf("make a cluster of three to be drilled: %w", err)
	}
	for _, one := range []struct{ name, repo string }{{"one member", oneRepo}, {"three members", threeRepo}} {
		d, err := o.drill(ctx, b, one.name, one.repo)
		if err != nil {
			return fmt.Errorf("drill of %s: %w", one.name, err)
		}
		r.drilled = append(r.drilled, *d)
	}
	return nil
}

func (o *options) drill(ctx context.Context, b *bench, name, repo string) (*drilled, error) {
	d := &drilled{phases: map[string][]time.Duration{}, outcome: outcome{name: name}}
	c := contestant{name: "a drill of " + name, run: func(ctx context.Context) (usage, error) {
		u, check, err := b.verify(ctx, verifyreport.Drill, "--repo", "file://"+b.path(repo), "--no-verdict")
		if err != nil {
			return u, err
		}
		return u, d.add(check.Phases)
	}}
	// Without one to warm up: an earnest recovery comes unprepared, too.
	for round := 1; round <= o.drillRounds; round++ {
		if err := b.once(ctx, round, c, &d.outcome); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// add takes the phases of one round.
func (d *drilled) add(phases []verifyreport.Phase) error {
	round := map[string]time.Duration{}
	for _, p := range phases {
		if _, known := d.phases[p.Name]; !known {
			d.order = append(d.order, p.Name)
		}
		d.phases[p.Name] = append(d.phases[p.Name], p.Took)
		round[p.Name] = p.Took
	}
	for _, name := range recoveryPhases {
		if _, known := round[name]; !known {
			return fmt.Errorf("the drill's report has no phase %q", name)
		}
	}
	var recovery time.Duration
	for name, took := range round {
		if !slices.Contains(proofPhases, name) {
			recovery += took
		}
	}
	d.recovery = append(d.recovery, recovery)
	return nil
}

// makeThree restores the backup of one member as three, and takes a backup of
// them.
func (b *bench) makeThree(ctx context.Context) (err error) {
	if err := os.RemoveAll(b.path(threeRepo)); err != nil {
		return err
	}
	members, servers, err := b.startRestored(ctx, oneRepo)
	defer func() {
		for _, server := range servers {
			err = errors.Join(err, server.stop())
		}
		err = errors.Join(err, os.RemoveAll(b.path(restoreFolder)))
	}()
	if err != nil {
		return err
	}
	_, err = output(ctx, b.requorum(), "backup", "--endpoints", members[0].clientURL, "--repo", "file://"+b.path(threeRepo))
	return err
}

// startRestored restores a backup as a cluster of three, in the folder for
// restores, and starts it. The servers are to be stopped beside an error, too.
func (b *bench) startRestored(ctx context.Context, repo string) ([]member, []*server, error) {
	members, err := b.newMembers()
	if err != nil {
		return nil, nil, err
	}
	folder := b.path(restoreFolder)
	if err := errors.Join(os.RemoveAll(folder), os.MkdirAll(folder, 0o700)); err != nil {
		return nil, nil, err
	}
	if _, err := output(ctx, b.requorum(), "restore", "--repo", "file://"+b.path(repo),
		"--initial-cluster", initialCluster(members...), "--data-dir", filepath.Join(folder, "{name}")); err != nil {
		return nil, nil, err
	}
	servers, err := b.startCluster(ctx, members)
	return members, servers, err
}
