package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/schedule/retention"
	"github.com/requorum/requorum/sinks/repository"
)

func newPruneCommand(g *globals) *cobra.Command {
	var repo repoFlags
	var trust trustFlags
	var keep keepFlags
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "prune --repo URL --keep-…",
		Short: "Let old full snapshots and old log go, and say what stays recoverable",
		Long: `Let go what no --keep option keeps, and print what can be restored before and
after that. --dry-run prints it and deletes nothing. docs/retention.md says in
plain words what stays.

With --keep-any-point every point of that time can be restored afterwards as well
as before, and older log goes; without it, log goes with the full snapshots that
it follows. Hourly, daily, weekly and monthly keep one full snapshot of each of
the last N such periods that have any. Never let go: the newest full snapshots,
the newest one that passed 'requorum verify --rung structure', and those that
'requorum pin' pinned. A damaged one counts for nothing.

Times are counted back from the last observation of the cluster: while nothing
new is stored, nothing goes.

A snapshot that is let go is not listed any more, at once; its object, and the log
behind it, stay for the --grace time and go with a later run. What is locked goes
later as well, and is no error. An interrupted run is completed by the next one.
` + exitHelp,
		Example: `  requorum prune --repo file:///var/backups/etcd --keep-any-point 7d --keep-daily 35 --keep-weekly 8 --keep-monthly 12 --dry-run
  requorum prune --repo 's3://backups/etcd?region=eu-central-1' --keep-last 10`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			policy, err := keep.policy(cmd.Flags())
			if err != nil {
				return usageError{err}
			}
			trusted, err := trust.parse()
			if err != nil {
				return err
			}
			r, err := repo.openRepository(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer r.Sink().Close() //nolint:errcheck // what was written was committed
			return g.prune(cmd.Context(), r, policy, dryRun, trusted)
		},
	}
	repo.addFlags(cmd.Flags(), false)
	keep.addFlags(cmd.Flags())
	cmd.Flags().BoolVarP(&dryRun, "dry-run", "n", false, "print what would go, and delete nothing")
	trust.addFlags(cmd.Flags())
	return cmd
}

// keepFlags say what to keep.
type keepFlags struct {
	last, hourly, daily, weekly, monthly, minimum int
	within, anyPoint, grace, zone                 string
}

func (k *keepFlags) addFlags(f *pflag.FlagSet) {
	f.IntVar(&k.last, "keep-last", 0, "keep the last `N` full snapshots")
	f.IntVar(&k.hourly, "keep-hourly", 0, "keep the newest of each of the last `N` hours that have one")
	f.IntVar(&k.daily, "keep-daily", 0, "keep the newest of each of the last `N` days that have one")
	f.IntVar(&k.weekly, "keep-weekly", 0, "keep the newest of each of the last `N` weeks that have one")
	f.IntVar(&k.monthly, "keep-monthly", 0, "keep the newest of each of the last `N` months that have one")
	f.StringVar(&k.within, "keep-within", "", "keep all full snapshots of this `time`, such as 36h, 30d or 8w")
	f.StringVar(&k.anyPoint, "keep-any-point", "", "keep what every point of this `time` needs, full snapshots and log, such as 7d")
	f.IntVar(&k.minimum, "keep-minimum", 1, "keep `N` full snapshots that are not damaged at least, however old they are")
	f.StringVar(&k.grace, "grace", config.Duration(retention.DefaultGrace).String(), "for this `time` objects and log stay after they were let go, so that a restore that has begun can end")
	f.StringVar(&k.zone, "time-zone", "UTC", "`where` hours, days, weeks and months begin, such as Europe/Berlin")
}

func (k *keepFlags) policy(f *pflag.FlagSet) (retention.Policy, error) {
	p := retention.Policy{Last: k.last, Hourly: k.hourly, Daily: k.daily, Weekly: k.weekly, Monthly: k.monthly, Minimum: k.minimum}
	for _, one := range []struct {
		option, value string
		to            *time.Duration
	}{{"keep-within", k.within, &p.Within}, {"keep-any-point", k.anyPoint, &p.AnyPoint}, {"grace", k.grace, &p.Grace}} {
		if one.value == "" {
			continue
		}
		d, err := config.ParseDuration(one.value)
		if err != nil {
			return p, fmt.Errorf("--%s: %w", one.option, err)
		}
		*one.to = d.Std()
	}
	var err error
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

func (g *globals) prune(ctx context.Context, r *repository.Repository, policy retention.Policy, dryRun bool, trusted []ed25519.PublicKey) error {
	now := time.Now()
	inv, err := retention.Read(ctx, r, now, trusted...)
	if err != nil {
		return err
	}
	report := pruneReport{DryRun: dryRun, Plan: retention.NewPlan(inv, policy, now)}
	if report.Plan.Refused != "" {
		return &retention.RefusedError{Why: report.Plan.Refused}
	}
	if g.output == "table" {
		if err := g.tablePlan(report.Plan, dryRun); err != nil {
			return err
		}
	}
	if !dryRun {
		result, errExecute := retention.Execute(ctx, r, report.Plan, retention.Options{Trusted: trusted, Logger: g.logger()})
		report.Result, err = &result, errExecute
	}
	if g.output == "json" {
		return errors.Join(g.printJSON(report), err)
	}
	if report.Result != nil {
		g.printPruned(*report.Result)
	}
	return err
}
