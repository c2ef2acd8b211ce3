package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"filippo.io/age"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/store/shell"
	"github.com/requorum/requorum/walreplay"
)

// localRecovery is a recovery without agents: what it was asked, what it found, and
// what was decided.
type localRecovery struct {
	g     *globals
	o     *recoverOptions
	asked string // the fingerprint of the options, before anything was filled in

	survivors  []sources.Survivor
	read       map[string]string // sums over the survivors' logs, see logSums
	repos      *recovery.Repositories
	identities []age.Identity

	findings *sources.Findings
	plan     *sources.Plan
	members  []sources.NewMember
	// compared is what the rebuilt state was held against; nil before that.
	compared *sources.Comparison
	givenUp  *walreplay.GivenUp // by the plan, as far as it is known
}

// openLocal parses the options that name what is left, and opens the repositories, which
// the caller closes.
func (g *globals) openLocal(ctx context.Context, o *recoverOptions) (_ *localRecovery, err error) {
	l := &localRecovery{g: g, o: o}
	if l.survivors, err = parseSurvivors(o.local); err != nil {
		return nil, err
	}
	if l.asked, err = l.fingerprint(); err != nil {
		return nil, err
	}
	if l.identities, err = o.identities.parse(); err != nil {
		return nil, err
	}
	if l.repos, err = o.repo.openOthers(ctx, g); err != nil {
		return nil, err
	}
	if len(o.repo.urls) > 0 {
		g.noteUnchecked(o.repo.keys.checks())
	}
	return l, nil
}

// recoverLocal recovers on this machine alone.
func (g *globals) recoverLocal(ctx context.Context, o *recoverOptions) (err error) {
	l, err := g.openLocal(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.repos.Close()) }()
	switch earlier, err := l.built(ctx); {
	case err != nil:
		return err
	case earlier != nil:
		return l.complete(ctx, earlier)
	}
	if err := left(l.survivors); err != nil {
		return err
	}
	if l.read, err = logSums(l.survivors); err != nil {
		return err
	}
	if err := l.survey(ctx); err != nil {
		return err
	}
	if err := l.shown(l.chooseMembers()); err != nil {
		return err
	}
	if l.givenUp, err = l.plan.GivenUp(ctx, l.findings, l.rebuildRequest()); err != nil {
		g.note("not all that is given up is counted: %v", err)
	}
	ready, blocker := l.preflight(ctx)
	report := l.report()
	report.Host = ready
	if o.dryRun {
		return orUnproven(l.plan, g.printRecovery(report, l.intent()), g.unchanged(), blocker)
	}
	if g.output != "json" {
		if err := g.printRecovery(report, l.intent()); err != nil {
			return err
		}
		fmt.Fprintln(g.stdout)
	}
	if blocker != nil {
		return blocker
	}
	if err := g.confirm(ctx, o, l.question()); err != nil {
		return err
	}
	return l.execute(ctx)
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

// preflight looks whether the new members could be built here, before anybody is
// asked and before hours of replay. What stands in the way is the error.
func (l *localRecovery) preflight(ctx context.Context) (*restore.Readiness, error) {
	if !l.plan.Fence.Enough {
		return nil, usageError{fmt.Errorf("nothing is recovered: %s", l.plan.Fence.Why)}
	}
	image := l.preview()
	if err := l.onlyRead(l.o.toSnapshot, l.o.plan, l.o.point.replay.ScratchDir); err != nil {
		return nil, err
	}
	if l.o.plan != "" { // members that other hosts build are refused here, too
		if _, err := restore.NewPlan(ctx, l.request(image, "")); err != nil {
			return nil, err
		}
	}
	plan, err := restore.NewPlan(ctx, l.request(image, l.o.toSnapshot))
	if err == nil {
		err = l.keepsOut(plan)
	}
	if err != nil {
		return nil, err
	}
	if plan.NeedsOnly() {
		return nil, usageError{errors.New("the members share one directory, and all of them are to be built here: put {name} into --data-dir, and into --wal-dir")}
	}
	host, _ := l.o.host(l.g)
	ready, err := plan.Check(ctx, host)
	if err == nil {
		err = l.o.start.check(ctx, plan, l.o.req.Owner, "")
	}
	return ready, err
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
func (l *localRecovery) question() recovery.Question {
	what := fmt.Sprintf("Build %s on this machine from %s?", strings.Join(sources.NamesOf(l.members), ", "), l.plan.Chosen)
	if l.o.toSnapshot != "" {
		what = fmt.Sprintf("Write %s from %s?", l.o.toSnapshot, l.plan.Chosen)
	}
	q := recovery.Question{Text: what}
	// Without a cluster file the cluster's name is its ID, or what was chosen where not
	// even that is known.
	switch {
	case l.plan.Proven:
	case l.plan.ClusterID == 0:
		q.Type = l.plan.Chosen
	default:
		q.Type = l.plan.ClusterID.String()
	}
	return q
}

// keepsOut refuses new members in the place of the old ones, inside of it or around it:
// what the old ones left is only read.
func (l *localRecovery) keepsOut(plan *restore.Plan) error {
	for _, m := range plan.Members {
		for _, dir := range []string{m.DataDir, m.WALDir} {
			if name, old := l.survivorAt(dir, true); old != "" {
				return usageError{fmt.Errorf(`member %s would be built in %s, where the data of %s is (%s), which is only read. Give another --data-dir (and --wal-dir).
To build in the old members' own places, write one file here, and then build on each host, where the old data is kept beside the new:
  requorum recover … --to-snapshot state.db --plan plan.json
  %s
Or give a cluster file, and all hosts are worked on (requorum recover --config)`, m.Name, dir, name, old, shell.Quote("requorum", "restore", "--plan", "plan.json", "--file", "state.db", "--name", m.Name, "--set-aside"))}
			}
		}
	}
	return nil
}

// onlyRead refuses files and folders inside of what the old members left.
func (l *localRecovery) onlyRead(paths ...string) error {
	for _, path := range paths {
		if name, old := l.survivorAt(path, false); old != "" {
			return usageError{fmt.Errorf("%s lies inside of %s, the data of %s, which is only read: name another place", path, old, name)}
		}
	}
	return nil
}

// survivorAt is the survivor, and the folder of it, that a path leads into; or also,
// with around, that lies below it.
func (l *localRecovery) survivorAt(path string, around bool) (name, folder string) {
	if path == "" {
		return "", ""
	}
	for _, s := range l.survivors {
		member := filepath.Join(s.DataDir, "member")
		// Any of them may be a link, or a mount.
		for _, dir := range []string{s.DataDir, member, filepath.Join(member, "snap"), filepath.Join(member, "wal"), s.WALDir} {
			if dir != "" && (inside(path, dir) || around && inside(dir, path)) {
				return s.Name, dir
			}
		}
	}
	return "", ""
}

// inside reports whether a path is a folder or lies below it, wherever symbolic links
// and mounts lead. What is not there yet counts as well.
func inside(path, folder string) bool {
	of, err := os.Stat(folder)
	if err != nil {
		return false // nothing is in what is not there
	}
	at := existing(absolute(path))
	if real, err := filepath.EvalSymlinks(at); err == nil {
		at = real
	}
	for ; ; at = filepath.Dir(at) {
		if here, err := os.Stat(at); err == nil && os.SameFile(here, of) {
			return true
		}
		if at == filepath.Dir(at) {
			return false
		}
	}
}

// existing returns a directory, or the nearest one above it that exists.
func existing(dir string) string {
	for {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}
