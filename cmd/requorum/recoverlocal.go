package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

// localRecovery is a recovery without agents: what it was told, what it found, and
// what was decided.
type localRecovery struct {
	g     *globals
	o     *recoverOptions
	asked string // the options, before anything was filled in

	survivors  []sources.Survivor
	repos      []*repository.Repository
	away       []sources.Unread // repositories that could not be opened
	identities []age.Identity

	findings *sources.Findings
	plan     *sources.Plan
	members  []sources.NewMember
	// began is when what is gone on with was decided; zero for a new recovery.
	began time.Time
	// compared is what the rebuilt state was held against; nil before that.
	compared *sources.Comparison
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
func parseSurvivors(local []string) ([]sources.Survivor, error) {
	var all []sources.Survivor
	for _, text := range local {
		name, dirs, ok := strings.Cut(text, "=")
		dir, wal, _ := strings.Cut(dirs, ":")
		if !ok || name == "" || dir == "" {
			return nil, usageError{fmt.Errorf("--local %s: want member=dir, or member=dir:wal-dir where the log lies in a directory of its own", text)}
		}
		if slices.ContainsFunc(all, func(s sources.Survivor) bool { return s.Name == name }) {
			return nil, usageError{fmt.Errorf("--local %s: %s is named twice; give a second directory a name of its own", text, name)}
		}
		all = append(all, sources.Survivor{Name: name, DataDir: dir, WALDir: wal})
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
			l.away = append(l.away, sources.Unread{Repository: sink.String(), Reason: err.Error()})
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
func orUnproven(p *sources.Plan, errs ...error) error {
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

// prospect is a database that is not rebuilt yet: a plan that is only shown is made
// from it.
type prospect struct {
	name  string
	size  int64
	facts snapshot.Facts
}

func (p prospect) Name() string                                  { return p.name }
func (p prospect) Size() int64                                   { return p.size }
func (p prospect) Facts(context.Context) (snapshot.Facts, error) { return p.facts, nil }

// Open has nothing to read.
func (p prospect) Open(context.Context) (io.ReadCloser, error) {
	return nil, errors.New(p.name + " is not rebuilt yet")
}

// keepsOut refuses new members that would be built inside of what is left of the old
// ones: that is only read. In the place of one they are allowed, where --set-aside
// moves it away whole.
func keepsOut(plan *restore.Plan, only string, survivors []sources.Survivor) error {
	for _, m := range plan.Members {
		if only != "" && m.Name != only {
			continue
		}
		for _, dir := range []string{m.DataDir, m.WALDir} {
			if dir == "" {
				continue
			}
			if err := outside(dir, survivors); err != nil {
				return fmt.Errorf("member %s: %w", m.Name, err)
			}
		}
		for _, s := range survivors {
			if within(s.DataDir, filepath.Join(m.DataDir, "member")) {
				return usageError{fmt.Errorf("member %s: the data of %s lies inside of %s, where it would be built: name another directory", m.Name, s.Name, filepath.Join(m.DataDir, "member"))}
			}
		}
	}
	return nil
}

// outside refuses a path inside of a survivor's directory.
func outside(path string, survivors []sources.Survivor) error {
	for _, s := range survivors {
		for _, dir := range []string{s.DataDir, s.WALDir} {
			if dir != "" && within(path, dir) && !sameFolder(path, dir) {
				return usageError{fmt.Errorf("%s lies inside of %s, the data of %s, which is only read: name another place", path, dir, s.Name)}
			}
		}
	}
	return nil
}

// within tells whether a path lies below a folder, wherever symbolic links lead. What
// is not there yet counts as well.
func within(path, folder string) bool {
	rest, err := filepath.Rel(realPath(folder), realPath(path))
	return err == nil && rest != "." && rest != ".." && !strings.HasPrefix(rest, "../")
}

// realPath is a path without symbolic links, as far as it exists.
func realPath(path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	rest := ""
	for at := path; ; at = filepath.Dir(at) {
		if found, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(found, rest)
		}
		if at == filepath.Dir(at) {
			return path
		}
		rest = filepath.Join(filepath.Base(at), rest)
	}
}
