package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/store/safedir"
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
func (l *localRecovery) absolute() []sources.Survivor {
	var all []sources.Survivor
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
	req := sources.RebuildRequest{
		Source: *l.plan.Candidate(l.plan.Chosen).Source, Target: target, Places: where,
		Repositories: l.repos, Identities: l.identities, ScratchDir: opts.ScratchDir, Replay: opts,
	}
	image, err := sources.Rebuild(ctx, req)
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
func (l *localRecovery) stillIdle(where map[string]sources.Directories) error {
	for _, s := range l.survivors {
		if err := restore.CheckMemberIdle(where[s.Name].DataDir, where[s.Name].WALDir); err != nil {
			return fmt.Errorf("%s was started meanwhile: %w\n%s", s.Name, err, replaceOne(s.Name))
		}
	}
	return nil
}

// notWritten makes sure that no survivor took writes since a recovery that is gone
// on with was decided: they would not be in what was decided.
func (l *localRecovery) notWritten(where map[string]sources.Directories) error {
	if l.began.IsZero() {
		return nil
	}
	for _, s := range l.survivors {
		dir := cmp.Or(where[s.Name].WALDir, filepath.Join(where[s.Name].DataDir, "member", "wal"))
		names, err := safedir.Names(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, name := range names {
			if filepath.Ext(name) != ".wal" {
				continue
			}
			info, err := safedir.Stat(filepath.Join(dir, name))
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
			failed = append(failed, sources.Unread{Repository: d.Repository, Reason: d.Failed})
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

// recoveryRecord is what a recovery without agents writes down before it changes
// anything, and removes when all is done: where it was killed, the same command goes
// on from it, though the survivors' own directories may be built over by then.
type recoveryRecord struct {
	Format int `json:"format"`
	// Asked tells whether a command is the same one: see asked.
	Asked     string              `json:"asked"`
	Began     time.Time           `json:"began"`
	Survivors []sources.Survivor  `json:"survivors"`
	Target    walreplay.Target    `json:"target"`
	Decision  *sources.Plan       `json:"decision"`
	Members   []sources.NewMember `json:"members"`
	Compared  *sources.Comparison `json:"cross_check,omitempty"`
	Plan      *restore.Plan       `json:"-"`
	Stored    json.RawMessage     `json:"plan"` // as restore.ParsePlan reads it
	path      string
}

const recoveryRecordFormat = 1

// recordPath is where the record lies: in the scratch folder that was asked for, or
// above the new data directories.
func (o *recoverOptions) recordPath() (string, error) {
	template, err := filepath.Abs(o.req.DataDir)
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(template)
	for strings.Contains(dir, "{name}") {
		dir = filepath.Dir(dir)
	}
	rest, err := filepath.Rel(dir, template)
	if err != nil {
		return "", err
	}
	if o.point.scratchDir != "" {
		dir = o.point.scratchDir
	}
	name := strings.NewReplacer("{name}", "NAME", "/", "-").Replace(rest)
	if o.name != "" {
		name += "-of-" + o.name
	}
	return filepath.Join(dir, ".requorum-recover-"+name+".json"), nil
}

// asked is the same for two commands that ask for the same.
func (o *recoverOptions) asked() (string, error) {
	data, err := json.Marshal([]any{
		o.local, placeNames(o.repo.urls), o.source, o.declareDead, o.replace, o.members, o.point.asked(),
		o.req.InitialCluster, o.req.ClusterToken, o.learners, o.req.DataDir, o.req.WALDir, o.name, o.plan, o.bump, o.req.TargetVersion, o.req.Engine,
	})
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), err
}

// readRecord reads the record of a recovery that was not completed; nil where there
// is none.
func (o *recoverOptions) readRecord(asked string) (*recoveryRecord, error) {
	if o.toSnapshot != "" {
		return nil, nil
	}
	path, err := o.recordPath()
	if err != nil {
		return nil, err
	}
	data, err := safedir.ReadOwn(path, sinks.SmallFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &recoveryRecord{path: path}
	if err := json.Unmarshal(data, r); err != nil || r.Format != recoveryRecordFormat || r.Decision == nil {
		return nil, fmt.Errorf("%s is the record of a recovery that was not completed, and cannot be read (%w): use the version of requorum that began it, or remove the file to begin anew", path, errors.Join(err, fmt.Errorf("format %d", r.Format)))
	}
	if r.Plan, err = restore.ParsePlan(r.Stored); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if begun, err := r.begun(); err != nil || !begun {
		return nil, err // nothing was changed: what was decided then binds nobody
	}
	if asked != r.Asked {
		return nil, usageError{fmt.Errorf("a recovery that was begun at %s from %s was not completed, and other options were given to it: give the same ones to go on, or remove %s to begin anew", when(r.Began), r.Decision.Chosen, path)}
	}
	return r, nil
}

// begun tells whether anything was changed since the record was written. Where
// nothing was, the survivors are as they were, or newer than what was decided.
func (r *recoveryRecord) begun() (bool, error) {
	for _, s := range r.Survivors {
		switch _, err := safedir.Lstat(filepath.Join(s.DataDir, "member")); {
		case errors.Is(err, fs.ErrNotExist):
			return true, nil // it may be on its way
		case err != nil:
			return false, err
		}
	}
	for _, m := range r.Plan.Members {
		begun, err := r.Plan.Begun(m)
		if err != nil {
			return false, fmt.Errorf("look how far plan %s got with %s: %w", r.Plan.ID, m.Name, err)
		}
		if begun {
			return true, nil
		}
	}
	return false, nil
}

// write makes the record durable, before anything is changed.
func (r *recoveryRecord) write() (err error) {
	if r.Stored, err = r.Plan.Marshal(); err != nil {
		return err
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	dir := filepath.Dir(r.path)
	if err := safedir.MkdirAll(dir); err != nil {
		return err
	}
	temporary := r.path + ".tmp"
	// Of a command that was killed: what lies there is not written to.
	if err := safedir.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := safedir.Create(temporary)
	if err != nil {
		return fmt.Errorf("write down what was decided, before anything is changed: %w: give --scratch-dir a folder that can be written to", err)
	}
	_, err = f.Write(append(data, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := safedir.Rename(temporary, r.path); err != nil {
		return err
	}
	return safedir.Sync(dir)
}

// remove ends the record: all is done.
func (r *recoveryRecord) remove() error {
	return errors.Join(safedir.Remove(r.path), safedir.Sync(filepath.Dir(r.path)))
}

// places are where the survivors' data lies now. Where an earlier run of the plan,
// which may be nil, was killed while it built over one, that is among what it set
// aside: view is a folder for links to it, of the caller.
func places(survivors []sources.Survivor, plan *restore.Plan, view string) (map[string]sources.Directories, error) {
	all := map[string]sources.Directories{}
	for _, s := range survivors {
		place := sources.Directories{DataDir: s.DataDir, WALDir: s.WALDir}
		if plan != nil {
			for _, m := range plan.Members {
				if !sameFolder(m.DataDir, s.DataDir) {
					continue
				}
				displaced, err := plan.Displaced(m)
				if err == nil {
					place, err = aside(place, displaced, filepath.Join(view, fmt.Sprintf("survivor-%d", len(all))))
				}
				if err != nil {
					return nil, fmt.Errorf("look for the data of %s that was set aside: %w", s.Name, err)
				}
			}
		}
		all[s.Name] = place
	}
	return all, nil
}

// left refuses data directories in which a restore was begun: what the old member
// left is elsewhere, and a decision without it could lose what it holds.
func left(survivors []sources.Survivor) error {
	for _, s := range survivors {
		plan, before, err := restore.Incomplete(s.DataDir, s.WALDir)
		if err != nil {
			return fmt.Errorf("the data directory of %s: %w", s.Name, err)
		}
		if plan == nil {
			continue
		}
		text := fmt.Sprintf("%s holds a member that plan %s of %s began to build and did not complete, not what %s left. Give the same command as then to complete it", s.DataDir, plan.ID, when(plan.CreatedAt), s.Name)
		if before.Member != "" {
			text += fmt.Sprintf("; or, to begin anew, put back what it set aside: move %[1]s away, and then %[2]s to %[1]s", filepath.Join(s.DataDir, "member"), before.Member)
		}
		if before.Log != "" {
			text += fmt.Sprintf(", and the files in %s back to %s", before.Log, s.WALDir)
		}
		return usageError{errors.New(text)}
	}
	return nil
}

// aside is a place of links to what was set aside.
func aside(p sources.Directories, d restore.Displaced, view string) (sources.Directories, error) {
	if d.Member != "" {
		if err := safedir.MkdirAll(view); err != nil {
			return p, err
		}
		if err := safedir.Symlink(d.Member, filepath.Join(view, "member")); err != nil {
			return p, err
		}
		p.DataDir = view
	}
	if d.Log == "" || p.WALDir == "" {
		return p, nil
	}
	// Its files may have been moved in part.
	log := filepath.Join(view, "log")
	if err := safedir.MkdirAll(log); err != nil {
		return p, err
	}
	for _, dir := range []string{d.Log, p.WALDir} {
		if d.Member != "" && dir == p.WALDir {
			break // what lies there now is the new member's
		}
		list, err := safedir.ReadDir(dir)
		if err != nil {
			return p, err
		}
		for _, e := range list {
			if !strings.HasSuffix(e.Name(), ".wal") || strings.HasPrefix(e.Name(), "ffffffffffffffff-") {
				continue
			}
			if err := safedir.Symlink(filepath.Join(dir, e.Name()), filepath.Join(log, e.Name())); err != nil && !errors.Is(err, fs.ErrExist) {
				return p, err
			}
		}
	}
	p.WALDir = log
	return p, nil
}

func sameFolder(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}
