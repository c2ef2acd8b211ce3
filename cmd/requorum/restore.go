package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/snapshot"
)

type restoreOptions struct {
	set        *pflag.FlagSet
	repo       repoFlags
	identities identityFlags
	timeline   string
	file       string

	req        restore.Request
	bump       string
	learners   []string
	owner      string
	name       string
	plan       string
	toSnapshot string
	dryRun     bool
	start      startOptions
}

func (o *restoreOptions) addFlags(f *pflag.FlagSet) {
	o.set = f
	o.repo.addFlags(f, false)
	o.identities.addFlags(f)
	addTimelineFlag(f, &o.timeline)
	f.StringVar(&o.file, "file", "", "restore from this `file` instead of a repository: of 'etcdctl snapshot save', or a stopped member's db")

	f.StringVar(&o.req.InitialCluster, "initial-cluster", "", "the new cluster's members, `name=peer-url,…`")
	f.StringVar(&o.req.DataDir, "data-dir", "", "the members' data directories, with {name} for the member's name")
	f.StringVar(&o.req.WALDir, "wal-dir", "", "the members' WAL directories, with {name}, if they are separate ones")
	f.StringVar(&o.name, "name", "", "build only this member; --plan then makes all hosts build the same cluster")
	f.StringVar(&o.plan, "plan", "", "write the plan to this `file`, or read it if it exists, so that every host builds the same cluster")
	f.StringVar(&o.req.ClusterToken, "initial-cluster-token", "", "the new cluster's token (default: a fresh one)")
	f.StringSliceVar(&o.learners, "learners", nil, "the members that do not vote, or none (default: those that were learners in the backup)")
	f.StringVar(&o.bump, "bump-revision", "auto", "auto: beyond every known revision by 1,000,000,000; off; or an amount")
	f.BoolVar(&o.req.SetAside, "set-aside", false, "where a data directory holds something, move that aside within it instead of refusing")
	f.StringVar(&o.owner, "owner", "", "`user:group` of the new files (default: as found on what they replace)")
	f.StringVar(&o.req.TargetVersion, "target-version", "", "the oldest etcd that must be able to start the result, such as 3.5; refused if it cannot")
	f.StringVar(&o.req.Engine, "engine", restore.EngineRequorum, "what builds the members: requorum, or etcdutl (etcd's own library, slower)")
	f.StringVar(&o.toSnapshot, "to-snapshot", "", "write one plain snapshot `file` instead of data directories, for k3s, RKE2, Talos or etcdutl")
	f.BoolVar(&o.dryRun, "dry-run", false, "only show the plan and check this host")
	o.start.addFlags(f)
}

func newRestoreCommand(g *globals) *cobra.Command {
	var o restoreOptions
	cmd := &cobra.Command{
		Use:   "restore [ID|latest] --repo URL --initial-cluster m1=URL,… --data-dir 'DIR/{name}'",
		Short: "Build a new cluster from a full snapshot",
		Long: `Build the data directories of a new etcd cluster from a full snapshot: of all
members at once, or of the one that --name names, on each host with the same
--plan.

Every byte is checked on the way, and nothing that a member would start from
exists until everything is on disk. What lies in a data directory is refused, or
with --set-aside moved aside within it; nothing is deleted. A run that was
killed needs no cleaning: run the same command again.

The new cluster has a new ID, so members of the old one cannot join it. Its
revision is bumped and the past marked compacted, so that watches and caches of
clients start anew instead of missing changes; --bump-revision off keeps it, for
when nothing was lost.

The result starts with any etcd from the backup's own version on, at the
members' usual flags. --start starts it with the bundled etcd.
` + exitHelp,
		Example: `  requorum restore --repo file:///var/backups/etcd \
      --initial-cluster m1=http://10.0.0.1:2380,m2=http://10.0.0.2:2380,m3=http://10.0.0.3:2380 \
      --data-dir '/var/lib/etcd-{name}' --dry-run
  requorum restore --plan plan.json --name m2 …                # on each host
  requorum restore --file snapshot.db --initial-cluster … --data-dir …
  requorum restore --repo URL --to-snapshot snapshot.db        # for k3s, RKE2, Talos`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(g, args); err != nil {
				return err
			}
			return g.restore(cmd.Context(), &o, args)
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

// check refuses options that do not go together, before anything is read.
func (o *restoreOptions) check(g *globals, args []string) (err error) {
	if o.file != "" && len(args) > 0 {
		return usageError{errors.New("--file stands alone: without an ID")}
	}
	if o.file != "" {
		err = g.unfit("with --file", "repo", "timeline", "identity", "passphrase-file", "limit-upload", "limit-download", "retry-for")
	}
	if !o.start.start {
		err = errors.Join(err, g.unfit("without --start", "client-urls", "start-timeout"))
	}
	if err != nil {
		return err
	}
	switch o.bump {
	case "auto":
	case "off":
		o.req.Bump.Mode = restore.BumpOff
	default:
		o.req.Bump.Mode = restore.BumpBy
		if o.req.Bump.Amount, err = strconv.ParseInt(o.bump, 10, 64); err != nil || o.req.Bump.Amount <= 0 {
			return usageError{fmt.Errorf("--bump-revision %s: want auto, off or an amount above 0", o.bump)}
		}
	}
	if o.owner != "" {
		owner, err := restore.ParseOwner(o.owner)
		if err != nil {
			return usageError{fmt.Errorf("--owner: %w", err)}
		}
		o.req.Owner = &owner
	}
	if o.toSnapshot != "" {
		err := g.unfit("with --to-snapshot", "initial-cluster", "data-dir", "wal-dir", "name", "plan", "initial-cluster-token", "learners", "set-aside", "engine", "start", "client-urls", "start-timeout")
		if err != nil {
			return err
		}
	}
	if o.start.start && o.dryRun {
		return usageError{errors.New("--start and --dry-run exclude each other")}
	}
	return nil
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
	defer func() { err = errors.Join(err, src.close()) }()
	if o.toSnapshot != "" {
		return g.restoreToSnapshot(ctx, o, src)
	}
	plan := planned
	if plan == nil {
		if plan, err = o.makePlan(ctx, src); err != nil {
			return err
		}
	}
	if o.dryRun {
		ready, err := plan.Check(ctx, restore.ExecOptions{Only: o.name, SetAside: o.req.SetAside, Owner: o.req.Owner})
		return errors.Join(g.printPlan(plan, ready), err)
	}
	if err := src.checkTimeline(plan); err != nil {
		return err
	}
	if err := o.start.check(ctx, plan, o.name); err != nil {
		return err
	}
	meter := g.newMeter()
	result, err := restore.Execute(ctx, plan, src.image, restore.ExecOptions{
		Only: o.name, SetAside: o.req.SetAside, Owner: o.req.Owner, Logger: g.logger(),
		Progress: func(p restore.Progress) { meter.update(string(p.Phase), p.Done, p.Total) },
	})
	meter.finish()
	if err != nil {
		return src.nameOlder(ctx, g, err)
	}
	report := restoreReport{Restore: result}
	src.recordTimeline(ctx, result, &report)
	if !o.start.start {
		return g.printRestore(report)
	}
	return g.startRestored(ctx, o, report)
}

// planFlags are decided by a plan that exists.
var planFlags = []string{"initial-cluster", "data-dir", "wal-dir", "initial-cluster-token", "learners", "bump-revision", "target-version", "engine", "timeline"}

// readPlan reads the plan file, if there is one.
func (o *restoreOptions) readPlan() (*restore.Plan, error) {
	if o.plan == "" {
		return nil, nil
	}
	data, err := os.ReadFile(o.plan)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("--plan: %w", err)
	}
	plan, err := restore.ParsePlan(data)
	if err != nil {
		return nil, fmt.Errorf("--plan %s: %w", o.plan, err)
	}
	for _, name := range planFlags {
		if o.set.Changed(name) && !o.agrees(name, plan) {
			return nil, usageError{fmt.Errorf("--%s: the plan in %s has decided otherwise; leave it out, or name a new file to plan anew", name, o.plan)}
		}
	}
	return plan, nil
}

// agrees tells whether an option says what the plan says, as it does when the
// command that made the plan is run again.
func (o *restoreOptions) agrees(name string, p *restore.Plan) bool {
	sorted := func(s string) []string { return slices.Sorted(strings.SplitSeq(s, ",")) }
	same := func(template string, planned func(restore.Member) string) bool {
		return !slices.ContainsFunc(p.Members, func(m restore.Member) bool {
			path, err := filepath.Abs(strings.ReplaceAll(template, "{name}", m.Name))
			return err != nil || path != planned(m)
		})
	}
	switch name {
	case "initial-cluster":
		return slices.Equal(sorted(o.req.InitialCluster), sorted(p.InitialCluster()))
	case "initial-cluster-token":
		return o.req.ClusterToken == p.ClusterToken
	case "data-dir":
		return same(o.req.DataDir, func(m restore.Member) string { return m.DataDir })
	case "wal-dir":
		return same(o.req.WALDir, func(m restore.Member) string { return m.WALDir })
	case "engine":
		return o.req.Engine == p.Engine
	case "target-version":
		return o.req.TargetVersion == p.TargetVersion
	}
	return false
}

// makePlan plans, and writes the plan where that was asked for.
func (o *restoreOptions) makePlan(ctx context.Context, src *restoreSource) (*restore.Plan, error) {
	req := o.req
	req.Image, req.Repository, req.BackupID, req.HighestKnownRevision = src.image, src.url(), src.backupID(), src.highest
	req.SetAside, req.Owner = false, nil // this host's, and given to Execute: a plan would take them to all
	if o.plan == "" {
		req.Only = o.name
	}
	facts, err := src.image.Facts(ctx)
	if err != nil {
		return nil, err
	}
	req.Learners = o.chooseLearners(facts)
	plan, err := restore.NewPlan(ctx, req)
	if err != nil || o.plan == "" {
		return plan, err
	}
	data, err := plan.Marshal()
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(o.plan, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--plan: %w", err)
	}
	_, err = f.Write(data)
	return plan, errors.Join(err, f.Sync(), f.Close())
}

// chooseLearners are those asked for, or else those that the backup has under
// the same names.
func (o *restoreOptions) chooseLearners(facts snapshot.Facts) []string {
	if slices.Equal(o.learners, []string{"none"}) {
		return nil
	}
	if o.set.Changed("learners") {
		return o.learners
	}
	var names []string
	for _, m := range facts.Members {
		if m.IsLearner && strings.Contains(","+o.req.InitialCluster, ","+m.Name+"=") {
			names = append(names, m.Name)
		}
	}
	return names
}
