package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

func newPinCommand(g *globals) *cobra.Command {
	var repo repoFlags
	var timeline, reason string
	cmd := &cobra.Command{
		Use:   "pin ID|latest --repo URL [--reason TEXT]",
		Short: "Keep one full snapshot, whatever the retention says",
		Long: `Pin a full snapshot: no 'requorum prune', and no agent, lets it go until
'requorum unpin'. The snapshot itself stays, one point; log stays by the rules of
retention alone. What is pinned already is no error, and stays as it was pinned.
` + exitHelp,
		Example: `  requorum pin 20260102T150405Z-3f9a2c --repo file:///var/backups/etcd --reason 'before the upgrade'`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := repo.openRepository(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer r.Sink().Close() //nolint:errcheck // what was written was committed
			m, _, err := findBackup(cmd.Context(), r, args, timeline)
			if err != nil {
				return err
			}
			return g.pin(cmd.Context(), r, m, reason)
		},
	}
	repo.addFlags(cmd.Flags(), false)
	addTimelineFlag(cmd.Flags(), &timeline)
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
		return errors.Join(fmt.Errorf("%w: backup %s was let go by a prune just now", snapshot.ErrNoBackup, m.ID), r.RemovePin(ctx, m.Timeline, m.ID))
	} else if err != nil {
		return err
	}
	if _, err := r.Sink().Stat(ctx, repository.PrunedName(m.Timeline, m.ID)); err == nil {
		g.note("a prune was about to let backup %s go: if it is under way, look with 'requorum show %s' whether the pin was in time", m.ID, m.ID)
	} else if !errors.Is(err, sinks.ErrNotFound) {
		return err
	}
	if g.output == "json" {
		return g.printJSON(p)
	}
	g.printf("Pinned: backup %s of timeline %s%s\n", p.Backup, p.Timeline, because(p.Reason))
	return nil
}

func newUnpinCommand(g *globals) *cobra.Command {
	var repo repoFlags
	var timeline string
	cmd := &cobra.Command{
		Use:   "unpin ID --repo URL",
		Short: "Leave a pinned full snapshot to the retention again",
		Long: `Take the pin of a full snapshot away. It stays as long as the rules of retention
keep it.
` + exitHelp,
		Example: `  requorum unpin 20260102T150405Z-3f9a2c --repo file:///var/backups/etcd`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := repo.openRepository(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer r.Sink().Close() //nolint:errcheck // what was written was committed
			p, err := findPin(cmd.Context(), r, args[0], timeline)
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
		},
	}
	repo.addFlags(cmd.Flags(), false)
	addTimelineFlag(cmd.Flags(), &timeline)
	return cmd
}

// findPin finds a pin by its backup's ID, or the first characters of it.
func findPin(ctx context.Context, r *repository.Repository, ref, timeline string) (repository.Pin, error) {
	pins, err := r.Pins(ctx)
	if err != nil {
		return repository.Pin{}, err
	}
	var found []repository.Pin
	for _, p := range pins {
		if strings.HasPrefix(p.Backup, ref) && (timeline == "" || p.Timeline.String() == timeline) {
			found = append(found, p)
		}
	}
	switch len(found) {
	case 0:
		return repository.Pin{}, fmt.Errorf("%w: no pinned backup's ID starts with %q; 'requorum list' shows them", snapshot.ErrNoBackup, ref)
	case 1:
		return found[0], nil
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

// pinOf is a backup's pin, or nil.
func pinOf(pins []repository.Pin, m *snapshot.Manifest) *repository.Pin {
	for i, p := range pins {
		if p.Timeline == m.Timeline && p.Backup == m.ID {
			return &pins[i]
		}
	}
	return nil
}
