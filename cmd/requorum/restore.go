package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/shell"
	"github.com/requorum/requorum/walreplay"
)

type restoreOptions struct {
	buildOptions
	repo       repoFlags
	identities identityFlags
	timeline   string
	file       string
	fromDir    string
	fromWAL    string
	record     bool

	planWritten bool // what was done so far
	built       bool
}

func (o *restoreOptions) addFlags(f *pflag.FlagSet) {
	o.buildOptions.addFlags(f)
	o.repo.addFlags(f, false)
	o.identities.addFlags(f)
	f.StringVar(&o.name, "name", "", "build only this member; --plan then makes all hosts build the same cluster")
	addTimelineFlag(f, &o.timeline)
	o.repo.keys.addRollbackFlag(f)
	f.BoolVar(&o.record, "record", false, "open the new cluster's timeline in the repository now; otherwise the first agent beside it does once it serves")
	f.StringVar(&o.file, "file", "", "restore from this `file` of 'etcdctl snapshot save', or a stopped member's db, also if compressed (gzip, zip, zstd)")
	parsedVar(f, &o.req.AuthOff, "auth", "keep", "keep, or off: without authentication, for when root's password is lost; users and roles stay", parseAuth)
	f.StringVar(&o.fromDir, "from-data-dir", "", "restore from a stopped member's data `directory`, its database and its log, instead of a repository")
	f.StringVar(&o.fromWAL, "wal-dir-source", "", "with --from-data-dir: that member's WAL `directory`, if it is a separate one")
}

func newRestoreCommand(g *globals) *cobra.Command {
	var o restoreOptions
	cmd := &cobra.Command{
		Use:   "restore [ID|latest] --repo URL --initial-cluster m1=URL,… --data-dir 'DIR/{name}'",
		Short: "Build a new cluster as the old one was at a point in time",
		Long: `Build the data directories of a new etcd cluster from a full snapshot and the
archived log after it: of all members at once, or of the one that --name names,
on each host with the same --plan.

Without an ID the end of the archived log is restored, or the point that --at,
--revision, --index, --before or --before-prefix names, from the newest full
snapshot before it. With an ID and no point it is exactly that backup, with both
the replay begins there. A point that the archive does not cover is refused, and
the nearest ones that it covers are named.

Every byte is checked on the way, and nothing that a member would start from
exists until everything is on disk. What lies in a data directory is refused, or
with --set-aside moved aside within it; nothing is deleted. A run that was
killed needs no cleaning: run the same command again.

The new cluster has a new ID, so members of the old one cannot join it. Its
revision is bumped and the past marked compacted, so that watches and caches of
clients start anew instead of missing changes; --bump-revision off keeps it, for
when nothing was lost.

The result starts with any etcd from the backup's own version on, at the
members' usual flags. --start starts it with the bundled etcd, with certificates
made for the run: other users of this machine cannot read it, and the flags for
etcdctl are shown. Several members then need https:// peer URLs.`,
		Example: `  requorum restore --repo file:///var/backups/etcd \
      --initial-cluster m1=http://10.0.0.1:2380,m2=http://10.0.0.2:2380,m3=http://10.0.0.3:2380 \
      --data-dir '/var/lib/etcd-{name}' --dry-run
  requorum restore --plan plan.json --name m2 …                # on each host
  requorum restore --repo URL --before /registry/deployments/default/web …
  requorum restore --repo URL --at '2026-01-02 15:04:05' …
  requorum restore --from-data-dir /var/lib/etcd …             # a survivor, no backup
  requorum restore --file snapshot.db --initial-cluster … --data-dir …
  requorum restore --repo URL --to-snapshot snapshot.db        # for k3s, RKE2, Talos`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(g, args); err != nil {
				return err
			}
			err := g.restore(cmd.Context(), &o, args)
			return ifInterrupted(cmd.Context(), err, o.changed(err))
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

// repositoryFlags are of no use where the source is no repository.
var repositoryFlags = []string{"repo", "timeline", "record", "identity", "limit-upload", "limit-download", "retry-for", "signing-key", "trust", "revoked-keys", "insecure-unsigned", "allow-rollback"}

// check refuses options that do not go together, before anything is read.
func (o *restoreOptions) check(g *globals, args []string) (err error) {
	switch {
	case o.file != "" && len(args) > 0:
		return usageError{errors.New("--file stands alone: without an ID")}
	case o.fromDir != "" && len(args) > 0:
		return usageError{errors.New("--from-data-dir stands alone: without an ID")}
	case strings.Contains(o.file, "://"):
		return usageError{fmt.Errorf("--file %s: want the path of a file, not a URL", o.file)}
	}
	if o.file != "" {
		// Not --scratch-dir: a compressed file is unpacked there.
		err = g.unfit("with --file", slices.Concat(repositoryFlags, targetFlags, replayFlags[1:], []string{"at-nearest", "from-data-dir", "wal-dir-source"})...)
	}
	if o.fromDir != "" {
		err = errors.Join(err, g.unfit("with --from-data-dir: to join a survivor with an archive, use requorum recover", repositoryFlags...))
	} else {
		err = errors.Join(err, g.unfit("without --from-data-dir", "wal-dir-source"))
	}
	if len(args) > 0 && args[0] != snapshot.Latest && len(o.point.given()) == 0 {
		err = errors.Join(err, g.unfit("with an ID alone, which is restored as it is", replayFlags...))
	}
	if bad := o.buildOptions.check(g); bad != nil || err != nil {
		return errors.Join(err, bad)
	}
	if o.toSnapshot != "" {
		err = g.unfit("with --to-snapshot", slices.Concat(memberFlags, []string{"name", "plan", "record"})...)
		o.name, o.plan, o.record = "", "", false // what the environment has of them is for members
	}
	return err
}

func (g *globals) restore(ctx context.Context, o *restoreOptions, args []string) (err error) {
	planned, err := o.readPlan()
	if err != nil {
		return err
	}
	src, err := g.openSource(ctx, o, args, planned)
	if err != nil {
		return err
	}
	defer func() {
		if err == nil && src.history != nil && src.history.IsUnshown() {
			err = fmt.Errorf("%w: the notes give the reason; the result may lack acknowledged writes, or be a state that no cluster had. The database alone, without the log: requorum restore --file %s", errUnproven, shell.Quote(filepath.Join(o.fromDir, "member", "snap", "db")))
		}
		err = errors.Join(err, src.close())
	}()
	if o.dryRun && !src.needsRebuild(o, planned) {
		if err := src.probe(ctx); err != nil {
			return src.nameOlder(ctx, g, err)
		}
	}
	host, meter := o.host(g)
	if src.needsRebuild(o, planned) {
		// What is refused is refused before hours of replay.
		if err := o.checkAhead(ctx, src, planned, host); err != nil {
			return err
		}
		if err := src.rebuild(ctx, g, o, planned); err != nil {
			return err
		}
	}
	plan := planned
	if plan == nil {
		if plan, err = o.makePlan(ctx, src); err != nil {
			return err
		}
	}
	if o.dryRun {
		// People look while the cluster serves; a plan is carried out by another command.
		if host.Later = []error{restore.ErrInUse}; o.plan != "" {
			host.Later = append(host.Later, restore.ErrExists)
		}
		point := src.pointReport()
		if point != nil {
			var uncounted error
			if point.GivenUp, uncounted = src.history.GivenUp(ctx, point.Index); uncounted != nil {
				g.note("not all that is given up is counted: %v", uncounted)
			}
		}
		ready, err := plan.Check(ctx, host)
		err = errors.Join(g.printPlan(plan, ready, point), err)
		g.printPlanFile(o)
		return err
	}
	if err := src.checkTimeline(plan); err != nil {
		return err
	}
	if err := o.start.check(ctx, plan, o.req.Owner, o.name); err != nil {
		return err
	}
	result, err := restore.Execute(ctx, plan, src.image, host)
	meter.finish()
	if err != nil {
		return src.nameOlder(ctx, g, err)
	}
	o.built = true
	if src.rebuilt != nil {
		result.Phases = slices.Concat(src.rebuilt.Phases, result.Phases)
	}
	if err := src.closeRebuilt(); err != nil {
		return fmt.Errorf("the restore is done; its scratch folder could not be removed: %w", err)
	}
	if err := o.sweep(result.Plan); err != nil {
		return err
	}
	if plan.Path != "" {
		return g.printSnapshotFile(result)
	}
	report := restoreReport{Restore: result}
	if o.record {
		err = src.recordTimeline(ctx, result.Plan, &report)
	} else if t, ok := result.Plan.Timeline(); ok {
		report.Unrecorded = t.Parent.Timeline.String()
	}
	if !o.start.start || err != nil {
		err = errors.Join(g.printRestore(report), err)
		g.printPlanFile(o)
		return err
	}
	return g.startRestored(ctx, &o.buildOptions, result.Plan, func(endpoints []string) error {
		report.Endpoints = endpoints
		return g.printRestore(report)
	})
}

// changed is what a restore that was interrupted has changed: what lies in a data
// directory stays as it was until all is built, and is put back after that.
func (o *restoreOptions) changed(err error) string {
	switch {
	case o.built && o.toSnapshot != "":
		return o.toSnapshot + " is written"
	case o.built:
		return "the members are built, and their etcd was stopped"
	case errors.Is(err, restore.ErrUnfinished):
		return err.Error()
	case o.planWritten:
		return fmt.Sprintf("only the plan %s was written", o.plan)
	}
	return "nothing was changed"
}

// checkAhead does all that can be checked before the log is replayed.
func (o *restoreOptions) checkAhead(ctx context.Context, src *restoreSource, plan *restore.Plan, host restore.ExecOptions) (err error) {
	if plan == nil {
		if err := o.checkAlone(src); err != nil {
			return err
		}
		if plan, err = o.newPlan(ctx, src); err != nil {
			return err
		}
	}
	if o.dryRun {
		return nil // it shows what it finds, after the plan
	}
	host.Foreseen = true
	if _, err := plan.Check(ctx, host); err != nil {
		return err
	}
	if err := src.checkTimeline(plan); err != nil {
		return err
	}
	return o.start.check(ctx, plan, o.req.Owner, o.name)
}

// checkAlone refuses to build one of several members by a point that may be
// another one on the next host, when the archive has grown: members with
// different contents are corrupt.
func (o *restoreOptions) checkAlone(src *restoreSource) error {
	if o.name == "" || o.plan != "" || src.repo == nil || src.point.AsIs || src.point.Target.Kind == walreplay.AtIndex || !strings.Contains(o.req.InitialCluster, ",") {
		return nil
	}
	return usageError{fmt.Errorf("--name %s without --plan: %s can be another point on the next host, as the archive grows: give its raft index (--index; --dry-run prints it) on every host, or write a plan (--plan) on one host and read it on all",
		o.name, src.point.Target)}
}

// newPlan plans, and writes nothing.
func (o *restoreOptions) newPlan(ctx context.Context, src *restoreSource) (*restore.Plan, error) {
	req := o.forAll(o.toSnapshot)
	req.Image, req.HighestKnownRevision, req.Target, req.Notes = src.image, src.highest, src.target, src.notes
	if src.repo != nil {
		req.Repository = src.repo.String()
	}
	if src.manifest != nil {
		req.BackupID, req.Timeline = src.manifest.ID, src.manifest.Timeline
	}
	if o.plan == "" {
		req.Only = o.name
	}
	facts, err := src.image.Facts(ctx)
	if err != nil {
		return nil, err
	}
	req.Learners = o.chooseLearners(facts.Members)
	return restore.NewPlan(ctx, req)
}

// makePlan plans, and writes the plan where that was asked for.
func (o *restoreOptions) makePlan(ctx context.Context, src *restoreSource) (*restore.Plan, error) {
	plan, err := o.newPlan(ctx, src)
	if err != nil || o.plan == "" {
		return plan, err
	}
	if err := o.writePlan(plan); err != nil {
		return nil, err
	}
	o.planWritten = true
	return plan, nil
}

// restoreReport is the JSON form of `requorum restore`.
type restoreReport struct {
	Restore *restore.Result `json:"restore"`
	// Timeline is the new cluster's in the repository, with --record.
	Timeline string `json:"timeline,omitempty"`
	// Unrecorded is the timeline that the new cluster goes on from, where the
	// repository does not say so.
	Unrecorded string `json:"parent_timeline,omitempty"`
	// Endpoints are the client URLs with --start.
	Endpoints []string `json:"endpoints,omitempty"`
}

// planReport is the JSON form of `requorum restore --dry-run`.
type planReport struct {
	Plan *restore.Plan      `json:"plan"`
	Host *restore.Readiness `json:"host,omitempty"`
	// FileSystems take the place of Host with --to-snapshot.
	FileSystems []restore.FileSystem `json:"file_systems,omitempty"`
	// Point is what the target came to; nil where no point was asked for.
	Point *pointReport `json:"point,omitempty"`
}

// pointReport is what a target came to.
type pointReport struct {
	Target    string `json:"target"`
	Base      string `json:"base"`
	BaseIndex uint64 `json:"base_index"`
	// Entries are those to replay; with Rebuilt they were replayed, in a scratch
	// folder, and Index and Revision are exact.
	Entries       uint64 `json:"entries"`
	Index         uint64 `json:"index"`
	Revision      int64  `json:"revision"`
	RevisionExact bool   `json:"revision_exact"`
	Time          string `json:"time,omitempty"`
	Rebuilt       bool   `json:"rebuilt"`
	// Found is what --before or --before-prefix found.
	Found *walreplay.Found `json:"found,omitempty"`
	// GivenUp are the writes after the point, those among them that Found names.
	GivenUp *walreplay.GivenUp `json:"given_up,omitempty"`
}

// pointReport is nil where the source is an image as it is.
func (s *restoreSource) pointReport() *pointReport {
	p := s.point
	if p == nil {
		return nil
	}
	r := &pointReport{
		Target: p.Target.String(), Base: p.Base.Name, BaseIndex: p.Base.Index(),
		Entries: p.Entries(), Index: p.Last, Revision: p.Revision, RevisionExact: !p.AtLeast, Time: p.Time, Found: p.Found,
	}
	if s.rebuilt != nil && s.rebuilt.Recipe != nil {
		c := s.rebuilt.Recipe
		r.Entries, r.Index, r.Revision, r.RevisionExact, r.Time, r.Rebuilt = c.Entries, c.Index, c.Revision, true, c.Time, true
	}
	return r
}

func (g *globals) printPlan(p *restore.Plan, host *restore.Readiness, point *pointReport) error {
	if g.output == "json" {
		r := planReport{Plan: p, Host: host, Point: point}
		if p.Path != "" {
			r.Host, r.FileSystems = nil, host.FileSystems
		}
		return g.printJSON(r)
	}
	f, least := p.Source.Facts, ""
	if point != nil && !point.RevisionExact {
		least = "at least "
	}
	switch {
	case p.Path != "":
		g.printf("Would write %s at revision %s%d to %s\n", p.Source.Name, least, f.Revision, p.Path)
	case point != nil && !point.Rebuilt && point.Entries > 0:
		g.printf("Would restore %s\n  database of up to about %s\n", p.Source.Name, size(p.Source.Size))
	default:
		g.printf("Would restore %s\n  revision %d, raft index %d, database %s\n", p.Source.Name, f.Revision, f.RaftIndex, size(p.Source.Size))
	}
	if point != nil {
		g.printf("Target %s: raft index %d, revision %s%d", point.Target, point.Index, least, point.Revision)
		if point.Time != "" {
			g.printf(", written %s", point.Time)
		}
		g.printf("\n  from %s at raft index %d and %d entries of the log\n", point.Base, point.BaseIndex, point.Entries)
		if point.Rebuilt {
			fmt.Fprintln(g.stdout, "  (replayed in a scratch folder to find out, and removed)")
		}
		taken := ""
		if point.Found != nil {
			taken = ", among them those that it takes back"
		}
		printGivenUp(g.stdout, point.GivenUp, taken)
	}
	if p.Path == "" {
		g.printf("into cluster %s (token %s)\n", p.ClusterID, p.ClusterToken)
		printMembers(g.stdout, p.Members)
	}
	printPlannedBump(g.stdout, p.Bump, point)
	if host != nil && p.Path == "" {
		printReadiness(g.stdout, "", host)
	}
	printNotes(g.stdout, p.Notes)
	return g.unchanged()
}

// printGivenUp prints which writes a point lacks, the most frequent ones first, and what
// else is to be said of them.
func printGivenUp(w io.Writer, up *walreplay.GivenUp, taken string) {
	if up == nil || up.Writes == 0 {
		return
	}
	rest := int64(0)
	printf(w, "All writes after the point are given up, %d in all%s:\n", up.Writes, taken)
	shown := up.Groups[:min(len(up.Groups), 10)]
	for _, one := range shown {
		printf(w, "  %8d  %s\n", one.Writes, one)
		rest += one.Writes
	}
	if rest = up.Writes - rest; rest > 0 {
		printf(w, "  %8d  and %d more kinds or namespaces (--output json has them)\n", rest, len(up.Groups)-len(shown))
	}
}

// printReadiness prints what was found where members are to be built.
func printReadiness(w io.Writer, mark string, host *restore.Readiness) {
	for _, m := range host.Members {
		for _, path := range m.SetAside {
			printf(w, "%s%s: %s would be set aside\n", mark, m.Name, path)
		}
		if m.Replaces {
			printf(w, "%s%s: an unfinished restore would be replaced\n", mark, m.Name)
		}
	}
	for _, fs := range host.FileSystems {
		printf(w, "%sabout %s are needed below %s, free are %s\n", mark, size(fs.Need), fs.Path, size(fs.Free))
	}
	for _, n := range host.Notes {
		printf(w, "%snote: %s\n", mark, n)
	}
	if host.Completes != nil {
		printf(w, "%san earlier run of the same request (plan %s) would be completed\n", mark, host.Completes.ID)
	}
}

// printPlanFile says what the plan that was written is for: a host that plans anew makes
// another cluster.
func (g *globals) printPlanFile(o *restoreOptions) {
	if o.planWritten && g.output != "json" {
		g.printf("The plan is in %s: every host builds its member with a copy of it: %s --name NAME\n", o.plan, shell.Quote("requorum", "restore", "--plan", o.plan))
	}
}

func printMembers(w io.Writer, members []restore.Member) {
	out := newTable(w, "  MEMBER", "ID", "PEER URLS", "ROLE", "DATA DIRECTORY")
	for _, m := range members {
		out.row("  "+m.Name, m.ID.String(), strings.Join(m.PeerURLs, ","), roleOf(m.Learner), m.DataDir)
	}
	out.flush() //nolint:errcheck // the user's own terminal or pipe
}

func roleOf(learner bool) string { return map[bool]string{true: "learner", false: "voter"}[learner] }

func printBump(w io.Writer, b *restore.Bump) {
	if b != nil {
		printf(w, "revision %d is bumped by %d to %d and all before is marked compacted: %s\n", b.From, b.Amount, b.NewRevision, b.Reason)
	}
}

// printPlannedBump leaves the numbers out where only the replay shows them.
func printPlannedBump(w io.Writer, b *restore.Bump, point *pointReport) {
	if b == nil || point == nil || point.RevisionExact {
		printBump(w, b)
		return
	}
	fmt.Fprintln(w, "the revision is bumped and all before is marked compacted; from which one to which the replay shows")
}

func printNotes(w io.Writer, notes []string) {
	for _, n := range notes {
		printf(w, "note: %s\n", n)
	}
}

func (g *globals) printRestore(r restoreReport) error {
	if g.output == "json" {
		return g.printJSON(r)
	}
	printBuilt(g.stdout, r.Restore)
	printStart(g.stdout, r.Restore)
	switch {
	case r.Timeline != "":
		g.printf("The repository has the new cluster as timeline %s.\n", r.Timeline)
	case r.Unrecorded != "":
		g.printf("The repository was not changed. An agent beside the new members records their timeline once they serve; without agents give the first backup --parent %s.\n", r.Unrecorded)
	}
	return nil
}

// printBuilt says which members were built.
func printBuilt(w io.Writer, r *restore.Result) {
	p := r.Plan
	if r.CompletedEarlier {
		printf(w, "An earlier run of the same request, of %s, had everything in place; it is completed.\n", when(p.CreatedAt))
	}
	printf(w, "Restored %s at revision %d into cluster %s in %s\n", p.Source.Name, r.RevisionBefore, p.ClusterID, took(r.Took()))
	printAsked(w, p.Source)
	for _, m := range r.Members {
		for _, path := range m.SetAside {
			printf(w, "%s: set aside %s\n", m.Name, path)
		}
	}
	printChanged(w, r)
}

// printChanged says what in the database is not as it was.
func printChanged(w io.Writer, r *restore.Result) {
	printBump(w, r.Plan.Bump)
	for _, a := range r.AlarmsCleared {
		printf(w, "alarm %s of member %s was cleared\n", a.Type, a.MemberID)
	}
	if r.DowngradeEnded != "" {
		printf(w, "a downgrade to %s was under way; the new cluster is not downgrading\n", r.DowngradeEnded)
	}
	printNotes(w, r.Plan.Notes)
}

// printAsked holds what was asked for against what it came to: a time is as exact
// as the observations around it.
func printAsked(w io.Writer, s restore.Source) {
	if s.Target == "" || s.Recipe == nil {
		return
	}
	written := ""
	if s.Recipe.Time != "" {
		written = ", the last entry written " + s.Recipe.Time
	}
	printf(w, "  for %s: raft index %d%s\n", s.Target, s.Recipe.Index, written)
}

// printStart says how to start what was built.
func printStart(w io.Writer, r *restore.Result) {
	fmt.Fprintln(w, "Start the members with their usual listen addresses and certificates, and:")
	for _, m := range r.Members {
		printf(w, "  %s\n", shell.Quote(append([]string{"etcd"}, m.Flags...)...))
	}
}

// printSnapshotFile says what was written.
func (g *globals) printSnapshotFile(r *restore.Result) error {
	if g.output == "json" {
		return g.printJSON(r)
	}
	g.printf("Wrote %s (%s, SHA-256 of the database %s)\n", r.Path, size(r.Size), r.DatabaseSHA256)
	printAsked(g.stdout, r.Plan.Source)
	printChanged(g.stdout, r)
	return nil
}
