package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
)

func newAcceptCommand(g *globals) *cobra.Command {
	var repo repoFlags
	var reason string
	cmd := &cobra.Command{
		Use:   "accept TIMELINE --repo URL [--reason TEXT]",
		Short: "Confirm the timeline in which a cluster that started over continues",
		Long: `Confirm in which timeline a cluster continues that began again without archived
writes: its members lost their disks and began as new ones with the old token, or
were set back. The newer timeline: it is a new cluster, and the lost writes are not
needed. The older one: the old disks are back. The cluster's other timelines end: they
can still be restored, and their members must not serve any more.

If the lost writes are needed, do not accept: stop the members, and restore the older
timeline with 'requorum restore --timeline'. The new cluster's first backup ends the
alarm.`,
		Example: `  requorum accept 2e9fd2ba34a2a7f1-2 --repo file:///var/backups/etcd --reason 'test cluster, set up again'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("want one timeline, which 'requorum list' shows")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := repo.keys.mayWrite(); err != nil {
				return err
			}
			return repo.with(cmd.Context(), g, func(r *repository.Repository) error { return g.accept(cmd.Context(), r, args[0], reason) })
		},
	}
	repo.addFlags(cmd.Flags(), false)
	cmd.Flags().StringVar(&reason, "reason", "", "why, in words")
	return cmd
}

// acceptReport is the JSON form of `requorum accept`.
type acceptReport struct {
	Timeline repository.TimelineID   `json:"timeline"`
	Ended    []repository.TimelineID `json:"ended"`
}

func (g *globals) accept(ctx context.Context, r *repository.Repository, name, reason string) error {
	c, err := walreplay.ReadInventory(ctx, r)
	if err != nil {
		return err
	}
	err = c.CheckStartedOver(ctx)
	var over *snapshot.StartedOverError
	switch {
	case err == nil:
		return fmt.Errorf("%w: no cluster in %s started over without an answer", snapshot.ErrNoBackup, r)
	case !errors.As(err, &over):
		return err
	}
	i := slices.IndexFunc(c.Timelines, func(t repository.Timeline) bool { return t.ID.String() == name })
	if i < 0 || c.Timelines[i].ID.ClusterID != over.From.ClusterID {
		return usageError{fmt.Errorf("%s is not one of its timelines: %w", name, over)}
	}
	accepted := c.Timelines[i]
	report := acceptReport{Timeline: accepted.ID, Ended: []repository.TimelineID{}}
	host, _ := os.Hostname() // for people only
	for _, t := range c.Timelines {
		if t.ID.ClusterID != accepted.ID.ClusterID || t.ID == accepted.ID {
			continue
		}
		s := repository.Superseded{Timeline: t.ID, By: accepted.ID, Created: time.Now().UTC(), Reason: "accepted on " + cmp.Or(host, "a host without a name") + because(reason)}
		if accepted.Parent != nil && accepted.Parent.Timeline == t.ID {
			s.At = accepted.Parent.RaftIndex
		}
		switch err := r.Supersede(ctx, s); {
		case errors.Is(err, sinks.ErrExists): // it ended before
		case err != nil:
			return fmt.Errorf("accept timeline %s: %w", accepted.ID, err)
		default:
			report.Ended = append(report.Ended, t.ID)
		}
	}
	if g.output == "json" {
		return g.printJSON(report)
	}
	g.printf("Accepted: the cluster continues in timeline %s\n", report.Timeline)
	for _, t := range report.Ended {
		g.printf("Ended: timeline %s; 'requorum restore --timeline %s' still restores it\n", t, t)
	}
	return nil
}
