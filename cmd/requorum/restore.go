package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/snapshot"
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
}

func (o *restoreOptions) addFlags(f *pflag.FlagSet) {
	o.buildOptions.addFlags(f)
	o.repo.addFlags(f, false)
	o.identities.addFlags(f)
	addTimelineFlag(f, &o.timeline)
	f.StringVar(&o.file, "file", "", "restore from this `file` instead of a repository: of 'etcdctl snapshot save', or a stopped member's db")
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
members' usual flags. --start starts it with the bundled etcd.
` + exitHelp,
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
			return g.restore(cmd.Context(), &o, args)
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

// repositoryFlags are of no use where the source is no repository.
var repositoryFlags = []string{"repo", "timeline", "identity", "passphrase-file", "limit-upload", "limit-download", "retry-for"}

// check refuses options that do not go together, before anything is read.
func (o *restoreOptions) check(g *globals, args []string) (err error) {
	if o.file != "" && len(args) > 0 {
		return usageError{errors.New("--file stands alone: without an ID")}
	}
	if o.fromDir != "" && len(args) > 0 {
		return usageError{errors.New("--from-data-dir stands alone: without an ID")}
	}
	if o.file != "" {
		err = g.unfit("with --file", slices.Concat(repositoryFlags, targetFlags, replayFlags, []string{"at-nearest", "from-data-dir", "wal-dir-source"})...)
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
		return g.unfit("with --to-snapshot", slices.Concat(memberFlags, []string{"name", "plan"})...)
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
	host := restore.ExecOptions{Only: o.name, SetAside: o.req.SetAside, Owner: o.req.Owner}
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
		ready, err := plan.Check(ctx, host)
		return errors.Join(g.printPlan(plan, ready, src.pointReport()), err)
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
	result.Phases = append(src.phases(), result.Phases...)
	report := restoreReport{Restore: result}
	src.recordTimeline(ctx, result, &report)
	if !o.start.start {
		return g.printRestore(report)
	}
	return g.startRestored(ctx, &o.buildOptions, result.Plan, func(endpoints []string) error {
		report.Endpoints = endpoints
		return g.printRestore(report)
	})
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
	if _, err := plan.Check(ctx, host); err != nil {
		return err
	}
	if err := src.checkTimeline(plan); err != nil {
		return err
	}
	return o.start.check(ctx, plan, o.name)
}

// checkAlone refuses to build one of several members by a point that may be
// another one on the next host, when the archive has grown: members with
// different contents are corrupt.
func (o *restoreOptions) checkAlone(src *restoreSource) error {
	if o.name == "" || o.plan != "" || src.repo == nil || src.point.AsIs || src.point.Target.Kind == walreplay.AtIndex || !strings.Contains(o.req.InitialCluster, ",") {
		return nil
	}
	return usageError{fmt.Errorf("building only member %s without a shared plan needs a point that is the same on every host, and %s need not be, as the archive grows: give its raft index (--index; --dry-run tells it) on every host alike, or write a plan (--plan) on one host and read it on all",
		o.name, src.point.Target)}
}

// newPlan plans, and writes nothing.
func (o *restoreOptions) newPlan(ctx context.Context, src *restoreSource) (*restore.Plan, error) {
	req := o.req
	req.Image, req.Repository, req.BackupID, req.HighestKnownRevision = src.image, src.url(), src.backupID(), src.highest
	req.Target, req.Notes = src.target, src.notes
	req.SetAside, req.Owner = false, nil // this host's, and given to Execute: a plan would take them to all
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
	return plan, o.writePlan(plan)
}
