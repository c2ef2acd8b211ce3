package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/restore/recovery/rebuild"
	"github.com/requorum/requorum/sinks/repository"
)

// localRecovery is a recovery without agents: what it was told, what it found, and
// what was decided.
type localRecovery struct {
	g     *globals
	o     *recoverOptions
	asked string // the options, before anything was filled in

	survivors  []recovery.Survivor
	repos      []*repository.Repository
	away       []recovery.Unread // repositories that could not be opened
	identities []age.Identity

	findings *recovery.Findings
	plan     *recovery.Plan
	members  []recovery.NewMember
	// began is when what is gone on with was decided; zero for a new recovery.
	began time.Time
	// compared is what the rebuilt state was held against; nil before that.
	compared *rebuild.Comparison
	// shared is the plan that another host wrote; nil without one.
	shared *restore.Plan
}

// recoverLocal recovers on this machine alone.
func (g *globals) recoverLocal(ctx context.Context, o *recoverOptions) (err error) {
	l := &localRecovery{g: g, o: o}
	if l.asked, err = o.asked(); err != nil {
		return err
	}
	if l.survivors, err = parseSurvivors(o.local); err != nil {
		return err
	}
	if l.shared, err = o.readPlan(); err != nil {
		return err
	}
	if l.identities, err = o.identities.parse(); err != nil {
		return err
	}
	if err := l.openRepositories(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	record, err := o.readRecord(l.asked)
	if err != nil {
		return err
	}
	switch {
	case record != nil && o.dryRun:
		return l.showRecord(record)
	case record != nil:
		return l.goOn(ctx, record)
	}
	if err := left(l.survivors); err != nil {
		return err
	}
	if err := l.look(ctx); err != nil {
		return err
	}
	ready, obstacle := l.outlook(ctx)
	report := l.report()
	report.Host = ready
	if o.dryRun {
		return orUnproven(l.plan, g.printRecovery(report, l.intent()), g.unchanged(), obstacle)
	}
	if g.output != "json" {
		if err := errors.Join(g.printRecovery(report, l.intent()), g.endOfPlan()); err != nil {
			return err
		}
	}
	if obstacle != nil {
		return obstacle
	}
	if err := g.confirm(ctx, o, l.question()); err != nil {
		return err
	}
	return l.carryOut(ctx)
}

// showRecord shows what was decided when the recovery that was not completed began:
// the survivors may be built over by now.
func (l *localRecovery) showRecord(r *recoveryRecord) error {
	l.g.note("a recovery that was begun at %s from %s was not completed: without --dry-run the same command goes on", when(r.Began), r.Decision.Chosen)
	l.plan, l.members = r.Decision, r.Members
	return orUnproven(l.plan, l.g.printRecovery(l.report(), l.intent()), l.g.unchanged())
}

// parseSurvivors reads --local.
func parseSurvivors(local []string) ([]recovery.Survivor, error) {
	var all []recovery.Survivor
	for _, text := range local {
		name, dirs, ok := strings.Cut(text, "=")
		dir, wal, _ := strings.Cut(dirs, ":")
		if !ok || name == "" || dir == "" {
			return nil, usageError{fmt.Errorf("--local %s: want member=dir, or member=dir:wal-dir where the log lies in a directory of its own", text)}
		}
		if slices.ContainsFunc(all, func(s recovery.Survivor) bool { return s.Name == name }) {
			return nil, usageError{fmt.Errorf("--local %s: %s is named twice; give a second directory a name of its own", text, name)}
		}
		all = append(all, recovery.Survivor{Name: name, DataDir: dir, WALDir: wal})
	}
	return all, nil
}

// openRepositories opens those that can be opened: the members may do without the
// others, and the plan says so.
func (l *localRecovery) openRepositories(ctx context.Context) error {
	if len(l.o.repo.urls) == 0 {
		return nil
	}
	all, err := l.o.repo.openSinks(ctx, l.g)
	if err != nil {
		return err
	}
	for _, sink := range all {
		repo, err := repository.Open(ctx, sink)
		if err != nil {
			l.away = append(l.away, recovery.Unread{Repository: sink.String(), Reason: err.Error()})
			if err := sink.Close(); err != nil {
				return err
			}
			continue
		}
		l.repos = append(l.repos, repo)
	}
	return nil
}

func (l *localRecovery) close() error {
	var errs []error
	for _, r := range l.repos {
		errs = append(errs, r.Sink().Close())
	}
	return errors.Join(errs...)
}

// outlook looks whether the new members could be built here, before anybody is
// asked and before hours of replay. What stands in the way is the error.
func (l *localRecovery) outlook(ctx context.Context) (*restore.Readiness, error) {
	if !l.plan.Fence.Enough {
		return nil, usageError{fmt.Errorf("nothing is recovered: %s", l.plan.Fence.Why)}
	}
	image := l.prospect()
	if l.o.toSnapshot != "" {
		if err := outside(l.o.toSnapshot, l.survivors); err != nil {
			return nil, err
		}
		plan, err := restore.NewSnapshotFilePlan(ctx, l.snapshotRequest(image))
		if err != nil {
			return nil, err
		}
		systems, err := plan.Check(ctx)
		return &restore.Readiness{FileSystems: systems}, err
	}
	plan := l.shared
	if plan == nil {
		var err error
		if plan, err = restore.NewPlan(ctx, l.request(image)); err != nil {
			return nil, err
		}
	}
	ready, err := plan.Check(ctx, l.host())
	if err == nil && plan.NeedsOnly() && l.o.name == "" && !l.o.dryRun {
		err = usageError{errors.New("the members share one directory, and all of them are to be built here: put {name} into --data-dir, and into --wal-dir, or give --name with the member of this host")}
	}
	if err == nil {
		err = keepsOut(plan, l.o.name, l.survivors)
	}
	if err == nil {
		err = l.o.start.check(ctx, plan, l.o.name)
	}
	return ready, err
}

// host is how a plan is carried out here.
func (l *localRecovery) host() restore.ExecOptions {
	return restore.ExecOptions{Only: l.o.name, SetAside: l.o.req.SetAside, Owner: l.o.req.Owner, Logger: l.g.logger()}
}

// orUnproven are the errors of a recovery that was done or planned, or, where there
// are none, that the outcome is unproven.
func orUnproven(p *recovery.Plan, errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if p == nil || p.Proven || p.Chosen == "" {
		return nil
	}
	return fmt.Errorf("%w: %s", errUnproven, p.Why)
}

// question is what is asked before anything is built.
func (l *localRecovery) question() question {
	what := fmt.Sprintf("Build %s on this machine from %s?", strings.Join(l.here(), ", "), l.plan.Chosen)
	if l.o.toSnapshot != "" {
		what = fmt.Sprintf("Write %s from %s?", l.o.toSnapshot, l.plan.Chosen)
	}
	return question{text: what, typed: l.typed()}
}

// typed is what has to be typed where the outcome is unproven: without a cluster
// file the cluster's name is its ID, or what was chosen where not even that is
// known.
func (l *localRecovery) typed() string {
	switch {
	case l.plan.Proven:
		return ""
	case l.plan.ClusterID == 0:
		return l.plan.Chosen
	}
	return l.plan.ClusterID.String()
}

// here are the members that this host builds.
func (l *localRecovery) here() []string {
	if l.o.name != "" {
		return []string{l.o.name}
	}
	var all []string
	if l.shared != nil {
		for _, m := range l.shared.Members {
			all = append(all, m.Name)
		}
		return all
	}
	for _, m := range l.members {
		all = append(all, m.Name)
	}
	return all
}

// began is the time of a decision, as records have it.
func began() time.Time { return time.Now().UTC().Truncate(time.Second) }
