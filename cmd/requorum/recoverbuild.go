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
	"path/filepath"
	"slices"
	"strings"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/verify/replaying"
	"github.com/requorum/requorum/walreplay"
)

// execute builds what was decided and confirmed. Killed at any point, the same command
// begins anew, for the survivors are as they were; what was built whole it finds.
func (l *localRecovery) execute(ctx context.Context) error {
	image, err := l.rebuild(ctx)
	if err != nil {
		return err
	}
	result, err := l.build(ctx, image)
	if err := errors.Join(err, image.Close()); err != nil {
		return err
	}
	if l.o.toSnapshot != "" {
		return l.snapshotWritten(ctx, result)
	}
	return l.complete(ctx, result)
}

// rebuild replays the chosen state.
func (l *localRecovery) rebuild(ctx context.Context) (*walreplay.Rebuilt, error) {
	for _, s := range l.survivors {
		if err := restore.CheckMemberIdle(s.DataDir, s.WALDir); err != nil {
			return nil, fmt.Errorf("%s was started meanwhile: %w\n%s", s.Name, err, replaceOne(s.Name))
		}
	}
	switch name, err := l.changed(l.read); {
	case err != nil:
		return nil, err
	case name != "":
		return nil, fmt.Errorf("%s was started and stopped again meanwhile, and its log is not the one that was read. Nothing was changed: run the same command again", name)
	}
	meter := l.g.newMeter()
	defer meter.finish()
	opts, err := l.o.replayOptions(l.g, nil, meter)
	if err != nil {
		return nil, err
	}
	opts.CheckBase = replaying.CheckBase
	req := l.rebuildRequest()
	req.Source, req.Replay = *l.plan.Candidate(l.plan.Chosen).Source, opts
	image, err := sources.Rebuild(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("rebuild the state from %s: %w\nNothing was changed", l.plan.Chosen, err)
	}
	if err := l.compare(ctx, req, image); err != nil {
		return nil, errors.Join(err, image.Close())
	}
	return image, nil
}

// rebuildRequest has all that sources are made of here.
func (l *localRecovery) rebuildRequest() sources.RebuildRequest {
	where := map[string]sources.Directories{}
	for _, s := range l.survivors {
		where[s.Name] = sources.Directories{DataDir: s.DataDir, WALDir: s.WALDir}
	}
	return sources.RebuildRequest{Target: l.o.point.target, Places: where, Repositories: l.repos.Opened, Identities: l.identities}
}

// compare compares what was rebuilt with the other survivors' databases: a database of etcd has no
// checksums, so that damage inside a value shows only beside another one. If they differ nothing
// is built, unless what was chosen is what most of them hold, or was asked for by name.
func (l *localRecovery) compare(ctx context.Context, req sources.RebuildRequest, image *walreplay.Rebuilt) error {
	source := req.Source
	if !source.Unguarded() {
		return nil
	}
	hash := func(ctx context.Context, owner string, revision int64) (snapshot.HashKV, error) {
		return sources.HashDatabase(ctx, filepath.Join(req.Places[owner].DataDir, "member", "snap", "db"), revision)
	}
	state, err := host.StateOf(ctx, &source, image, req.Places[source.Base.Owner])
	if err == nil {
		l.compared, err = source.Compare(ctx, state.Hashes, source.ReadPeers(ctx, hash), hash)
	}
	if err != nil {
		return fmt.Errorf("compare what was rebuilt: %w\nNothing was changed", err)
	}
	if !l.compared.Differ() || l.compared.Trusted() || l.plan.Named {
		return nil
	}
	return fmt.Errorf("nothing was changed: %w", l.compared.DifferError())
}

// build builds the members, or writes the one file.
func (l *localRecovery) build(ctx context.Context, image *walreplay.Rebuilt) (*restore.Result, error) {
	plan, err := restore.NewPlan(ctx, l.request(image, l.o.toSnapshot))
	if err != nil {
		return nil, err
	}
	if plan.Path == "" {
		plan.Recovery = l.decided(plan.Source)
	}
	opts, meter := l.o.host(l.g)
	defer meter.finish()
	result, err := restore.Execute(ctx, plan, image, opts)
	if err != nil {
		return nil, err
	}
	result.Phases = slices.Concat(image.Phases, result.Phases)
	return result, nil
}

// complete ends the old timeline in the repositories, prints what was done, and
// starts it where that was asked for.
func (l *localRecovery) complete(ctx context.Context, result *restore.Result) error {
	report := l.report()
	report.Restore = result
	if l.o.dryRun {
		return orUnproven(l.plan, l.g.printRecovered(report), l.g.unchanged())
	}
	report.Repositories = l.succeed(ctx, result.Plan)
	var incomplete error
	if failed := l.unrecorded(report.Repositories); len(failed) > 0 {
		incomplete = snapshot.IncompleteError(fmt.Sprintf("the new members are built, but %s does not record that they replace the old cluster: %s. Run the same command again when it can be written", failed[0].Repository, failed[0].Reason))
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

// unrecorded are the repositories that do not record what takes the old cluster's place.
func (l *localRecovery) unrecorded(done []recovery.TimelinesDone) []sources.Unread {
	failed := slices.Clone(l.repos.Unread)
	for _, d := range done {
		if d.Failed != "" {
			failed = append(failed, sources.Unread{Repository: d.Repository, Reason: d.Failed})
		}
	}
	return failed
}

// decided is what stays with the members that are built.
func (l *localRecovery) decided(source restore.Source) *restore.Recovery {
	return &restore.Recovery{
		Asked: l.asked, From: l.plan.Chosen, OldCluster: l.plan.ClusterID, Branch: l.branch(source), Read: l.read,
		Proven: l.plan.Proven, Why: l.plan.Why, Lost: l.plan.Loss.Text,
	}
}

// snapshotWritten writes the plan for the hosts that restore the file, and prints what was
// done.
func (l *localRecovery) snapshotWritten(ctx context.Context, result *restore.Result) error {
	report := l.report()
	report.Snapshot = result
	var incomplete error
	if l.o.plan != "" {
		members, err := l.planForHosts(ctx, result.Path, result.Plan.Source)
		if err != nil {
			return err
		}
		report.HostPlan, report.PlanFile = members, l.o.plan
		report.Repositories = l.succeed(ctx, members)
		if failed := l.unrecorded(report.Repositories); len(failed) > 0 {
			incomplete = snapshot.IncompleteError(fmt.Sprintf("%s does not know of the new cluster: %s", failed[0].Repository, failed[0].Reason))
		}
	}
	return orUnproven(l.plan, l.g.printRecovered(report), incomplete)
}

// planForHosts plans the members that each host builds from the file, in which the
// revision is raised already. source is what the file was made from.
func (l *localRecovery) planForHosts(ctx context.Context, path string, source restore.Source) (*restore.Plan, error) {
	file, err := snapshot.OpenFile(path)
	if err != nil {
		return nil, err
	}
	req := l.request(file, "")
	req.Bump, req.HighestKnownRevision = restore.BumpRequest{Mode: restore.BumpNone}, 0
	plan, err := restore.NewPlan(ctx, req)
	if err != nil {
		return nil, err
	}
	plan.Recovery = l.decided(source)
	return plan, l.o.writePlan(plan)
}

// succeed opens the new cluster's timeline in each repository, and ends the old
// one's.
func (l *localRecovery) succeed(ctx context.Context, plan *restore.Plan) []recovery.TimelinesDone {
	if len(l.repos.Opened) == 0 {
		return nil
	}
	r := plan.Recovery
	req := recovery.TimelinesRequest{
		Repositories: l.repos.Opened, NewCluster: uint64(plan.ClusterID), OldCluster: uint64(r.OldCluster),
		Branch: r.Branch, Reason: fmt.Sprintf("recovered from %s by plan %s", r.From, plan.ID),
	}
	for _, m := range plan.Members {
		req.Members = append(req.Members, m.Name)
	}
	return recovery.SupersedeTimelines(ctx, req)
}

// branch is where the new history leaves the old one.
func (l *localRecovery) branch(source restore.Source) repository.Branch {
	b := recovery.BranchOf(l.plan, l.findings)
	b.RaftIndex, b.Revision = source.Facts.RaftIndex, source.Facts.Revision
	if r := source.Recipe; r != nil && r.Chain != nil {
		b.Chain = r.Chain.String()
	}
	return b
}

// built finds what an earlier run of the same command has decided and built; nil where it
// had not all members in place. By now the repositories may know of it, so that the same
// survivors would not be chosen again.
func (l *localRecovery) built(ctx context.Context) (*restore.Result, error) {
	if l.o.toSnapshot != "" {
		return nil, nil
	}
	pattern := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, "{name}", "*").Replace(l.o.req.DataDir)
	folders, err := filepath.Glob(filepath.Join(pattern, "member"))
	if err != nil {
		return nil, err
	}
	for _, folder := range folders {
		dir := filepath.Dir(folder)
		result, free, err := restore.Restored(dir)
		if err != nil || result == nil || result.Plan.Recovery == nil || result.Plan.Recovery.Asked != l.asked || !l.builds(result.Plan) {
			continue // not ours; where a member goes there, what is wrong with it is said then
		}
		if err := safedir.TrustedFolder(filepath.Dir(dir)); err != nil {
			return nil, fmt.Errorf("%s says that the same command built it, and could have been put there by others: %w", dir, err)
		}
		r := result.Plan.Recovery
		l.plan = &sources.Plan{Format: sources.PlanFormat, ClusterID: r.OldCluster, Chosen: r.From, Proven: r.Proven, Why: r.Why, Loss: sources.Loss{Text: r.Lost}}
		// What a survivor took since is not in them.
		switch name, err := l.changed(r.Read); {
		case err != nil:
			return nil, err
		case name != "":
			return nil, fmt.Errorf("the same command built the members, and the log of %[1]s is not the one that it read then: %[1]s was started since, and what it took would be lost. Give another --data-dir to recover with all that is there now", name)
		case l.o.dryRun:
			return result, nil
		}
		if !free {
			opts, _ := l.o.host(l.g)
			if result, err = restore.Execute(ctx, result.Plan, nil, opts); err != nil {
				return nil, err
			}
		}
		return result, l.o.sweep(result.Plan)
	}
	return nil, nil
}

// builds reports whether a plan's members go where this command builds them: the plan lay
// in the data directory of one of them, whose owner may have changed it.
func (l *localRecovery) builds(plan *restore.Plan) bool {
	in := func(template, name string) string { return absolute(strings.ReplaceAll(template, "{name}", name)) }
	return !slices.ContainsFunc(plan.Members, func(m restore.Member) bool {
		return m.DataDir != in(l.o.req.DataDir, m.Name) || m.WALDir != in(l.o.req.WALDir, m.Name)
	})
}

// changed is a survivor that may have taken writes since it was read; empty for none.
// Survivors that are gone by now took none.
func (l *localRecovery) changed(read map[string]string) (name string, err error) {
	now, err := logSums(l.survivors)
	for _, s := range l.survivors {
		if sum := now[s.Name]; sum != "" && sum != read[s.Name] {
			return s.Name, err
		}
	}
	return "", err
}

// logSums are over the names, sizes and times of the files of each log that is there: a
// member that ran since has changed them, whatever the clocks say.
func logSums(survivors []sources.Survivor) (map[string]string, error) {
	all := map[string]string{}
	for _, s := range survivors {
		dir := cmp.Or(s.WALDir, filepath.Join(s.DataDir, "member", "wal"))
		names, err := safedir.Names(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		slices.Sort(names)
		sum := sha256.New()
		for _, name := range names {
			if filepath.Ext(name) != ".wal" {
				continue
			}
			info, statErr := safedir.Stat(filepath.Join(dir, name))
			if err = errors.Join(err, statErr); err == nil {
				fmt.Fprintf(sum, "%q %d %d\n", name, info.Size(), info.ModTime().UnixNano())
			}
		}
		if err != nil {
			return nil, fmt.Errorf("the log of %s: %w", s.Name, err)
		}
		all[s.Name] = hex.EncodeToString(sum.Sum(nil))
	}
	return all, nil
}

// fingerprint is the same for two commands that ask for the same, wherever they are started.
func (l *localRecovery) fingerprint() (string, error) {
	o := l.o
	var from []string
	for _, s := range l.survivors {
		from = append(from, s.Name, absolute(s.DataDir), absolute(s.WALDir))
	}
	data, err := json.Marshal([]any{
		from, placeNames(o.repo.urls), o.source, o.declareDead, o.replace, o.members,
		o.point.asked(), o.point.replay.SourceVersion, o.point.replay.MinLeaseTTL, o.point.replay.PersistCheckpoints, o.req.Owner,
		o.toSnapshot, o.req.InitialCluster, o.req.ClusterToken, o.learners, absolute(o.req.DataDir), absolute(o.req.WALDir), o.req.Bump, o.req.TargetVersion, o.req.Engine,
	})
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), err
}

// absolute is a path from the root on; empty where there is none.
func absolute(path string) string {
	if whole, err := filepath.Abs(path); path != "" && err == nil {
		return whole
	}
	return path
}

// left refuses data directories in which a restore was begun: what the old member
// left is elsewhere, and a decision without it could lose what it holds.
func left(survivors []sources.Survivor) error {
	for _, s := range survivors {
		plan, err := restore.Incomplete(s.DataDir)
		if err != nil {
			return fmt.Errorf("the data directory of %s: %w", s.Name, err)
		}
		if plan == nil {
			continue
		}
		text := fmt.Sprintf("%[1]s holds a member that plan %[2]s of %[3]s began to build and did not complete, not what %[4]s left. Give the same command as then to complete it; or put back what it set aside: move %[1]s/member away, and then the newest %[1]s/member.set-aside-TIME to %[1]s/member", s.DataDir, plan.ID, when(plan.CreatedAt), s.Name)
		if s.WALDir != "" {
			text += fmt.Sprintf(", and the files in the newest %[1]s/set-aside-TIME back to %[1]s", s.WALDir)
		}
		return usageError{errors.New(text)}
	}
	return nil
}
