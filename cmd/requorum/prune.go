package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/requorum/requorum/schedule/retention"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

func newPruneCommand(g *globals) *cobra.Command {
	var repo repoFlags
	var keep keepFlags
	var dryRun bool
	var confirm int
	cmd := &cobra.Command{
		Use:   "prune --repo URL --keep-…",
		Short: "Delete old full snapshots and old log, and say what stays recoverable",
		Long: `Delete what no --keep option keeps, and print what can be restored before and
after that. --dry-run prints it and deletes nothing. docs/retention.md says in
plain words what stays.

With --keep-any-point every point of that time can be restored afterwards as well
as before, and older log goes; without it, log goes with the full snapshots that
it follows. Hourly, daily, weekly and monthly keep one full snapshot of each of
the last N such periods that have any. Never deleted: the newest full snapshots,
the newest one that passed 'requorum verify --level structure', and those that
'requorum pin' pinned. A damaged one counts for nothing.

Times are counted back from the last observation of the cluster: while nothing
new is stored, nothing goes.

Where more than a third of those that passed verification would go at once, nothing
goes without --confirm and their number, which --dry-run prints; an agent does not
prune then, and says so.

A pruned snapshot is not listed any more, at once; its object, and the log after
it, stay for the --grace time and are deleted by a later run. What is locked is
deleted later as well, and is no error. An interrupted run is completed by the next one.`,
		Example: `  requorum prune --repo file:///var/backups/etcd --keep-any-point 7d --keep-daily 35 --keep-weekly 8 --keep-monthly 12 --dry-run
  requorum prune --repo 's3://backups/etcd?region=eu-central-1' --keep-last 10`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			policy, err := keep.policy(cmd.Flags())
			if err != nil {
				return usageError{err}
			}
			if err := repo.keys.mayWrite(); err != nil && !dryRun {
				return err
			}
			return repo.with(cmd.Context(), g, func(r *repository.Repository) error {
				defer g.noteUnusable(r)
				return g.prune(cmd.Context(), r, policy, dryRun, retention.Options{Confirm: confirm, Logger: g.logger()})
			})
		},
	}
	repo.addFlags(cmd.Flags(), false)
	keep.addFlags(cmd.Flags())
	cmd.Flags().BoolVarP(&dryRun, "dry-run", "n", false, "print what would go, and delete nothing")
	cmd.Flags().IntVar(&confirm, "confirm", 0, "delete these `N` full snapshots that passed verification, where they are more than a third of all that did")
	return cmd
}

// keepFlags say what to keep.
type keepFlags struct {
	keep retention.Policy
	zone string
}

func (k *keepFlags) addFlags(f *pflag.FlagSet) {
	k.keep.Minimum = 1
	for _, c := range k.keep.Counts() {
		f.IntVar(c.N, "keep-"+c.Name, *c.N, c.Usage)
	}
	durationVar(f, &k.keep.Within, "keep-within", 0, 0, "keep all full snapshots of this `time`, such as 36h, 30d or 8w")
	durationVar(f, &k.keep.AnyPoint, "keep-any-point", 0, 0, "keep what every point of this `time` needs, full snapshots and log, such as 7d")
	durationVar(f, &k.keep.Grace, "grace", retention.DefaultGrace, 0, "for this `time` objects and log stay after they were pruned, so that a restore that has begun can end")
	f.StringVar(&k.zone, "time-zone", "UTC", "`where` hours, days, weeks and months begin, such as Europe/Berlin")
}

func (k *keepFlags) policy(f *pflag.FlagSet) (p retention.Policy, err error) {
	p = k.keep
	if p.Zone, err = time.LoadLocation(k.zone); err != nil {
		return p, fmt.Errorf("--time-zone: %w", err)
	}
	without := p
	if !f.Changed("keep-minimum") {
		without.Minimum = 0 // the default is a floor, and no rule
	}
	if err := without.Check(); errors.Is(err, retention.ErrNoPolicy) {
		return p, errors.New("nothing says what to keep: give at least one --keep option, such as --keep-last 10")
	} else if err != nil {
		return p, err
	}
	return p, nil
}

// pruneReport is the JSON form of `requorum prune`.
type pruneReport struct {
	DryRun bool            `json:"dry_run"`
	Plan   *retention.Plan `json:"plan"`
	// Result is nil after a dry run.
	Result *retention.Result `json:"result,omitempty"`
}

func (g *globals) prune(ctx context.Context, r *repository.Repository, policy retention.Policy, dryRun bool, o retention.Options) error {
	now := time.Now()
	inv, err := retention.Read(ctx, r, now)
	if err != nil {
		return err
	}
	plan := retention.NewPlan(inv, policy, now)
	if plan.Refused != "" {
		return &retention.RefusedError{Why: plan.Refused}
	}
	if g.output == "table" {
		if err := tablePlan(g.stdout, plan, dryRun); err != nil {
			return err
		}
	}
	report := pruneReport{DryRun: dryRun, Plan: plan}
	if !dryRun {
		var result retention.Result
		result, err = retention.Execute(ctx, r, plan, o)
		report.Result = &result
	}
	switch {
	case g.output == "json":
		return errors.Join(g.printJSON(report), err)
	case dryRun:
		g.printf("Nothing was deleted.\n")
	default:
		printPruned(g.stdout, *report.Result)
	}
	return err
}

// tablePlan prints what stays and what goes, and what can be restored.
func tablePlan(w io.Writer, p *retention.Plan, dryRun bool) error {
	out := newTable(w, "BACKUP", "TAKEN", "WHAT", "WHY")
	for _, window := range p.Windows {
		for _, k := range p.Keep {
			if k.Timeline == window.Timeline {
				out.row(k.Backup, when(k.Taken), "stays", strings.Join(k.Reasons, ", "))
			}
		}
		for _, l := range p.Delete {
			if l.Timeline == window.Timeline {
				out.row(l.Backup, when(l.Taken), map[bool]string{true: "would go", false: "goes"}[dryRun], l.Why)
			}
		}
	}
	if err := out.flush(); err != nil {
		return err
	}
	for _, l := range p.Leftovers {
		printf(w, "Goes: %s in the folder of %s, %s (%s)\n", report.Counted(len(l.Objects), "object", "objects"), l.Backup, l.Kind, size(l.Bytes))
	}
	for _, l := range p.Log {
		printf(w, "Log of timeline %s before raft index %d goes: %s, %s (%s)\n", l.Timeline, l.Before, report.Counted(l.Segments, "segment", "segments"), size(l.Bytes), l.Why)
	}
	for _, l := range p.Later {
		until := "when that has ended"
		if !l.Until.IsZero() {
			until = "after " + when(l.Until)
		}
		printf(w, "Later, %s: backup %s: %s\n", until, l.Backup, l.Why)
	}
	for _, note := range p.Notes {
		printf(w, "Note: %s\n", note)
	}
	for _, window := range p.Windows {
		printf(w, "Timeline %s can be restored\n", window.Timeline)
		printRecoverable(w, "before", window.Before)
		printRecoverable(w, "after", window.After)
		if !window.From.IsZero() {
			printf(w, "  every point is kept from %s on\n", when(window.From.Add(p.Policy.Grace)))
		}
	}
	return nil
}

// printRecoverable prints runs of points, and how many single ones there are.
func printRecoverable(w io.Writer, label string, all []retention.Recoverable) {
	single := 0
	for _, r := range all {
		if r.FirstIndex == r.LastIndex {
			single++
			continue
		}
		printf(w, "  %s: every point from raft index %d (backup %s of %s) to %d\n", label, r.FirstIndex, r.FirstBackup, when(r.From), r.LastIndex)
	}
	if single > 0 || len(all) == 0 {
		printf(w, "  %s: %s\n", label, report.Counted(single, "single full snapshot", "single full snapshots"))
	}
}

// printPruned prints what was done.
func printPruned(w io.Writer, r retention.Result) {
	for _, s := range r.Spared {
		printf(w, "Stays after all: backup %s: %s\n", s.Backup, s.Why)
	}
	text := fmt.Sprintf("Pruned: %s. Deleted: %s of backups, %s, %s, %s. Freed: %s",
		report.Counted(r.Backups, "full snapshot", "full snapshots"), report.Counted(r.Objects, "object", "objects"),
		report.Counted(r.Segments, "log segment", "log segments"), report.Counted(r.Marks+r.Gaps, "mark or gap record", "marks and gap records"),
		report.Counted(r.Swept, "old record", "old records"), size(r.BytesGone))
	if r.Locked > 0 {
		text += fmt.Sprintf(". Locked, and left for later: %s", report.Counted(r.Locked, "object", "objects"))
	}
	printf(w, "%s\n", text)
}

func newPinCommand(g *globals) *cobra.Command {
	var o backupFlags
	var reason string
	cmd := &cobra.Command{
		Use:   "pin ID|latest --repo URL [--reason TEXT]",
		Short: "Keep one full snapshot, whatever the retention says",
		Long: `Pin a full snapshot: no 'requorum prune', and no agent, deletes it until
'requorum unpin'. The snapshot itself stays, one point; log stays by the rules of
retention alone. What is pinned already is no error, and stays as it was pinned.`,
		Example: `  requorum pin 20260102T150405Z-3f9a2c --repo file:///var/backups/etcd --reason 'before the upgrade'`,
		Args:    oneBackup,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.repo.keys.mayWrite(); err != nil {
				return err
			}
			return o.with(cmd.Context(), g, args, func(b *foundBackup) error { return g.pin(cmd.Context(), b.repo, b.Manifest, reason) })
		},
	}
	o.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&reason, "reason", "", "why, in words")
	return cmd
}

func (g *globals) pin(ctx context.Context, r *repository.Repository, m *snapshot.Manifest, reason string) error {
	host, err := os.Hostname()
	if err != nil {
		host = "" // it is for people only
	}
	p := repository.Pin{Timeline: m.Timeline, Backup: m.ID, Reason: reason, By: host, Created: time.Now().UTC()}
	err = r.WritePin(ctx, p)
	if errors.Is(err, sinks.ErrExists) {
		was, errRead := r.ReadPin(ctx, repository.PinName(m.Timeline, m.ID))
		if errRead != nil {
			return fmt.Errorf("backup %s is pinned already, and by whom cannot be read: %w", m.ID, errRead)
		}
		p, err = was, nil
	}
	if err != nil {
		return fmt.Errorf("pin backup %s: %w", m.ID, err)
	}
	// Whoever prunes writes a record and then looks for pins: one of the two sees
	// the other.
	if _, err := snapshot.ReadManifest(ctx, r, m.Timeline, m.ID); errors.Is(err, sinks.ErrNotFound) {
		return errors.Join(fmt.Errorf("%w: backup %s was pruned by a prune just now", snapshot.ErrNoBackup, m.ID), r.RemovePin(ctx, m.Timeline, m.ID))
	} else if err != nil {
		return err
	}
	if _, err := r.Sink().Stat(ctx, repository.PrunedName(m.Timeline, m.ID)); err == nil {
		g.note("a prune was about to delete backup %s: if it is under way, look with 'requorum show %s' whether the pin was in time", m.ID, m.ID)
	} else if !errors.Is(err, sinks.ErrNotFound) {
		return err
	}
	if g.output == "json" {
		return g.printJSON(p)
	}
	g.printf("Pinned: backup %s of timeline %s%s\n", p.Backup, p.Timeline, because(p.Reason))
	return nil
}

// oneBackup are the arguments of a command that changes one backup: none is guessed.
func oneBackup(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return errors.New("want the ID of one backup, which 'requorum list' shows, or latest")
	}
	return nil
}

func newUnpinCommand(g *globals) *cobra.Command {
	var o backupFlags
	cmd := &cobra.Command{
		Use:   "unpin ID --repo URL",
		Short: "Leave a pinned full snapshot to the retention again",
		Long: `Take the pin of a full snapshot away. It stays as long as the rules of retention
keep it.`,
		Example: `  requorum unpin 20260102T150405Z-3f9a2c --repo file:///var/backups/etcd`,
		Args:    oneBackup,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.repo.with(cmd.Context(), g, func(r *repository.Repository) error {
				p, err := findPin(cmd.Context(), r, args[0], o.timeline)
				if err != nil {
					return err
				}
				if err := r.RemovePin(cmd.Context(), p.Timeline, p.Backup); err != nil {
					return fmt.Errorf("unpin backup %s: %w", p.Backup, err)
				}
				if g.output == "json" {
					return g.printJSON(p)
				}
				g.printf("Not pinned any more: backup %s of timeline %s%s\n", p.Backup, p.Timeline, because(p.Reason))
				return nil
			})
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

// findPin finds a pin by its backup's ID, or the first characters of it.
func findPin(ctx context.Context, r *repository.Repository, ref, timeline string) (repository.Pin, error) {
	pins, err := r.Pins(ctx)
	if err != nil {
		return repository.Pin{}, err
	}
	var found []*repository.Pin
	for _, p := range pins {
		if strings.HasPrefix(p.Backup, ref) && (timeline == "" || p.Timeline.String() == timeline) {
			found = append(found, p)
		}
	}
	switch len(found) {
	case 0:
		return repository.Pin{}, fmt.Errorf("%w: no pinned backup's ID starts with %q; 'requorum list' shows them", snapshot.ErrNoBackup, ref)
	case 1:
		return *found[0], nil
	}
	return repository.Pin{}, usageError{fmt.Errorf("%d pinned backups' IDs start with %q: give more of it, or --timeline", len(found), ref)}
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

// pinned is a cell of a table.
func pinned(p *repository.Pin) string {
	if p == nil {
		return ""
	}
	return "yes"
}
