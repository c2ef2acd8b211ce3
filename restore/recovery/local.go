// A recovery on this machine, without a cluster file, is the same recovery: each directory of an
// old member is a host in this process, of which data is only read. In place of set-aside, start
// and proof, one restore builds all new members here, in other places, or none of them.
//
// The directories that it builds hold the decision, as the hosts of a cluster file do: by it the
// same command knows what it has built, and completes it.

package recovery

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/restore/recovery/supervisor"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/store/shell"
	"github.com/requorum/requorum/walreplay"
)

// Local says how a recovery on this machine is carried out. Request.Config names the old members'
// directories (LocalConfig), and Asked.Build what is built.
type Local struct {
	// Host are the options of the restore that builds here.
	Host restore.ExecOptions
	// Engine replays the log.
	Engine walreplay.ReplayEngine
	// Scratch returns the directory to replay in; members is the new --initial-cluster.
	Scratch func(members string) (string, error)
	// Writes are further paths that are written to.
	Writes []string
	// Check returns why the result of a plan could not be used here. It may be nil.
	Check func(context.Context, *restore.Plan) error
	// WritePlan writes the plan by which other hosts build their members from the one file
	// that is written here; nil if none do.
	WritePlan func(*restore.Plan) error
}

// LocalConfig is in place of a cluster file. Directories of one member need names of their own.
func LocalConfig(survivors []sources.Survivor) *Config {
	c := &Config{}
	for _, s := range survivors {
		h := HostConfig{Member: s.Name}
		h.Run = "directory"
		h.MemberConfig = supervisor.MemberConfig{Name: s.Name, DataDir: s.DataDir, WALDir: s.WALDir, ServiceConfig: supervisor.ServiceConfig{Kind: supervisor.None}}
		c.Hosts = append(c.Hosts, h)
	}
	return c
}

// runHere recovers on this machine. A report comes with an error too once the members are built.
func (d *coordinator) runHere(ctx context.Context, p *Preview) (*Report, error) {
	result, err := d.builtHere()
	switch {
	case err != nil:
		return nil, err
	case result != nil:
		if result, err = d.completeHere(ctx, result); err != nil {
			return nil, err
		}
		return d.reportHere(ctx, result)
	}
	if err := d.planHere(ctx, p); err != nil {
		return nil, err
	}
	q := d.firstQuestion(p)
	if err := d.reporter.confirm(ctx, q); err != nil {
		return nil, err
	}
	if err := d.decide(p, q.Type != ""); err != nil {
		return nil, err
	}
	if err := d.states(ctx); err != nil {
		return nil, err
	}
	if err := d.stoppedHere(); err != nil {
		return nil, err
	}
	if name, err := d.changedHere(); name != "" || err != nil {
		return nil, errors.Join(err, fmt.Errorf("%s was started and stopped again meanwhile, and its log is not the one that was read. Nothing was changed: run the same command again", name))
	}
	if result, err = d.buildAllHere(ctx); err != nil {
		return nil, err
	}
	return d.reportHere(ctx, result)
}

// previewHere is Preflight on this machine: the error is what Run would refuse.
func (d *coordinator) previewHere(ctx context.Context, p *Preview) error {
	if d.req.Build != nil {
		result, err := d.builtHere()
		if err != nil {
			return err
		}
		if result != nil {
			p.Restore, p.Plan = result, d.decision.Plan
			return nil
		}
	}
	return d.planHere(ctx, p)
}

// planHere surveys and plans. An error is a reason not to begin.
func (d *coordinator) planHere(ctx context.Context, p *Preview) error {
	if err := unfinished(d.cfg.Hosts); err != nil {
		return err
	}
	if err := d.stoppedHere(); err != nil {
		return err
	}
	if err := d.survey(ctx, p); err != nil {
		return err
	}
	if text := d.mixedUp(p.Findings); text != "" {
		return &restore.RequestError{Err: errors.New(text)}
	}
	if d.req.Build == nil {
		return nil
	}
	if !p.Plan.Fence.Enough {
		return &restore.RequestError{Err: fmt.Errorf("nothing is recovered: %s", p.Plan.Fence.Why)}
	}
	var err error
	p.Host, err = d.readyHere(ctx, p)
	return err
}

// mixedUp says which directories are of a cluster that the repositories do not know, or of another
// member than they are named for. --source says that they are meant.
func (d *coordinator) mixedUp(f *sources.Findings) string {
	if d.asked().Source != "" {
		return ""
	}
	for _, s := range f.Survivors {
		if slices.ContainsFunc(s.Findings, func(f sources.Finding) bool { return f.Kind == sources.KindMisnamed }) {
			return fmt.Sprintf("--local %s=%s: that is the directory of member %s, not of %s: give %s; if it is meant, name what to recover from with --source", s.Name, s.DataDir, s.MemberName, s.Name, shell.Quote(s.MemberName+"="+s.DataDir))
		}
	}
	return f.Mixed()
}

// stoppedHere fails if a process runs on one of the directories, or may.
func (d *coordinator) stoppedHere() error {
	for _, h := range d.hosts {
		switch {
		case h.state.Unreachable != "":
			return errors.New(h.state.Unreachable)
		case h.state.Runs:
			return fmt.Errorf(`%s still runs on %s: %s: a recovery reads stopped members only
Ask the cluster whether it still serves (etcdctl endpoint status --cluster). If it does, recover nothing; replace a broken member, one at a time:
  %s
If it does not serve, stop %s and all other members that are left, and run this command again`, h.Member, h.DataDir, h.notStopped, strings.Join(d.replaceOne(Quorum{}), "\n  "), h.Member)
		case !h.state.Stopped:
			return fmt.Errorf("member %s: %s", h.Member, h.notStopped)
		}
	}
	return nil
}

// unfinished refuses directories in which a restore was begun: what the old member left is elsewhere,
// and a decision without it could lose what it holds.
func unfinished(hosts []HostConfig) error {
	for _, h := range hosts {
		plan, err := restore.Incomplete(h.DataDir)
		if err != nil {
			return fmt.Errorf("the data directory of %s: %w", h.Member, err)
		}
		if plan == nil {
			continue
		}
		text := fmt.Sprintf("%[1]s holds a member that plan %[2]s of %[3]s began to build and did not complete, not what %[4]s left. Give the same command as then to complete it; or put back what it set aside: move %[1]s/member away, and then the newest %[1]s/member.set-aside-TIME to %[1]s/member", h.DataDir, plan.ID, plan.CreatedAt.UTC().Format(time.RFC3339), h.Member)
		if h.WALDir != "" {
			text += fmt.Sprintf(", and the files in the newest %[1]s/set-aside-TIME back to %[1]s", h.WALDir)
		}
		return &restore.RequestError{Err: errors.New(text)}
	}
	return nil
}

// membersHere says who the new members are: as it was asked, or else what the old cluster knew.
func (d *coordinator) membersHere(p *Preview, a Asked) (err error) {
	if a.Build == nil || a.Build.Path != "" && d.req.Local.WritePlan == nil {
		return nil
	}
	if a.Build.InitialCluster == "" {
		p.Members, err = p.Plan.NewMembers(a.Change)
	}
	for part := range strings.SplitSeq(a.Build.InitialCluster, ",") {
		name, url, _ := strings.Cut(part, "=")
		i := slices.IndexFunc(p.Members, func(m sources.NewMember) bool { return m.Name == name })
		if part != "" && i < 0 {
			learner := slices.ContainsFunc(p.Plan.Members, func(m snapshot.Member) bool { return m.IsLearner && m.Name == name })
			p.Members, i = append(p.Members, sources.NewMember{Name: name, Old: name, Learner: learner}), len(p.Members)
		}
		if part != "" {
			p.Members[i].PeerURLs = append(p.Members[i].PeerURLs, url)
		}
	}
	for i := range p.Members {
		if m := &p.Members[i]; len(a.Build.Learners) > 0 {
			m.Learner = slices.Contains(a.Build.Learners, m.Name)
		}
	}
	return err
}

// restoreRequest is what a restore is asked for with an image, found or only foreseen: members, or
// the snapshot file at path.
func (d *coordinator) restoreRequest(image snapshot.Image, path string, members []sources.NewMember, p *sources.Plan, bump restore.BumpRequest) restore.Request {
	req := *d.req.Build
	req.Image, req.Path, req.InitialCluster, req.Bump = image, path, cmp.Or(req.InitialCluster, sources.InitialCluster(members)), bump
	if raises(bump) || bump.Mode == restore.BumpOff {
		req.HighestKnownRevision = p.Bump.HighestKnown
	}
	switch {
	case len(req.Learners) == 0:
		req.Learners = sources.Learners(members)
	case slices.Equal(req.Learners, []string{"none"}):
		req.Learners = nil
	}
	return req
}

// readyHere checks whether what is asked could be built here, before anyone is asked and before
// hours of replay.
func (d *coordinator) readyHere(ctx context.Context, p *Preview) (*restore.Readiness, error) {
	image := foreseen(p)
	if d.req.Local.WritePlan != nil { // members that other hosts build are refused here, too
		if _, err := restore.NewPlan(ctx, d.restoreRequest(image, "", p.Members, p.Plan, p.Bump)); err != nil {
			return nil, err
		}
	}
	plan, err := restore.NewPlan(ctx, d.restoreRequest(image, d.req.Build.Path, p.Members, p.Plan, p.Bump))
	if err == nil {
		err = d.keepsOut(plan)
	}
	if err != nil {
		return nil, err
	}
	if plan.NeedsOnly() {
		return nil, &restore.RequestError{Err: errors.New("the members share one directory, and all of them are to be built here: put {name} into --data-dir, and into --wal-dir")}
	}
	ready, err := plan.Check(ctx, d.req.Local.Host)
	if err == nil && d.req.Local.Check != nil {
		err = d.req.Local.Check(ctx, plan)
	}
	return ready, err
}

// foreseen is what would be rebuilt, as far as the survey shows.
func foreseen(p *Preview) snapshot.Image {
	c := p.Plan.Candidate(p.Plan.Chosen)
	image := snapshot.Preview{Title: c.Name, Known: snapshot.Facts{
		Revision: c.Revision.AtLeast, RaftIndex: c.LastIndex, RaftTerm: c.LastTerm, Members: p.Plan.Members,
	}}
	for _, m := range p.Findings.Survivors {
		for _, db := range m.Databases {
			if db.Path == c.Source.Base.Path {
				image.Bytes, image.Known.ClusterVersion, image.Known.StorageVersion = db.Size, db.ClusterVersion, db.StorageVersion
			}
		}
	}
	for _, a := range p.Findings.Archives {
		for _, f := range a.Fulls {
			if f.ID == c.Source.Base.Backup && a.Timeline == c.Source.Base.Timeline {
				image.Bytes = f.Size
			}
		}
	}
	return image
}

// keepsOut refuses new members in the place of the old ones, inside of it or around it, and other
// files inside of it: what the old ones left is only read.
func (d *coordinator) keepsOut(plan *restore.Plan) error {
	for _, m := range plan.Members {
		for _, dir := range []string{m.DataDir, m.WALDir} {
			if name, old := d.directoryAt(dir, true); old != "" {
				return &restore.RequestError{Err: fmt.Errorf(`member %s would be built in %s, where the data of %s is (%s), which is only read. Give another --data-dir (and --wal-dir).
To build in the old members' own places, write one file here, and then build on each host, where the old data is kept beside the new:
  requorum recover … --to-snapshot state.db --plan plan.json
  %s
Or give a cluster file, and all hosts are worked on (requorum recover --config)`, m.Name, dir, name, old, shell.Quote("requorum", "restore", "--plan", "plan.json", "--file", "state.db", "--name", m.Name, "--set-aside"))}
			}
		}
	}
	for _, path := range append([]string{plan.Path}, d.req.Local.Writes...) {
		if name, old := d.directoryAt(path, false); old != "" {
			return &restore.RequestError{Err: fmt.Errorf("%s lies inside of %s, the data of %s, which is only read: name another place", path, old, name)}
		}
	}
	return nil
}

// directoryAt is the old member, and the folder of it, that a path leads into; or also, with around,
// that lies below it.
func (d *coordinator) directoryAt(path string, around bool) (name, folder string) {
	if path == "" {
		return "", ""
	}
	for _, h := range d.cfg.Hosts {
		member := filepath.Join(h.DataDir, "member")
		// Any of them may be a link, or a mount.
		for _, dir := range []string{h.DataDir, member, filepath.Join(member, "snap"), filepath.Join(member, "wal"), h.WALDir} {
			if dir != "" && (leadsInto(path, dir) || around && leadsInto(dir, path)) {
				return h.Member, dir
			}
		}
	}
	return "", ""
}

// leadsInto reports whether a path is a folder or lies below it, wherever symbolic links and mounts
// lead. A path that does not exist yet counts as well.
func leadsInto(path, folder string) bool {
	of, err := os.Stat(folder)
	if err != nil {
		return false // nothing is in a folder that does not exist
	}
	if whole, err := filepath.Abs(path); err == nil {
		path = whole
	}
	for at := path; ; at = filepath.Dir(at) {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			at = real
			if here, err := os.Stat(at); err == nil && os.SameFile(here, of) {
				return true
			}
		}
		if at == filepath.Dir(at) {
			return false
		}
	}
}

// buildAllHere replays what was decided, compares it, and builds all members of it, or writes the one file.
// Killed at any point, the same command begins anew, for the old members' data is as it was.
func (d *coordinator) buildAllHere(ctx context.Context) (_ *restore.Result, err error) {
	dec := d.decision
	scratch, err := d.req.Local.Scratch(cmp.Or(d.req.Build.InitialCluster, dec.initialCluster()))
	if err != nil {
		return nil, err
	}
	plan := dec.rebuildPlan()
	places := d.places()
	peers := plan.Source.ReadPeers(ctx, d.hashOf)
	state, repos, err := d.replay(ctx, &plan, places, scratch)
	if err != nil {
		return nil, fmt.Errorf("rebuild the state from %s: %w\nNothing was changed", dec.Plan.Chosen, err)
	}
	defer func() { err = errors.Join(err, state.Close(), repos.Close()) }()
	image := &host.Image{}
	if image.State, err = host.StateOf(ctx, &plan.Source, state, places[plan.Source.Base.Owner]); err != nil {
		return nil, err
	}
	if err := d.compare(ctx, image, peers); err != nil {
		return nil, err
	}
	dec.branch(&image.State)
	restored, err := restore.NewPlan(ctx, d.restoreRequest(state, d.req.Build.Path, dec.Members, dec.Plan, dec.Bump))
	if err != nil {
		return nil, err
	}
	if restored.Path == "" {
		if restored.Recovery, err = json.Marshal(dec); err != nil {
			return nil, err
		}
	}
	result, err := d.restore(ctx, restored, state)
	if err == nil {
		result.Phases = slices.Concat(state.Phases, result.Phases)
	}
	return result, err
}

func (d *coordinator) restore(ctx context.Context, plan *restore.Plan, image snapshot.Image) (*restore.Result, error) {
	opts := d.req.Local.Host
	opts.Logger = d.logger
	opts.Progress = func(p restore.Phase, done, total int64) {
		d.reporter.progress(PhaseRebuild, "", string(p), done, total)
	}
	return restore.Execute(ctx, plan, image, opts)
}

// reportHere has repositories record what was built, and reports it.
func (d *coordinator) reportHere(ctx context.Context, result *restore.Result) (_ *Report, err error) {
	dec := d.decision
	r := &Report{
		Cluster: d.cfg.Cluster, Run: d.run, Plan: dec.Plan, Proven: dec.Plan.Proven, Lost: dec.Plan.Loss, OldClusterID: dec.Plan.ClusterID, NewClusterID: dec.NewClusterID,
		InitialCluster: dec.initialCluster(), Members: dec.Members, RevisionBefore: result.RevisionBefore, RevisionAfter: result.RevisionAfter,
		Phases: d.phases, Began: dec.Began, Restore: result, Compared: dec.Compared,
	}
	done := "built"
	if result.Path != "" {
		r.Restore, r.Snapshot, done = nil, result, "planned"
		if d.req.Local.WritePlan == nil {
			return r, nil
		}
		if r.HostPlan, err = d.planForHosts(ctx, result); err != nil {
			return nil, err
		}
	}
	if r.Lineage, err = d.lineage(ctx, SupersedeTimelines); err == nil && len(failures(r.Lineage)) > 0 {
		err = snapshot.IncompleteError(fmt.Sprintf("the new members are %s, but a repository does not record that they replace the old cluster: %s. Run the same command again when it can be written", done, strings.Join(failures(r.Lineage), "; ")))
	}
	return r, err
}

// planForHosts plans the members that each host builds from the file, in which the revision is
// raised already.
func (d *coordinator) planForHosts(ctx context.Context, result *restore.Result) (*restore.Plan, error) {
	file, err := snapshot.OpenFile(result.Path)
	if err != nil {
		return nil, err
	}
	dec := d.decision
	plan, err := restore.NewPlan(ctx, d.restoreRequest(file, "", dec.Members, dec.Plan, restore.BumpRequest{Mode: restore.BumpNone}))
	if err == nil {
		plan.Recovery, err = json.Marshal(dec)
	}
	if err != nil {
		return nil, err
	}
	return plan, d.req.Local.WritePlan(plan)
}

// builtHere finds what an earlier run of the same command has built; nil if not all members are in
// place. By now the repositories may know of it, so that the same directories would not be chosen again.
func (d *coordinator) builtHere() (*restore.Result, error) {
	b := d.req.Build
	if b.Path != "" {
		return nil, nil
	}
	pattern := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, "{name}", "*").Replace(b.DataDir)
	folders, err := filepath.Glob(filepath.Join(pattern, "member"))
	if err != nil {
		return nil, err
	}
	for _, folder := range folders {
		dir := filepath.Dir(folder)
		result, _, err := restore.Restored(dir)
		if err != nil || result == nil {
			continue // not ours; if a member is to be built there, the check of the directory says what is wrong
		}
		dec := &decision{}
		if err := json.Unmarshal(result.Plan.Recovery, dec); err != nil || dec.Plan == nil || !d.sameCommand(dec) || !inPlaces(result.Plan, b) {
			continue
		}
		if err := safedir.TrustedFolder(filepath.Dir(dir)); err != nil {
			return nil, fmt.Errorf("%s says that the same command built it, and could have been put there by others: %w", dir, err)
		}
		d.setRun(dec.Run, dec)
		// What an old member took since is not in them.
		if name, err := d.changedHere(); name != "" || err != nil {
			return nil, errors.Join(err, fmt.Errorf("the same command built the members, and the log of %[1]s is not the one that it read then: %[1]s was started since, and what it took would be lost. Give another --data-dir to recover with all that is there now", name))
		}
		return result, nil
	}
	return nil, nil
}

// sameCommand reports whether a decision was made for the same command. A time that was reckoned from
// now was another one then.
func (d *coordinator) sameCommand(dec *decision) bool {
	now := d.req.Asked
	if d.req.TargetFromNow && now.Target.Kind == dec.Asked.Target.Kind {
		now.Target = dec.Asked.Target
	}
	return sameJSON(dec.Asked, now)
}

// completeHere frees members that an earlier run had put in their places.
func (d *coordinator) completeHere(ctx context.Context, result *restore.Result) (*restore.Result, error) {
	_, free, err := restore.Restored(result.Plan.Members[0].DataDir)
	if err != nil || free {
		return result, err
	}
	return d.restore(ctx, result.Plan, nil)
}

// inPlaces reports whether a plan's members are where this command builds them: the plan was in the
// data directory of one of them, whose owner may have changed it.
func inPlaces(plan *restore.Plan, b *restore.Request) bool {
	in := func(template, name string) string { return strings.ReplaceAll(template, "{name}", name) }
	return !slices.ContainsFunc(plan.Members, func(m restore.Member) bool {
		return m.DataDir != in(b.DataDir, m.Name) || m.WALDir != in(b.WALDir, m.Name)
	})
}

// changedHere is an old member that may have taken writes since it was read; empty for none.
// Directories that are gone by now took none.
func (d *coordinator) changedHere() (name string, err error) {
	for _, h := range d.hosts {
		sum, err := logSum(h.DataDir, h.WALDir)
		if err != nil || sum != "" && sum != d.decision.Read[h.Member] {
			return h.Member, err
		}
	}
	return "", nil
}

// logSum is over the names, sizes and times of the files of a log: a member that ran since has changed
// them, whatever the clocks say. It is empty if there is no log.
func logSum(dataDir, walDir string) (string, error) {
	dir := restore.LogDir(dataDir, walDir)
	names, err := safedir.Names(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	var files []host.File
	for _, name := range names {
		if filepath.Ext(name) != ".wal" {
			continue
		}
		info, statErr := safedir.Stat(filepath.Join(dir, name))
		if err = errors.Join(err, statErr); err == nil {
			files = append(files, host.File{Name: name, Size: info.Size(), Time: info.ModTime()})
		}
	}
	return sumOf(files), err
}
