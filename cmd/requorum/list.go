package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/verdict"
	"github.com/requorum/requorum/walreplay"
)

func newListCommand(g *globals) *cobra.Command {
	var repo repoFlags
	var trust trustFlags
	cmd := &cobra.Command{
		Use:     "list --repo URL",
		Aliases: []string{"ls"},
		Short:   "List the timelines, full snapshots and recoverable ranges in a repository",
		Long: `List what a repository holds: its timelines (one for each incarnation of the
cluster), the full snapshots in each, the oldest state first, and what the
archived log adds: the ranges in which every point can be restored, and the gaps
between them with their reasons. PROVED says what 'requorum verify' has proved of
each backup, and when. A backup whose manifest is damaged is listed as such, and
ends the command with status 3, as does a verdict that was altered or is missing.
` + exitHelp,
		Example: `  requorum list --repo file:///var/backups/etcd
  requorum list --repo 's3://backups/etcd?region=eu-central-1' --output json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			trusted, err := trust.parse()
			if err != nil {
				return err
			}
			r, err := repo.openRepository(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer r.Sink().Close() //nolint:errcheck // it was read from
			catalog, err := snapshot.ReadCatalog(cmd.Context(), r)
			if err != nil {
				return err
			}
			logs, err := readLogs(cmd.Context(), r, catalog)
			verdicts, errVerdicts := g.readVerdicts(cmd.Context(), r, trusted)
			pins, errPins := r.Pins(cmd.Context())
			letGo, errPruned := readLetGo(cmd.Context(), r, catalog)
			ended, errEnded := readEnded(cmd.Context(), r, catalog.Timelines)
			return errors.Join(g.printCatalog(r, catalog, ended, logs, verdicts, pins, letGo), err, errVerdicts, errPins, errPruned, errEnded)
		},
	}
	repo.addFlags(cmd.Flags(), false)
	trust.addFlags(cmd.Flags())
	return cmd
}

// catalogReport is the JSON form of `requorum list`.
type catalogReport struct {
	Repository string                `json:"repository"`
	ID         string                `json:"id"`
	Timelines  []repository.Timeline `json:"timelines"`
	// Superseded are the marks of timelines that have ended.
	Superseded []repository.Superseded `json:"superseded"`
	Backups    []listedBackup          `json:"backups"`
	Damaged    []damagedReport         `json:"damaged"`
	// DamagedTimelines have a descriptor that is damaged or gone.
	DamagedTimelines []damagedReport    `json:"damaged_timelines"`
	Incomplete       []incompleteReport `json:"incomplete"`
	// DamagedVerdicts are those that were altered, moved, or are missing.
	DamagedVerdicts []report.Finding `json:"damaged_verdicts"`
	logsReport
}

// listedBackup is a manifest, and what verdicts say of it.
type listedBackup struct {
	*snapshot.Manifest
	Proved *provedReport `json:"proved,omitempty"`
	// Pinned is nil for one that is not.
	Pinned *repository.Pin `json:"pinned,omitempty"`
}

type damagedReport struct {
	Timeline repository.TimelineID `json:"timeline"`
	ID       string                `json:"id,omitempty"`
	Error    string                `json:"error"`
}

type incompleteReport struct {
	Timeline repository.TimelineID `json:"timeline"`
	ID       string                `json:"id"`
	Bytes    int64                 `json:"bytes"`
	Newest   time.Time             `json:"newest"`
	// LetGo tells that it is no interrupted backup: pruning let it go, and its object
	// goes after the grace.
	LetGo bool `json:"let_go,omitempty"`
}

// backupOf is a backup's place.
type backupOf struct {
	timeline repository.TimelineID
	id       string
}

// readLetGo finds out which of the backups without a manifest were let go: they have
// a record that says so.
func readLetGo(ctx context.Context, r *repository.Repository, c *snapshot.Catalog) (map[backupOf]bool, error) {
	if len(c.Incomplete) == 0 {
		return nil, nil
	}
	names, err := r.PrunedNames(ctx)
	if err != nil {
		return nil, err
	}
	letGo := map[backupOf]bool{}
	for _, name := range names {
		if t, id, err := repository.ParsePrunedName(name); err == nil { // it was parsed when it was listed
			letGo[backupOf{t, id}] = true
		}
	}
	return letGo, nil
}

func (g *globals) printCatalog(r *repository.Repository, c *snapshot.Catalog, ended []repository.Superseded, logs logsReport, verdicts verdict.Chain, pins []repository.Pin, letGo map[backupOf]bool) error {
	listed := catalogReport{
		Repository: r.String(), ID: r.ID(),
		Timelines: emptyNotNull(c.Timelines), Superseded: emptyNotNull(ended), Backups: []listedBackup{},
		Damaged: []damagedReport{}, DamagedTimelines: []damagedReport{}, Incomplete: []incompleteReport{},
		DamagedVerdicts: emptyNotNull(verdicts.Findings),
		logsReport:      logs,
	}
	for _, m := range c.Manifests {
		listed.Backups = append(listed.Backups, listedBackup{m, proved(verdicts, m), pinOf(pins, m)})
	}
	var damage []error
	if d := r.Damage(); d != nil {
		damage = append(damage, &snapshot.DamagedError{Object: "the marker of " + r.String(), Offset: -1, Err: d})
	}
	for _, d := range c.Damaged {
		listed.Damaged = append(listed.Damaged, damagedReport{d.Timeline, d.ID, d.Err.Error()})
		damage = append(damage, d.Err)
	}
	for _, d := range c.DamagedTimelines {
		listed.DamagedTimelines = append(listed.DamagedTimelines, damagedReport{Timeline: d.Timeline, Error: d.Err.Error()})
		damage = append(damage, d.Err)
	}
	for _, full := range c.Incomplete {
		one := incompleteReport{Timeline: full.Timeline, ID: full.ID, LetGo: letGo[backupOf{full.Timeline, full.ID}]}
		for _, o := range full.Objects {
			one.Bytes += o.Size
			if o.ModTime.After(one.Newest) {
				one.Newest = o.ModTime
			}
		}
		listed.Incomplete = append(listed.Incomplete, one)
	}
	for _, f := range verdicts.Findings {
		damage = append(damage, &snapshot.DamagedError{Object: f.Object + " in " + r.String(), Offset: -1, Err: errors.New(f.Text)})
	}
	if g.output == "json" {
		return errors.Join(g.printJSON(listed), errors.Join(damage...))
	}
	return errors.Join(g.tableCatalog(listed), errors.Join(damage...))
}

func (g *globals) tableCatalog(r catalogReport) error {
	if len(r.Timelines) == 0 {
		g.printf("%s: no backups yet\n", r.Repository)
		return nil
	}
	for i, t := range r.Timelines {
		empty := r.empty(t.ID)
		if i > 0 && (!empty || !r.empty(r.Timelines[i-1].ID)) {
			fmt.Fprintln(g.stdout)
		}
		opened := "at a time not known"
		if !t.Created.IsZero() {
			opened = when(t.Created)
		}
		if empty {
			g.printf("Timeline %s, opened %s: %s; nothing in it yet\n", t.ID, opened, t.Reason)
		} else {
			g.printf("Timeline %s, opened %s: %s\n", t.ID, opened, t.Reason)
		}
		if how := howEnded(r.Superseded, t.ID); how != "" {
			g.printf("It has ended: %s\n", how)
		}
		if empty {
			continue
		}
		out := newTable(g.stdout, "ID", "TAKEN", "REVISION", "RAFT INDEX", "SOURCE", "ETCD", "DATABASE", "STORED", "ENCRYPTED", "PROVED", "PINNED")
		for _, m := range r.Backups {
			if m.Timeline == t.ID {
				out.row(m.ID, when(m.Started), fmt.Sprint(m.Facts.Revision), fmt.Sprint(m.Facts.RaftIndex),
					m.MadeFrom(), m.Source.Version, size(m.Object.RawSize), size(m.Object.StoredSize), yesNo(m.Object.Encrypted()), m.Proved.String(), pinned(m.Pinned))
			}
		}
		if err := out.flush(); err != nil {
			return err
		}
		for _, d := range r.Damaged {
			if d.Timeline == t.ID {
				g.printf("%s  damaged\n", d.ID)
			}
		}
		for _, u := range r.Incomplete {
			switch {
			case u.Timeline != t.ID:
			case u.LetGo:
				g.printf("%s  let go: its object goes after the grace (%s, %s)\n", u.ID, size(u.Bytes), when(u.Newest))
			default:
				g.printf("%s  no manifest: interrupted, or under way now (%s, %s)\n", u.ID, size(u.Bytes), when(u.Newest))
			}
		}
		if err := g.tableLog(r.logsReport, t.ID); err != nil {
			return err
		}
	}
	return nil
}

// empty says that there is nothing to tell of a timeline but that it was opened,
// as after a restore whose cluster was not backed up.
func (r *catalogReport) empty(t repository.TimelineID) bool {
	return !slices.ContainsFunc(r.Backups, func(b listedBackup) bool { return b.Timeline == t }) &&
		!slices.ContainsFunc(r.Damaged, func(d damagedReport) bool { return d.Timeline == t }) &&
		!slices.ContainsFunc(r.Incomplete, func(u incompleteReport) bool { return u.Timeline == t }) &&
		!slices.ContainsFunc(r.Logs, func(l logReport) bool { return l.Timeline == t }) &&
		!slices.ContainsFunc(r.Ranges, func(one walreplay.Range) bool { return one.Timeline == t })
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// emptyNotNull keeps JSON lists lists.
func emptyNotNull[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
