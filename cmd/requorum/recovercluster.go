package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/schedule/rescue"
	"github.com/requorum/requorum/schedule/rescue/config"
)

// recoverCluster recovers through the agents on a cluster's hosts.
func (g *globals) recoverCluster(ctx context.Context, o *recoverOptions) error {
	req, err := g.rescueRequest(ctx, o)
	if err != nil {
		return err
	}
	if o.dryRun {
		return g.lookAtCluster(ctx, req)
	}
	events := newRescueEvents(g, o)
	defer events.finish()
	req.Events = events
	report, err := rescue.Run(ctx, req)
	events.finish()
	if report == nil {
		return g.notRecovered(ctx, req, err)
	}
	if err := orUnproven(report.Plan, g.printRescued(report), err); err != nil {
		return err
	}
	return unprovenElsewhere(report)
}

// unprovenElsewhere is for a run that was only completed here: that it had raised the
// revision is what is left of its plan, and is done where nothing is proven.
func unprovenElsewhere(r *rescue.Report) error {
	if r.Inherited == "" || r.RevisionAfter == r.RevisionBefore {
		return nil
	}
	return fmt.Errorf("%w: run %s raised the revision, as where acknowledged writes may be missing", errUnproven, r.Inherited)
}

// rescueRequest is what the options ask for.
func (g *globals) rescueRequest(ctx context.Context, o *recoverOptions) (req rescue.Request, err error) {
	cfg, err := g.clusterConfig(ctx, o)
	if err != nil {
		return req, err
	}
	req = rescue.Request{
		Config: cfg, Source: o.source, DeclareDead: o.declareDead, Bump: o.req.Bump,
		Replay: protocol.ReplaySettings{PersistCheckpoints: o.point.checkpoints, SourceVersion: o.point.sourceVersion},
		Force:  o.force, TakeOver: o.takeOver, UpdateFlags: o.updateFlags, Tool: "requorum " + version, Logger: g.logger(),
	}
	if o.set.Changed("min-lease-ttl") {
		req.Replay.MinLeaseTTL = o.point.minLeaseTTL
	}
	if req.Change, err = o.change(); err != nil {
		return req, err
	}
	req.TargetFromNow = strings.HasPrefix(o.point.at, "-")
	req.Target, err = o.point.target(time.Now())
	return req, err
}

// clusterConfig is what the cluster file says, or what is known without one.
func (g *globals) clusterConfig(ctx context.Context, o *recoverOptions) (*config.Config, error) {
	if o.file == "" {
		return g.knownConfig(ctx, o)
	}
	cfg, err := config.Read(o.file)
	if err != nil {
		return nil, usageError{err}
	}
	return cfg, nil
}

// lookAtCluster shows what would be done.
func (g *globals) lookAtCluster(ctx context.Context, req rescue.Request) error {
	events := newRescueEvents(g, nil)
	req.Events = events
	p, err := rescue.Look(ctx, req)
	events.finish()
	if p == nil {
		return asked(err)
	}
	shown := errors.Join(g.printProspect(p), g.unchanged())
	var nothing *recovery.NothingError
	if errors.As(err, &nothing) && (len(p.Unsurveyed) > 0 || len(p.Obstacles) > 0) {
		err = nil // what there is, may be in members that still run, or that are not reached
	}
	if n := len(p.Obstacles); err == nil && n > 0 {
		err = fmt.Errorf("it would be refused now, for %d %s: see the obstacles", n, plural(n, "reason", "reasons"))
		if p.Unnamed {
			err = usageError{err}
		}
	}
	return orUnproven(p.Plan, shown, asked(err))
}

// notRecovered is why a run did not come to the proof. Where something has to be
// chosen first, what there is to choose from is shown.
func (g *globals) notRecovered(ctx context.Context, req rescue.Request, err error) error {
	if choosing(err) {
		req.Events = nil
		p, found := rescue.Look(ctx, req)
		if p != nil && choosing(found) {
			return errors.Join(g.printProspect(p), asked(err))
		}
	}
	return asked(err)
}

// choosing tells whether an error is about what to recover from.
func choosing(err error) bool {
	var need *recovery.NeedSourceError
	var nothing *recovery.NothingError
	var source *recovery.SourceError
	return errors.As(err, &need) || errors.As(err, &nothing) || errors.As(err, &source)
}

// asked tells errors in what was asked for from others.
func asked(err error) error {
	var fence *rescue.FenceError
	var contradiction *rescue.ContradictionError
	var held *rescue.HeldError
	var obstacles *rescue.ObstacleError
	var credentials *rescue.CredentialsError
	switch {
	case errors.As(err, &credentials):
		return usageError{err}
	case errors.As(err, &obstacles) && obstacles.Unnamed:
		return usageError{err}
	case errors.As(err, &fence), errors.As(err, &contradiction), errors.As(err, &held):
		return usageError{err}
	}
	return err
}

// undoRecovery takes a recovery back.
func (g *globals) undoRecovery(ctx context.Context, o *recoverOptions) error {
	req, err := g.rescueRequest(ctx, o)
	if err != nil {
		return err
	}
	events := newRescueEvents(g, o)
	defer events.finish()
	req.Events = events
	report, err := rescue.Undo(ctx, req)
	events.finish()
	if report == nil {
		return asked(err)
	}
	return errors.Join(g.printUndone(report), err)
}

// printUndone prints what was put back.
func (g *globals) printUndone(r *rescue.UndoReport) error {
	if g.output == "json" {
		return g.printJSON(r)
	}
	for _, h := range r.Hosts {
		switch {
		case h.Dead:
			g.printf("%s: declared dead, passed by\n", h.Member)
			continue
		case h.PutBack == "":
			g.printf("%s: nothing had been set aside\n", h.Member)
		default:
			g.printf("%s: %s is as it was\n", h.Member, h.PutBack)
		}
		if h.Flags != "" {
			g.printf("%s: etcd's flags in %s are as they were\n", h.Member, h.Flags)
		}
		for _, path := range h.Kept {
			g.printf("%s: the new member's data is kept in %s\n", h.Member, path)
		}
		if !h.Started {
			g.printf("%s: not started\n", h.Member)
		}
	}
	g.printLineage(r.Lineage)
	g.printAfter(r.Incomplete, r.Warnings, r.Next)
	fmt.Fprintf(g.stdout, "Run %s of cluster %s is undone.\n", r.Run, r.Cluster)
	return nil
}
