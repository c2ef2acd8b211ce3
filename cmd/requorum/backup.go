package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/archive"
)

type backupOptions struct {
	conn connFlags
	repo repoFlags
	codecFlags
	req     snapshot.Request
	dataDir string
	walDir  string
	labels  []string
	dryRun  bool
}

func (o *backupOptions) addFlags(f *pflag.FlagSet) {
	o.repo.addFlags(f, false)
	o.conn.addFlags(f)
	o.codecFlags.addFlags(f)
	f.StringVar(&o.dataDir, "data-dir", "", "the data `directory` of a member that runs on this machine, whose database is read from its file")
	f.StringVar(&o.walDir, "wal-dir", "", "with --data-dir: that member's WAL `directory`, if it is a separate one")
	f.StringArrayVar(&o.labels, "label", nil, "keep this `key=value` with the backup; may be given more than once")
	f.BoolVar(&o.req.HashKV, "hashkv", false, "also keep etcd's HashKV at the backup's revision; the member pauses for it, about 1 s for 1.4 GB")
	f.BoolVar(&o.req.ReadBack, "read-back", false, "read the whole backup back from the repository and compare it before it counts")
	durationVar(f, &o.req.Timeout, "timeout", snapshot.DefaultTimeout, time.Millisecond, "give up after this time: a long stream makes the member's database grow")
	durationVar(f, &o.conn.cfg.StallTimeout, "stall-timeout", 30*time.Second, time.Millisecond, "give up on a member that sends nothing, or hardly anything, for this time")
	parsedVar(f, &o.req.Parent, "parent", "", "the `timeline` that this cluster was restored from, for its first backup where no agent recorded that", func(s string) (*repository.Branch, error) {
		t, err := repository.ParseTimelineID(s)
		return &repository.Branch{Timeline: t}, err
	})
	f.BoolVar(&o.req.NewLineage, "new-lineage", false, "store the backup although the repository's backups are of another cluster, which this one was not restored from")
	f.BoolVar(&o.dryRun, "dry-run", false, "only say which member would be read and where the backup would go")
}

func newBackupCommand(g *globals) *cobra.Command {
	var o backupOptions
	cmd := &cobra.Command{
		Use:   "backup --repo URL [--endpoints URL,…]",
		Short: "Take one full snapshot of an etcd cluster now",
		Long: `Take one full snapshot of an etcd cluster (3.5 to 3.7) and store it in a
repository, without a temporary file.

The snapshot holds every write that was acknowledged before the command began:
the cluster's quorum is asked first, a member that is behind or cut off is not
read, and the stored bytes are held against that point before the backup counts.
A learner or a follower is read before the leader.

With --data-dir the member of that directory is read first, the leader too: its
database comes out of its file, which takes about half of the time of a stream and
etcd has less to do. A snapshot stream, which is hardly read, makes the member keep
the pages meanwhile. Where that cannot be, the snapshot is streamed, and a line
says why.

A repository belongs to one cluster, and to those that were restored or recovered
from it. Another cluster's backup is refused, unless --new-lineage allows it.

A backup that fails or is interrupted leaves nothing that looks like one.

For a second copy, let the bucket replicate itself, or copy the directory: a
repository is plain files.

With authentication on, etcd gives snapshots to users with the root role only.`,
		Example: `  requorum backup --repo file:///var/backups/etcd
  requorum backup --endpoints https://10.0.0.1:2379,https://10.0.0.2:2379 \
      --cacert ca.crt --cert client.crt --key client.key \
      --repo 's3://backups/etcd?region=eu-central-1' --recipient age1…`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ifInterrupted(cmd.Context(), g.backup(cmd.Context(), &o), "no backup was stored")
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (g *globals) backup(ctx context.Context, o *backupOptions) (err error) {
	if err := o.check(g); err != nil {
		return err
	}
	if err := o.repo.keys.mayWrite(); err != nil {
		return err
	}
	req := o.req
	if req.Sink, err = o.repo.openSink(ctx, g); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, req.Sink.Close()) }()
	if req.Client, err = o.conn.connect(ctx, g); err != nil {
		return err
	}
	defer req.Client.Close() //nolint:errcheck // nothing is under way any more
	if o.dataDir != "" {
		if req.Local, err = walreplay.LocalMember(o.dataDir, o.walDir); err != nil {
			g.note("the snapshot is streamed, since %s does not show which member it belongs to: %v", o.dataDir, err)
		}
	}
	if o.dryRun {
		return g.backupPlan(ctx, req)
	}
	g.noteAbilities(ctx, req.Sink)
	meter := g.newMeter()
	req.Progress = func(p snapshot.Progress) { meter.update(p.Phase, p.Done, p.Total) }
	result, err := snapshot.Take(ctx, req)
	meter.finish()
	if err != nil {
		return err
	}
	g.noteEnded(ctx, req.Sink, result.Manifest)
	return errors.Join(g.printBackup(req.Sink, result), checkStartedOver(ctx, req.Sink))
}

// checkStartedOver reports after a backup that the cluster began again without archived
// writes: its backups may be all that anybody reads.
func checkStartedOver(ctx context.Context, s sinks.Sink) error {
	repo, err := repository.Open(ctx, s)
	if err != nil {
		return err
	}
	c, err := walreplay.ReadInventory(ctx, repo)
	if err == nil {
		err = c.CheckStartedOver(ctx)
	}
	if err != nil {
		return fmt.Errorf("the backup is stored: %w", err)
	}
	return nil
}

// noteEnded says that the cluster that was backed up should not be
// serving any more: a recovery has put another in its place.
func (g *globals) noteEnded(ctx context.Context, s sinks.Sink, m *snapshot.Manifest) {
	var ended []repository.Superseded
	repo, err := repository.Open(ctx, s)
	if err == nil {
		ended, err = readEnded(ctx, repo, []repository.Timeline{{ID: m.Timeline}})
	}
	if err != nil {
		g.note("backup %s is stored; whether its timeline %s has ended is not known: %v", m.ID, m.Timeline, err)
	}
	if how := howEnded(ended, m.Timeline); how != "" {
		g.note("%s: this backup is of timeline %s, which has ended: %s. Stop the members of that cluster; restore takes this backup only where it is named", s, m.Timeline, how)
	}
}

// check checks the options before anything is touched, and completes the request.
func (o *backupOptions) check(g *globals) (err error) {
	if len(o.repo.urls) > 1 {
		return usageError{fmt.Errorf("backup stores in one repository, and %d are given: name one with --repo; for a second copy, replicate the bucket or copy the directory, since a repository is plain files", len(o.repo.urls))}
	}
	o.req.Tool, o.req.Reached, o.req.Logger = "requorum "+version, archive.Reached, g.logger()
	if o.walDir != "" && o.dataDir == "" {
		return usageError{errors.New("--wal-dir goes with --data-dir")}
	}
	if o.req.Codec, err = o.options(); err != nil {
		return err
	}
	if o.req.Parent != nil && o.req.NewLineage {
		return usageError{errors.New("--parent and --new-lineage exclude each other")}
	}
	o.req.Labels = map[string]string{}
	for _, l := range o.labels {
		k, v, ok := strings.Cut(l, "=")
		if !ok || k == "" {
			return usageError{fmt.Errorf("--label %s: want key=value", l)}
		}
		o.req.Labels[k] = v
	}
	if err := snapshot.ValidLabels(o.req.Labels); err != nil {
		return usageError{fmt.Errorf("--label: %w", err)}
	}
	return nil
}

// noteAbilities says what a repository's place cannot promise.
func (g *globals) noteAbilities(ctx context.Context, s sinks.Sink) {
	abilities, err := s.Abilities(ctx)
	if err != nil {
		return // the first write fails for the same reason, and says so
	}
	for _, note := range abilities.Notes {
		g.note("%s: %s", s, note)
	}
}

// backupPlan says what backup would do.
func (g *globals) backupPlan(ctx context.Context, req snapshot.Request) error {
	survey, err := req.Client.Survey(ctx)
	if err != nil {
		return err
	}
	barrier, err := req.Client.Barrier(ctx, survey)
	if err != nil {
		return err
	}
	if err := req.CheckLineage(ctx, survey); err != nil {
		return err
	}
	report := backupPlanReport{ClusterID: snapshot.ID(survey.ClusterID), Repository: req.Sink.String()}
	for _, m := range req.Candidates(survey, barrier) {
		report.Members = append(report.Members, candidateReport{Name: m.Name, ID: snapshot.ID(m.MemberID), Endpoint: m.Endpoint,
			IsLeader: m.IsLeader, IsLearner: m.IsLearner, Bytes: m.DBSize, Behind: max(0, int64(barrier.Index)-int64(m.AppliedIndex))})
	}
	if len(report.Members) > 0 && req.Local.Is(uint64(report.ClusterID), uint64(report.Members[0].ID)) {
		report.File = req.Local.Database
	}
	if g.output == "json" {
		return g.printJSON(report)
	}
	g.printf("Cluster %s would be read from the first of these that gives a snapshot:\n", report.ClusterID)
	out := newTable(g.stdout, "MEMBER", "ENDPOINT", "ROLE", "DATABASE", "ENTRIES BEHIND")
	for _, m := range report.Members {
		out.row(m.Name, m.Endpoint, m.role(), size(m.Bytes), fmt.Sprint(m.Behind))
	}
	if err := out.flush(); err != nil {
		return err
	}
	if file := report.File; file != "" {
		g.printf("from its file %s, ", file)
	}
	g.printf("and stored in %s. Nothing was changed.\n", report.Repository)
	return nil
}

// backupPlanReport is the JSON form of `requorum backup --dry-run`.
type backupPlanReport struct {
	ClusterID  snapshot.ID       `json:"cluster_id"`
	Members    []candidateReport `json:"members"`
	File       string            `json:"file,omitempty"` // that the first member's database is read from
	Repository string            `json:"repository"`
}

type candidateReport struct {
	Name      string      `json:"name"`
	ID        snapshot.ID `json:"id"`
	Endpoint  string      `json:"endpoint"`
	IsLeader  bool        `json:"is_leader"`
	IsLearner bool        `json:"is_learner"`
	Bytes     int64       `json:"bytes"`
	Behind    int64       `json:"behind"` // entries
}

func (c candidateReport) role() string {
	switch {
	case c.IsLeader:
		return "leader"
	case c.IsLearner:
		return "learner"
	}
	return "follower"
}

// backupReport is the JSON form of `requorum backup`.
type backupReport struct {
	Repository  string             `json:"repository"`
	NewTimeline bool               `json:"new_timeline"`
	Backup      *snapshot.Manifest `json:"backup"`
	// Skipped are the members that were tried before the one that was read.
	Skipped []skippedMember `json:"skipped_members"`
	// Streamed says why the member's file was not read, with --data-dir.
	Streamed string `json:"streamed,omitempty"`
}

type skippedMember struct {
	Endpoint string `json:"endpoint"`
	Member   string `json:"member,omitempty"`
	Error    string `json:"error"`
}

func (g *globals) printBackup(s sinks.Sink, r *snapshot.Result) error {
	if r.Damage != nil {
		g.note("%v; the backups are not affected", r.Damage)
	}
	report := backupReport{Repository: s.String(), NewTimeline: r.NewTimeline, Backup: r.Manifest, Skipped: []skippedMember{}, Streamed: r.Streamed}
	for _, f := range r.Failures {
		report.Skipped = append(report.Skipped, skippedMember{f.Endpoint, f.Member, f.Err.Error()})
	}
	if g.output == "json" {
		return g.printJSON(report)
	}
	if report.Streamed != "" {
		g.printf("The snapshot was streamed, and not read from the member's file: %s\n", oneLine(report.Streamed))
	}
	for _, f := range report.Skipped {
		g.printf("Member %s at %s was not read: %s\n", f.Member, f.Endpoint, oneLine(f.Error))
	}
	m := report.Backup
	if report.NewTimeline {
		g.printf("%s: opened timeline %s\n", report.Repository, m.Timeline)
	}
	rate := ""
	if d := m.Finished.Sub(m.Started); d > 0 {
		rate = fmt.Sprintf(" (%s/s)", size(int64(float64(m.Object.RawSize)/d.Seconds())))
	}
	g.printf("%s: backup %s\n  revision %d, raft index %d, from %s %s\n  %s stored as %s in %s%s\n",
		report.Repository, m.ID, m.Facts.Revision, m.Facts.RaftIndex, m.Source.Name, m.Source.Endpoint,
		size(m.Object.RawSize), size(m.Object.StoredSize), took(m.Finished.Sub(m.Started)), rate)
	return nil
}
