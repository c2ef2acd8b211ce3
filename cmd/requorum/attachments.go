package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

func newAttachmentsCommand(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "attachments",
		Short: "List and extract files that were stored with a backup: a PKI, an EncryptionConfiguration",
		Long: `List and extract attachments: files that 'requorum agent' stored, encrypted, with
each full snapshot, because a cluster cannot be rebuilt without them.`,
	}
	cmd.AddCommand(newAttachmentsListCommand(g), newAttachmentsExtractCommand(g))
	return cmd
}

func newAttachmentsListCommand(g *globals) *cobra.Command {
	var o backupFlags
	cmd := &cobra.Command{
		Use:   "list [ID|latest] --repo URL",
		Short: "List the attachments of a backup",
		Long: `List the attachments of a backup: of the newest one without an ID, or with
"latest".`,
		Example: `  requorum attachments list --repo file:///var/backups/etcd`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.with(cmd.Context(), g, args, func(b *foundBackup) error { return g.listAttachments(b.Manifest) })
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

// attachmentsReport is the JSON form of `requorum attachments list`.
type attachmentsReport struct {
	Backup      string                `json:"backup"`
	Timeline    repository.TimelineID `json:"timeline"`
	Attachments []snapshot.Attachment `json:"attachments"`
}

func (g *globals) listAttachments(m *snapshot.Manifest) error {
	if g.output == "json" {
		return g.printJSON(attachmentsReport{m.ID, m.Timeline, emptyNotNull(m.Attachments)})
	}
	if len(m.Attachments) == 0 {
		g.note("backup %s has no attachments: attachments in the agent's configuration says what is stored with each", m.ID)
		return nil
	}
	out := newTable(g.stdout, "NAME", "FILES", "SIZE", "HOST", "OBJECT")
	for _, c := range m.Attachments {
		out.row(c.Name, fmt.Sprint(c.Files), size(c.Bytes), cmp.Or(c.Host, "none"), c.Object.Name)
	}
	return out.flush()
}

type attachmentsExtractOptions struct {
	backupFlags
	keys identityFlags
	name string
	to   string
}

func newAttachmentsExtractCommand(g *globals) *cobra.Command {
	var o attachmentsExtractOptions
	cmd := &cobra.Command{
		Use:   "extract [ID|latest] --repo URL --name NAME --to DIR --identity FILE",
		Short: "Extract an attachment of a backup into a folder",
		Long: `Extract an attachment of a backup into a folder: of the newest one without an ID, or
with "latest". Only its owner can read what is written (0600, folders 0700).
Nothing that is there already is overwritten, and after an error nothing is left.`,
		Example: `  requorum attachments extract --name pki --to /root/pki --identity key.txt --repo file:///var/backups/etcd`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.extractAttachment(cmd.Context(), &o, args)
		},
	}
	o.addFlags(cmd.Flags())
	o.keys.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&o.name, "name", "", "which attachment, as 'requorum attachments list' shows it")
	cmd.Flags().StringVar(&o.to, "to", "", "`folder` to write to; made where it is not there")
	return cmd
}

// extractedReport is the JSON form of `requorum attachments extract`.
type extractedReport struct {
	Backup string `json:"backup"`
	Name   string `json:"name"`
	To     string `json:"to"`
	snapshot.AttachmentContent
}

func (g *globals) extractAttachment(ctx context.Context, o *attachmentsExtractOptions, args []string) error {
	if o.name == "" || o.to == "" {
		return usageError{errors.New("give --name, which attachment, and --to, the folder to write to")}
	}
	identities, err := o.keys.parse()
	if err != nil {
		return err
	}
	return o.with(ctx, g, args, func(b *foundBackup) error {
		c, err := job.FindAttachment(b.Manifest, o.name)
		if err == nil && (len(args) == 0 || args[0] == snapshot.Latest) {
			err = b.catalog.CheckEncrypted(b.Manifest)
		}
		if err != nil {
			return err
		}
		content, err := job.ExtractAttachment(ctx, b.repo, c, identities, o.to)
		if err != nil {
			return fmt.Errorf("extract attachment %s of backup %s to %s: %w", o.name, b.ID, o.to, err)
		}
		if g.output == "json" {
			return g.printJSON(extractedReport{b.ID, o.name, o.to, content})
		}
		g.printf("Extracted %s of backup %s to %s: %s, %s.\n", o.name, b.ID, o.to, report.Counted(content.Files, "file", "files"), size(content.Bytes))
		return nil
	})
}
