package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
)

func newShowCommand(g *globals) *cobra.Command {
	var o backupFlags
	var keys identityFlags
	var attachments bool
	cmd := &cobra.Command{
		Use:   "show [ID|latest] --repo URL",
		Short: "Show one backup: what it holds, where it came from, how to open it by hand",
		Long: `Show one backup. Without an ID, or with "latest", the newest state; the first
characters of an ID do when they are of one backup only. "Proved" is what
'requorum verify' has proved of it, and when; a drill's times are what a restore
took there.

With --attachments it writes the files that the agent stored with the backup to standard
output instead, as a tar, after it has checked all of it.`,
		Example: `  requorum show --repo file:///var/backups/etcd
  requorum show 20260102T15 --repo file:///var/backups/etcd --output json
  requorum show --attachments --identity key.txt --repo file:///var/backups/etcd | tar -x -C /an/empty/directory`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !attachments {
				return o.with(cmd.Context(), g, args, func(b *foundBackup) error { return g.show(cmd.Context(), b) })
			}
			identities, err := keys.parse()
			if err := errors.Join(err, g.unfit("with --attachments", "output")); err != nil {
				return err
			}
			return o.with(cmd.Context(), g, args, func(b *foundBackup) error {
				if len(args) == 0 || args[0] == snapshot.Latest {
					if err := b.all.CheckEncrypted(b.Manifest); err != nil {
						return err
					}
				}
				files, err := snapshot.ReadAttachments(cmd.Context(), b.repo, b.Manifest, identities...)
				if err == nil {
					_, err = g.stdout.Write(files)
				}
				return err
			})
		},
	}
	o.addFlags(cmd.Flags())
	keys.addFlags(cmd.Flags())
	cmd.Flags().BoolVar(&attachments, "attachments", false, "write the files stored with the backup as a tar")
	return cmd
}

func (g *globals) show(ctx context.Context, b *foundBackup) error {
	m := b.Manifest
	logs, err := readLogs(ctx, b.all)
	verdicts, errVerdicts := g.readVerdicts(ctx, b.repo)
	if len(verdicts.Findings) > 0 {
		g.note("verdicts are damaged: 'requorum list' names them")
	}
	pins, errPins := b.repo.Pins(ctx)
	ended, errEnded := readEnded(ctx, b.repo, []repository.Timeline{{ID: m.Timeline}})
	report := showReport{listedBackup{m, proved(verdicts, m), pins[repository.PinName(m.Timeline, m.ID)], m.Stored.SignedBy}, logs.of(m), nil}
	if len(ended) > 0 {
		report.Superseded = &ended[0]
	}
	err = errors.Join(err, errVerdicts, errPins, errEnded)
	if g.output == "json" {
		return errors.Join(g.printJSON(report), err)
	}
	return errors.Join(g.showManifest(b.repo, report), err)
}

// showReport is the JSON form of `requorum show`: the manifest, what verdicts say
// of it, and what the archived log adds to it.
type showReport struct {
	listedBackup
	// Recoverable is the range that the backup is in; nil where that is not
	// known.
	Recoverable *walreplay.Range `json:"recoverable,omitempty"`
	// Superseded is the mark that ended the backup's timeline, or nil.
	Superseded *repository.Superseded `json:"superseded,omitempty"`
}

// of is the range that a backup is in, or nil.
func (r logsReport) of(m *snapshot.Manifest) *walreplay.Range {
	for i, one := range r.Ranges {
		if !one.Gap && one.Timeline == m.Timeline && one.FirstIndex <= m.Facts.RaftIndex && m.Facts.RaftIndex <= one.LastIndex {
			return &r.Ranges[i]
		}
	}
	return nil
}

func (g *globals) showManifest(r *repository.Repository, shown showReport) error {
	m := shown.Manifest
	out := newTable(g.stdout)
	out.row("Backup", m.ID)
	out.row("Repository", r.String())
	out.row("Timeline", m.Timeline.String())
	if shown.Superseded != nil {
		out.row("", howEnded([]repository.Superseded{*shown.Superseded}, m.Timeline))
	}
	out.row("Taken", fmt.Sprintf("%s, in %s, by %s", when(m.Started), took(m.Finished.Sub(m.Started)), m.Tool))
	out.row("Revision", fmt.Sprintf("%d (compacted up to %d)", m.Facts.Revision, m.Facts.CompactedRevision))
	out.row("Raft", fmt.Sprintf("index %d, term %d", m.Facts.RaftIndex, m.Facts.RaftTerm))
	if one := shown.Recoverable; one != nil && one.LastIndex > m.Facts.RaftIndex {
		out.row("With the log", fmt.Sprintf("every point up to raft index %d, revision %s, %s", one.LastIndex, lastRevision(*one), whenKnown(one.To)))
	}
	if m.Barrier != nil {
		out.row("Barrier", fmt.Sprintf("index %d, revision %d", m.Barrier.RaftIndex, m.Barrier.Revision))
	}
	out.row("etcd", fmt.Sprintf("%s; cluster version %s, storage version %s", m.Source.Version, cmp.Or(m.Facts.ClusterVersion, "none"), cmp.Or(m.Facts.StorageVersion, "none")))
	out.row("Read from", fmt.Sprintf("%s (%s, %s)", cmp.Or(m.Source.Name, "none"), m.Source.MemberID, m.Source.Endpoint))
	label := "Members"
	for _, member := range m.Facts.Members {
		role := ""
		if member.IsLearner {
			role = " (learner)"
		}
		out.row(label, fmt.Sprintf("%s %s %s%s", member.ID, cmp.Or(member.Name, "none"), strings.Join(member.PeerURLs, ","), role))
		label = ""
	}
	for _, a := range m.Facts.Alarms {
		out.row("Alarm", fmt.Sprintf("%s on %s", a.Type, a.MemberID))
	}
	out.row("Users and roles", map[bool]string{true: "enforced", false: "not enforced"}[m.Facts.AuthEnabled])
	out.row("Keys", countOr(m.Keys))
	out.row("HashKV", hashOr(m.HashKV))
	out.row("Database", fmt.Sprintf("%s, SHA-256 %s", size(m.Object.RawSize), m.DatabaseSHA256))
	out.row("Stored", fmt.Sprintf("%s as %s, SHA-256 %s", size(m.Object.StoredSize), strings.Join(m.Object.Codecs, ", "), m.Object.StoredSHA256))
	shown.Proved.rows(out)
	if p := shown.Pinned; p != nil {
		out.row("Pinned", when(p.Created)+because(p.Reason))
	}
	if a := m.Attachments; a != nil {
		out.row("Attachments", fmt.Sprintf("%s as %s, SHA-256 %s", size(a.RawSize), path.Base(a.Name), a.StoredSHA256))
	}
	for _, recipient := range m.Object.Recipients {
		out.row("Encrypted to", recipient)
	}
	if by := shown.SignedBy; by != nil {
		out.row("Signed by", by.String())
	}
	out.row("Object", m.Object.Name)
	out.row("By hand", manual(m))
	for _, k := range slices.Sorted(maps.Keys(m.Labels)) {
		out.row("Label", k+"="+m.Labels[k])
	}
	return out.flush()
}

func lastRevision(r walreplay.Range) string {
	if r.LastRevisionExact {
		return fmt.Sprint(r.LastRevision)
	}
	return fmt.Sprintf("%d at least", r.LastRevision)
}

// manual is how to get the plain etcd snapshot with ordinary tools.
func manual(m *snapshot.Manifest) string {
	object := path.Base(m.Object.Name)
	if m.Object.Encrypted() {
		return "age -d -i IDENTITY " + object + " | zstd -d -o snapshot.db"
	}
	return "zstd -d " + object + " -o snapshot.db"
}

func countOr(k snapshot.Keys) string {
	if k.Count == nil {
		return "not counted: " + k.Obtained
	}
	return fmt.Sprintf("%d (%s)", *k.Count, k.Obtained)
}

func hashOr(h snapshot.HashKV) string {
	if h.Revision == 0 {
		return "none: " + h.Obtained
	}
	return fmt.Sprintf("%d at revision %d, compacted %d (%s)", h.Hash, h.Revision, h.CompactedRevision, h.Obtained)
}
