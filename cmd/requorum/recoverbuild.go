package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/restore/recovery/rebuild"
	"github.com/requorum/requorum/verify/replaying"
	"github.com/requorum/requorum/walreplay"
)

// carryOut builds what was decided and confirmed.
func (l *localRecovery) carryOut(ctx context.Context) error {
	target, err := l.o.point.target(time.Now())
	if err != nil {
		return err
	}
	if l.shared != nil {
		l.o.replaySettings(l.shared.Source.Recipe)
	}
	image, done, err := l.rebuild(ctx, target, l.shared)
	if err != nil {
		return err
	}
	if l.o.toSnapshot != "" {
		err := l.writeSnapshot(ctx, image)
		return errors.Join(err, done())
	}
	plan := l.shared
	if plan == nil {
		if plan, err = restore.NewPlan(ctx, l.request(image)); err == nil && l.o.plan != "" {
			err = l.o.writePlan(plan)
		}
	}
	record := &recoveryRecord{Format: recoveryRecordFormat, Asked: l.asked, Began: began(), Survivors: l.absolute(), Target: target, Decision: l.plan, Members: l.members, Compared: l.compared, Plan: plan}
	if err == nil {
		record.path, err = l.o.recordPath()
	}
	if err == nil {
		err = record.write()
	}
	var result *restore.Result
	if err == nil {
		result, err = l.build(ctx, plan, image)
	}
	if err := errors.Join(err, done()); err != nil {
		return err
	}
	return l.complete(ctx, record, result)
}

// goOn completes a recovery that was killed.
func (l *localRecovery) goOn(ctx context.Context, r *recoveryRecord) error {
	l.g.note("going on with the recovery that was begun at %s from %s", when(r.Began), r.Decision.Chosen)
	l.plan, l.members, l.survivors, l.began, l.compared = r.Decision, r.Members, r.Survivors, r.Began, r.Compared
	result, err := r.Plan.Built(l.o.name)
	if err != nil {
		return err
	}
	if result != nil {
		return l.complete(ctx, r, result)
	}
	l.o.replaySettings(r.Plan.Source.Recipe)
	image, done, err := l.rebuild(ctx, r.Target, r.Plan)
	if err != nil {
		return err
	}
	result, err = l.build(ctx, r.Plan, image)
	if err := errors.Join(err, done()); err != nil {
		return err
	}
	return l.complete(ctx, r, result)
}

// absolute are the survivors as another run finds them, wherever that is started.
func (l *localRecovery) absolute() []recovery.Survivor {
	var all []recovery.Survivor
	for _, s := range l.survivors {
		for _, found := range l.findings.Survivors {
			if found.Name == s.Name {
				s.DataDir, s.WALDir = found.DataDir, found.WALDir
			}
		}
		all = append(all, s)
	}
	return all
}

// rebuild replays the chosen state. done ends with it; plan is one that was made
// before, or nil.
func (l *localRecovery) rebuild(ctx context.Context, target walreplay.Target, plan *restore.Plan) (_ *walreplay.Rebuilt, done func() error, err error) {
	clean := func() error { return nil }
	view := ""
	if plan != nil { // which may have been begun
		if view, err = os.MkdirTemp("", "requorum-recover-"); err != nil {
			return nil, nil, err
		}
		clean = func() error { return os.RemoveAll(view) }
	}
	where, err := places(l.survivors, plan, view)
	if err == nil {
		err = l.stillIdle(where)
	}
	if err == nil {
		err = l.notWritten(where)
	}
	if err != nil {
		return nil, nil, errors.Join(err, clean())
	}
	meter := l.g.newMeter()
	defer meter.finish()
	opts, err := l.o.replayOptions(l.g, plan, meter)
	if err != nil {
		return nil, nil, errors.Join(err, clean())
	}
	opts.CheckBase = replaying.CheckBase
	req := rebuild.Request{
		Source: *l.plan.Candidate(l.plan.Chosen).Source, Target: target, Places: where,
		Repositories: l.repos, Identities: l.identities, ScratchDir: opts.ScratchDir, Replay: opts,
	}
	image, err := rebuild.State(ctx, req)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("rebuild the state from %s: %w\nNothing was changed", l.plan.Chosen, err), clean())
	}
	if plan == nil { // one that was made before was compared then, and is what the image has to be
		if err := l.compare(ctx, req, image); err != nil {
			return nil, nil, errors.Join(err, image.Close(), clean())
		}
	}
	return image, func() error { return errors.Join(image.Close(), clean()) }, nil
}

// stillIdle makes sure that no survivor was started since it was looked at.
func (l *localRecovery) stillIdle(where map[string]rebuild.Place) error {
	for _, s := range l.survivors {
		if err := restore.CheckMemberIdle(where[s.Name].DataDir, where[s.Name].WALDir); err != nil {
			return fmt.Errorf("%s was started meanwhile: %w\n%s", s.Name, err, replaceOne(s.Name))
		}
	}
	return nil
}

// notWritten makes sure that no survivor took writes since a recovery that is gone
// on with was decided: they would not be in what was decided.
func (l *localRecovery) notWritten(where map[string]rebuild.Place) error {
	if l.began.IsZero() {
		return nil
	}
	for _, s := range l.survivors {
		dir := cmp.Or(where[s.Name].WALDir, filepath.Join(where[s.Name].DataDir, "member", "wal"))
		list, err := filepath.Glob(filepath.Join(dir, "*.wal"))
		if err != nil {
			return err
		}
		for _, path := range list {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			if info.ModTime().After(l.began.Add(2 * time.Second)) { // it is in whole seconds
				path, _ := l.o.recordPath()
				return fmt.Errorf("%s was started after what was decided at %s, and its log was written at %s: what it took since would be lost. Remove %s to begin anew, with all that is there now", s.Name, when(l.began), when(info.ModTime()), path)
			}
		}
	}
	return nil
}

// build builds the members of this host.
func (l *localRecovery) build(ctx context.Context, plan *restore.Plan, image *walreplay.Rebuilt) (*restore.Result, error) {
	meter := l.g.newMeter()
	defer meter.finish()
	host := l.host()
	host.Progress = func(p restore.Progress) { meter.update(string(p.Phase), p.Done, p.Total) }
	result, err := restore.Execute(ctx, plan, image, host)
	if err != nil {
		return nil, err
	}
	var phases []restore.PhaseTime
	for _, p := range image.Phases {
		phases = append(phases, restore.PhaseTime{Phase: restore.Phase(p.Phase), Duration: p.Took})
	}
	result.Phases = append(phases, result.Phases...)
	return result, nil
}

// complete ends the old timeline in the repositories, prints what was done, and
// starts it where that was asked for.
func (l *localRecovery) complete(ctx context.Context, record *recoveryRecord, result *restore.Result) error {
	report := l.report()
	report.Restore = result
	report.Repositories = l.succeed(ctx, result.Plan, result.Plan.Source)
	failed := l.away
	for _, d := range report.Repositories {
		if d.Failed != "" {
			failed = append(failed, recovery.Unread{Repository: d.Repository, Reason: d.Failed})
		}
	}
	var incomplete error
	if len(failed) == 0 {
		if err := record.remove(); err != nil {
			return err
		}
	} else {
		incomplete = partlyError{fmt.Sprintf("the new members are built; %s does not know that they go on in the place of the old cluster: %s. Run the same command again when it can be written", failed[0].Repository, failed[0].Reason)}
	}
	if !l.o.start.start {
		return orUnproven(l.plan, l.g.printRecovered(report), incomplete)
	}
	err := l.g.startRestored(ctx, &l.o.buildOptions, result.Plan, func(endpoints []string) error {
		report.Endpoints = endpoints
		return l.g.printRecovered(report)
	})
	return orUnproven(l.plan, err, incomplete)
}
