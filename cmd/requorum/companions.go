package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/requorum/requorum/schedule/companions"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

func newCompanionsCommand(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "companions",
		Short: "List and extract files that were stored with a backup: a PKI, an EncryptionConfiguration",
		Long: `List and extract companions: files that 'requorum agent' stored, encrypted, with
each full snapshot, because a cluster cannot be rebuilt without them.
` + exitHelp,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCompanionsListCommand(g), newCompanionsExtractCommand(g))
	for _, c := range cmd.Commands() {
		asUsageErrors(c)
	}
	return cmd
}

func newCompanionsListCommand(g *globals) *cobra.Command {
	var (
		repo     repoFlags
		timeline string
	)
	cmd := &cobra.Command{
		Use:   "list [ID|latest] --repo URL",
		Short: "List the companions of a backup",
		Long: `List the companions of a backup: of the newest one without an ID, or with
"latest".
` + exitHelp,
		Example: `  requorum companions list --repo file:///var/backups/etcd`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := repo.openRepository(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer r.Sink().Close() //nolint:errcheck // it was read from
			m, _, err := findBackup(cmd.Context(), r, args, timeline)
			if err != nil {
				return err
			}
			return g.listCompanions(m)
		},
	}
	repo.addFlags(cmd.Flags(), false)
	addTimelineFlag(cmd.Flags(), &timeline)
	return cmd
}

// companionsReport is the JSON form of `requorum companions list`.
type companionsReport struct {
	Backup     string                `json:"backup"`
	Timeline   repository.TimelineID `json:"timeline"`
	Companions []snapshot.Companion  `json:"companions"`
}

func (g *globals) listCompanions(m *snapshot.Manifest) error {
	if g.output == "json" {
		report := companionsReport{m.ID, m.Timeline, m.Companions}
		if report.Companions == nil {
			report.Companions = []snapshot.Companion{}
		}
		return g.printJSON(report)
	}
	if len(m.Companions) == 0 {
		g.note("backup %s has no companions: companions in the agent's configuration says what is stored with each", m.ID)
		return nil
	}
	out := newTable(g.stdout, "NAME", "FILES", "SIZE", "HOST", "OBJECT")
	for _, c := range m.Companions {
		out.row(c.Name, fmt.Sprint(c.Files), size(c.Bytes), orNone(c.Host), c.Object.Name)
	}
	return out.flush()
}

type companionsExtractOptions struct {
	repo     repoFlags
	keys     identityFlags
	timeline string
	name     string
	to       string
}

func newCompanionsExtractCommand(g *globals) *cobra.Command {
	var o companionsExtractOptions
	cmd := &cobra.Command{
		Use:   "extract [ID|latest] --repo URL --name NAME --to DIR --identity FILE",
		Short: "Extract a companion of a backup into a folder",
		Long: `Extract a companion of a backup into a folder: of the newest one without an ID, or
with "latest". Only its owner can read what is written (0600, folders 0700).
Nothing that is there already is overwritten, and after an error nothing is left.
` + exitHelp,
		Example: `  requorum companions extract --name pki --to /root/pki --identity key.txt --repo file:///var/backups/etcd`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.extractCompanion(cmd.Context(), o, args)
		},
	}
	o.repo.addFlags(cmd.Flags(), false)
	o.keys.addFlags(cmd.Flags())
	addTimelineFlag(cmd.Flags(), &o.timeline)
	cmd.Flags().StringVar(&o.name, "name", "", "which companion, as 'requorum companions list' shows it")
	cmd.Flags().StringVar(&o.to, "to", "", "`folder` to write to; made where it is not there")
	return cmd
}

// extractedReport is the JSON form of `requorum companions extract`.
type extractedReport struct {
	Backup string `json:"backup"`
	Name   string `json:"name"`
	To     string `json:"to"`
	snapshot.CompanionContent
}

func (g *globals) extractCompanion(ctx context.Context, o companionsExtractOptions, args []string) error {
	if o.name == "" || o.to == "" {
		return usageError{errors.New("give --name, which companion, and --to, the folder to write to")}
	}
	identities, err := o.keys.parse()
	if err != nil {
		return err
	}
	r, err := o.repo.openRepository(ctx, g)
	if err != nil {
		return err
	}
	defer r.Sink().Close() //nolint:errcheck // it was read from
	m, _, err := findBackup(ctx, r, args, o.timeline)
	if err != nil {
		return err
	}
	c, err := companions.Find(m, o.name)
	if err != nil {
		return err
	}
	content, err := companions.Extract(ctx, r, c, identities, o.to)
	if err != nil {
		return fmt.Errorf("extract companion %s of backup %s to %s: %w", o.name, m.ID, o.to, err)
	}
	if g.output == "json" {
		return g.printJSON(extractedReport{m.ID, o.name, o.to, content})
	}
	g.printf("Extracted %s of backup %s to %s: %d %s, %s.\n", o.name, m.ID, o.to, content.Files, plural(content.Files, "file", "files"), size(content.Bytes))
	return nil
}
