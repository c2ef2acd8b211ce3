package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/serve"
	"github.com/requorum/requorum/verify/verdict"
)

type verifyOptions struct {
	repo       repoFlags
	identities identityFlags

	req                   verify.Request
	file, dataDir, walDir string
	level, require        string
	junit                 string
	noVerdict             bool
}

func (o *verifyOptions) addFlags(f *pflag.FlagSet) {
	o.repo.addFlags(f, false)
	addTimelineFlag(f, &o.req.Timeline)
	o.repo.keys.addRollbackFlag(f)
	f.StringVar(&o.level, "level", string(report.Structure), "how far to prove: "+strings.Join(report.LevelNames(), ", ")+"; each includes those before it")
	f.StringVar(&o.require, "require", "", "end with status 5 where this `level` cannot be proved yet: replay needs two full snapshots of a timeline")
	f.StringVar(&o.file, "from-file", "", "verify this `file` of 'etcdctl snapshot save', or a copy of a member's db, instead of a repository")
	f.StringVar(&o.dataDir, "data-dir", "", "verify this data directory `DIR` of a member: of a stopped one its database and log, of a running one its log; nothing is changed")
	f.StringVar(&o.walDir, "wal-dir", "", "the member's --wal-dir, where it has one of its own")
	f.StringVar(&o.req.ScratchDir, "scratch-dir", "", "unpack databases in this folder (default: the system's folder for temporary files)")
	replayEngineVar(f, &o.req.Engine)
	o.identities.addFlags(f)
	f.StringVar(&o.junit, "junit", "", "also write the report to this `file`, as JUnit XML for a CI system")
	f.BoolVar(&o.noVerdict, "no-verdict", false, "do not write the verdict into the repository")
}

func newVerifyCommand(g *globals) *cobra.Command {
	var o verifyOptions
	cmd := &cobra.Command{
		Use:   "verify [ID|latest|all] --repo URL [--level " + strings.Join(report.LevelNames(), "|") + "]",
		Short: "Prove that a backup can be restored, or find what is wrong with it",
		Long: `Prove backups and the archived log, level by level, and list every fault:

  checksum   every stored byte is what was stored, and nothing is missing
  structure  the database is one that etcd could have written, and its hash is
             the one that the cluster gave
  replay     the snapshot before it and the log give the same database
  drill      a scratch cluster, built from it on this host, serves what it should

Without an ID, or with "latest": the newest backup and the log after it. With an
ID that backup alone, with "all" everything in the repository. The result is
written into the repository as a verdict, for 'requorum list' and other hosts.

Status 3 says that damage was found, status 5 that nothing was found but that
something could not be checked: the report says why. docs/verify.md says which
level finds what.

With --data-dir the report relates what it finds to etcd's own messages. Some messages
need the other members, or no repair:

  tocommit(N) is out of range; cluster ID mismatch; member ... has already been
  bootstrapped: the members are of different histories. Compare them with 'requorum
  recover --local NAME=DIR,NAME=DIR --data-dir NEW/{name} --dry-run'. If the others are
  right, run 'etcdctl member remove ID', move the directory away, run 'etcdctl member add
  NAME --peer-urls=URL' and start etcd with --initial-cluster-state=existing
  required revision has been compacted: the client has to list again
  snapshot missing hash but --skip-hash-check=false: the file is a copied db. Use
  'requorum restore --from-data-dir DIR' with the log beside it`,
		Example: `  requorum verify --repo file:///var/backups/etcd
  requorum verify all --level checksum --repo 's3://backups/etcd?region=eu-central-1'
  requorum verify --level drill --junit report.xml --output json --repo file:///var/backups/etcd
  requorum verify --from-file snapshot.db
  requorum verify --data-dir /var/lib/etcd`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ifInterrupted(cmd.Context(), g.verify(cmd.Context(), &o, args), "nothing was changed")
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

// verify runs the command. The report for a CI system is written however it ends.
func (g *globals) verify(ctx context.Context, o *verifyOptions, args []string) error {
	file, err := o.openJUnit()
	if err != nil {
		return usageError{fmt.Errorf("--junit: %w", err)}
	}
	r, v, err := g.prove(ctx, o, args)
	written := file.end(r, err)
	if r != nil {
		err = errors.Join(g.verified(r, v, report.Level(o.require)), err)
	}
	return errors.Join(err, written)
}

// prove does the work. There is no report if it could not be done.
func (g *globals) prove(ctx context.Context, o *verifyOptions, args []string) (*report.Report, *verdictReport, error) {
	if err := o.check(g, args); err != nil {
		return nil, nil, err
	}
	meter := g.newMeter()
	defer meter.finish()
	req := o.req
	req.Progress = meter.show
	switch {
	case o.file != "":
		r, err := verify.File(ctx, o.file, req)
		return r, nil, err
	case o.dataDir != "":
		r, err := verify.DataDir(ctx, o.dataDir, o.walDir, req)
		return r, nil, err
	}
	return g.verifyRepository(ctx, o, req)
}

func (g *globals) verifyRepository(ctx context.Context, o *verifyOptions, req verify.Request) (*report.Report, *verdictReport, error) {
	if err := o.repo.keys.mayWrite(); err != nil && !o.noVerdict {
		return nil, nil, err
	}
	repo, err := o.repo.openRepository(ctx, g)
	if err != nil {
		return nil, nil, err
	}
	defer repo.Sink().Close() //nolint:errcheck // what was written is committed, or an error is on its way
	g.noteUnchecked(repo.Checks())
	r, err := verify.Repository(ctx, repo, req)
	if err != nil {
		return nil, nil, orRollback(err)
	}
	if o.noVerdict {
		return r, nil, nil
	}
	written := &verdictReport{}
	all := verdict.FromReport(r)
	switch err := verdict.Write(ctx, repo, all); {
	case err != nil && ctx.Err() != nil:
		return nil, nil, err
	case err != nil:
		written.Error = err.Error()
	default:
		written.Backups = len(all)
	}
	return r, written, nil
}

// check refuses options that do not go together, and completes the request.
func (o *verifyOptions) check(g *globals, args []string) (err error) {
	ofRepository := append([]string{"no-verdict"}, repositoryFlags...)
	for _, s := range []struct{ path, why string }{{o.file, "with --from-file"}, {o.dataDir, "with --data-dir"}} {
		if s.path == "" {
			continue
		}
		if len(args) > 0 {
			return usageError{fmt.Errorf("%s is of no use %s", args[0], s.why)}
		}
		if err := g.unfit(s.why, ofRepository...); err != nil {
			return err
		}
	}
	switch {
	case o.file != "" && o.dataDir != "":
		return usageError{errors.New("--from-file and --data-dir: give one of them")}
	case o.walDir != "" && o.dataDir == "":
		return usageError{errors.New("--wal-dir is of no use without --data-dir")}
	}
	req := &o.req
	req.Tool = "requorum " + version
	if g.verbose { // a replay's etcd warns of each request that its cluster had refused
		req.Logger = g.logger()
	}
	if req.Level, err = report.ParseLevel(o.level); err != nil {
		return usageError{fmt.Errorf("--level: %w", err)}
	}
	if o.require != "" {
		level, err := report.ParseLevel(o.require)
		if err == nil && !req.Level.Includes(level) {
			err = fmt.Errorf("the level %s is not asked for: give --level %s", level, level)
		}
		if err != nil {
			return usageError{fmt.Errorf("--require: %w", err)}
		}
	}
	if len(args) > 0 {
		req.Backup = args[0]
	}
	req.Identities, err = o.identities.parse()
	return err
}

// newDrillMembersCommand is how a drill starts this program anew, to run its
// members apart: nobody else calls it.
func newDrillMembersCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:    serve.MembersCommand,
		Short:  "run the members of a drill (started by 'requorum verify --level drill' only)",
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve.Members(cmd.Context(), g.stdin, g.stdout)
		},
	}
}

// readVerdicts reads the verdicts in a repository.
func (g *globals) readVerdicts(ctx context.Context, r *repository.Repository) (verdict.List, error) {
	chain, err := verdict.ReadAll(ctx, r)
	for _, note := range chain.Notes {
		g.note("%s", note)
	}
	return chain, err
}

// provedReport is the JSON form of what verdicts say of a backup.
type provedReport struct {
	// Status is passed, unchecked (proved up to Level, but not as far as was
	// asked for), or damaged.
	Status   report.Status  `json:"status"`
	Level    report.Level   `json:"level,omitempty"` // that was proved
	Finished time.Time      `json:"finished"`
	Tool     string         `json:"tool"`
	Host     string         `json:"host,omitempty"`
	Phases   []report.Phase `json:"phases,omitempty"`
}

// proved is what verdicts say of a backup; nil where they say nothing that
// counts.
func proved(c verdict.List, m *snapshot.Manifest) *provedReport {
	w, ok := c.Damaged(m)
	if !ok {
		if w, ok = c.Best(m); !ok {
			return nil
		}
	}
	p := &provedReport{
		Status: w.Verdict.Status, Level: w.Verdict.Reached, Finished: w.Verdict.Finished,
		Tool: w.Verdict.Tool, Host: w.Verdict.Host, Phases: w.Verdict.Phases,
	}
	if p.Status == report.Damaged {
		p.Level = ""
	}
	return p
}

// String is the level and the age, for a table.
func (p *provedReport) String() string {
	switch {
	case p == nil:
		return "no"
	case p.Status == report.Damaged:
		return "DAMAGED, " + humanize.Time(p.Finished)
	}
	return string(p.Level) + ", " + humanize.Time(p.Finished)
}

// rows add what verdicts say to a table about one backup.
func (p *provedReport) rows(out *table) {
	if p == nil {
		out.row("Proved", "no: 'requorum verify' proves it")
		return
	}
	out.row("Proved", fmt.Sprintf("%s, by the verdict of %s", p, when(p.Finished)))
	label := "Measured"
	for _, phase := range p.Phases {
		out.row(label, fmt.Sprintf("%s: %s", phase.Name, took(phase.Took)))
		label = ""
	}
}
