package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/signing"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
)

func newListCommand(g *globals) *cobra.Command {
	var repo repoFlags
	cmd := &cobra.Command{
		Use:     "list --repo URL",
		Aliases: []string{"ls"},
		Short:   "List the timelines, full snapshots and recoverable ranges in a repository",
		Long: `List what a repository holds: its timelines (one for each incarnation of the
cluster), the full snapshots in each, the oldest state first, and what the
archived log adds: the ranges in which every point can be restored, and the gaps
between them with their reasons. PROVED says what 'requorum verify' has proved of
each backup, and when. Each unusable object is named with the reason, and ends the
command with status 3: it is damaged, was altered or moved, or no key that --trust names
signed it. So do log entries that are missing although no gap was recorded, or no full
snapshot was taken after it.
Only 'requorum verify' reads all objects.`,
		Example: `  requorum list --repo file:///var/backups/etcd
  requorum list --repo 's3://backups/etcd?region=eu-central-1' --output json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return repo.with(cmd.Context(), g, func(r *repository.Repository) error { return g.list(cmd.Context(), r) })
		},
	}
	repo.addFlags(cmd.Flags(), false)
	return cmd
}

// list prints all that could be read, with the errors of the rest.
func (g *globals) list(ctx context.Context, r *repository.Repository) error {
	c, err := walreplay.ReadInventory(ctx, r)
	if err != nil {
		return err
	}
	logs, errLogs := readLogs(ctx, c)
	verdicts, errVerdicts := g.readVerdicts(ctx, r)
	pins, errPins := r.Pins(ctx)
	incomplete, errPruned := readIncomplete(ctx, c)
	ended, errEnded := readEnded(ctx, r, c.Timelines)
	current, over, errCurrent := currentTimeline(ctx, c)
	listed := catalogReport{
		Repository: r.String(), ID: r.ID(), Current: current, StartedOver: over,
		Timelines: emptyNotNull(c.Timelines), Superseded: emptyNotNull(ended), Backups: []listedBackup{},
		Incomplete: incomplete, Unusable: []unusableReport{}, logsReport: logs,
	}
	for _, m := range c.Manifests {
		listed.Backups = append(listed.Backups, listedBackup{m, proved(verdicts, m), pins[repository.PinName(m.Timeline, m.ID)], m.Stored.SignedBy})
	}
	var errs []error
	for _, u := range r.Unusable() {
		if !snapshot.IsDamaged(u.Err) && !errors.Is(u.Err, snapshot.ErrNewerFormat) {
			u.Err = &snapshot.DamagedError{Object: u.Object + " in " + r.String(), Offset: -1, Err: u.Err}
		}
		listed.Unusable = append(listed.Unusable, unusableReport{u.Object, u.Err.Error()})
		errs = append(errs, u.Err)
	}
	if g.output == "json" {
		errs = append(errs, g.printJSON(listed))
	} else {
		errs = append(errs, tableCatalog(g.stdout, listed))
	}
	if d := r.Damage(); d != nil {
		errs = append(errs, &snapshot.DamagedError{Object: "the marker of " + r.String(), Offset: -1, Err: d})
	}
	for _, one := range listed.Ranges {
		if one.Damage {
			errs = append(errs, &snapshot.DamagedError{Object: fmt.Sprintf("the archived log of timeline %s in %s", one.Timeline, r), Offset: -1,
				Err: fmt.Errorf("raft index %d to %d cannot be restored: %s", one.FirstIndex, one.LastIndex, one.Reason)})
		}
	}
	return errors.Join(append(errs, errLogs, errCurrent, errVerdicts, errPins, errPruned, errEnded)...)
}

// currentTimeline is the one that a restore takes; nil where that is for the user to
// say, or there is none. over says why if the cluster started over.
func currentTimeline(ctx context.Context, c *walreplay.Inventory) (current *repository.TimelineID, over string, err error) {
	m, err := c.Find(ctx, snapshot.Latest, "")
	var damaged *snapshot.Unusable
	var startedOver *snapshot.StartedOverError
	switch {
	case err == nil:
		return &m.Timeline, "", nil
	case errors.As(err, &startedOver):
		return nil, err.Error(), nil
	case errors.As(err, &damaged), errors.Is(err, snapshot.ErrAmbiguous), errors.Is(err, snapshot.ErrNoBackup):
		return nil, "", nil
	}
	return nil, "", err
}

// catalogReport is the JSON form of `requorum list`.
type catalogReport struct {
	Repository string                `json:"repository"`
	ID         string                `json:"id"`
	Timelines  []repository.Timeline `json:"timelines"` // in the order in which they were opened
	// Current is the timeline that a restore takes where none is named; nil where it
	// takes none.
	Current *repository.TimelineID `json:"current_timeline,omitempty"`
	// StartedOver says that the cluster began again without archived writes, and that
	// nobody has answered; empty if not.
	StartedOver string `json:"started_over,omitempty"`
	// Superseded are the marks of timelines that have ended.
	Superseded []repository.Superseded `json:"superseded"`
	Backups    []listedBackup          `json:"backups"`
	Incomplete []incompleteReport      `json:"incomplete"`
	Unusable   []unusableReport        `json:"unusable"`
	logsReport
}

// listedBackup is a manifest, and what verdicts say of it.
type listedBackup struct {
	*snapshot.Manifest
	Proved *provedReport `json:"proved,omitempty"`
	// Pinned is nil for one that is not.
	Pinned *repository.Pin `json:"pinned,omitempty"`
	// SignedBy is nil if nobody signed the manifest.
	SignedBy *signing.SignedBy `json:"signed_by,omitempty"`
}

// unusableReport is an object that is passed over, and why.
type unusableReport struct {
	Object string `json:"object"`
	Error  string `json:"error"`
}

// in reports whether the object is in a timeline's folder.
func (u unusableReport) in(t repository.TimelineID) bool {
	return strings.HasPrefix(u.Object, t.String()+"/")
}

type incompleteReport struct {
	Timeline repository.TimelineID `json:"timeline"`
	ID       string                `json:"id"`
	Bytes    int64                 `json:"bytes"`
	Newest   time.Time             `json:"newest"`
	// Pruned says that it is no interrupted backup: it was pruned, and its object
	// goes after the grace.
	Pruned bool `json:"pruned,omitempty"`
}

// readIncomplete are the backups without a manifest. What it returns is of use also with
// an error.
func readIncomplete(ctx context.Context, c *walreplay.Inventory) ([]incompleteReport, error) {
	all := []incompleteReport{}
	if len(c.Incomplete) == 0 {
		return all, nil
	}
	names, err := c.Repo.PrunedNames(ctx)
	pruned := map[string]bool{}
	for _, name := range names {
		pruned[name] = true
	}
	for _, full := range c.Incomplete {
		one := incompleteReport{Timeline: full.Timeline, ID: full.ID, Pruned: pruned[repository.PrunedName(full.Timeline, full.ID)]}
		for _, o := range full.Objects {
			one.Bytes += o.Size
			if o.ModTime.After(one.Newest) {
				one.Newest = o.ModTime
			}
		}
		all = append(all, one)
	}
	return all, err
}

func tableCatalog(w io.Writer, r catalogReport) error {
	defer func() {
		if r.StartedOver != "" {
			fmt.Fprintln(w)
			for line := range strings.Lines("NO DEFAULT: " + r.StartedOver) {
				printf(w, "%s\n", strings.TrimSuffix(line, "\n"))
			}
		}
		for _, u := range r.Unusable {
			if !slices.ContainsFunc(r.Timelines, func(t repository.Timeline) bool { return u.in(t.ID) }) {
				printf(w, "UNUSABLE: %s\n", u.Error)
			}
		}
	}()
	if len(r.Timelines) == 0 {
		printf(w, "%s: no backups yet\n", r.Repository)
		return nil
	}
	for i, t := range r.Timelines {
		empty := r.empty(t.ID)
		if i > 0 && (!empty || !r.empty(r.Timelines[i-1].ID)) {
			fmt.Fprintln(w)
		}
		opened := "at a time not known"
		if !t.Created.IsZero() {
			opened = when(t.Created)
		}
		if empty {
			printf(w, "Timeline %s, opened %s: %s; nothing in it yet\n", t.ID, opened, t.Reason)
		} else {
			printf(w, "Timeline %s, opened %s: %s\n", t.ID, opened, t.Reason)
		}
		if r.Current != nil && *r.Current == t.ID && len(r.Timelines) > 1 {
			printf(w, "This is the current one: a restore takes it where none is named\n")
		}
		if how := howEnded(r.Superseded, t.ID); how != "" {
			printf(w, "It has ended: %s\n", how)
		}
		if empty {
			continue
		}
		out := newTable(w, "ID", "TAKEN", "REVISION", "RAFT INDEX", "SOURCE", "ETCD", "DATABASE", "STORED", "ENCRYPTED", "PROVED", "PINNED")
		for _, m := range r.Backups {
			if m.Timeline == t.ID {
				out.row(m.ID, when(m.Started), fmt.Sprint(m.Facts.Revision), fmt.Sprint(m.Facts.RaftIndex),
					cmp.Or(m.Source.Name, m.Source.MemberID.String()), m.Source.Version, size(m.Object.RawSize), size(m.Object.StoredSize), map[bool]string{true: "yes", false: "no"}[m.Object.Encrypted()], m.Proved.String(), pinned(m.Pinned))
			}
		}
		if err := out.flush(); err != nil {
			return err
		}
		for _, u := range r.Unusable {
			if u.in(t.ID) {
				printf(w, "UNUSABLE: %s\n", u.Error)
			}
		}
		for _, u := range r.Incomplete {
			switch {
			case u.Timeline != t.ID:
			case u.Pruned:
				printf(w, "%s  pruned: its object is deleted after the grace (%s, %s)\n", u.ID, size(u.Bytes), when(u.Newest))
			default:
				printf(w, "%s  no manifest: interrupted, or under way now (%s, %s)\n", u.ID, size(u.Bytes), when(u.Newest))
			}
		}
		if err := tableLog(w, r.logsReport, t.ID); err != nil {
			return err
		}
	}
	return nil
}

// empty says that there is nothing to say of a timeline but that it was opened,
// as after a restore whose cluster was not backed up.
func (r *catalogReport) empty(t repository.TimelineID) bool {
	return !slices.ContainsFunc(r.Backups, func(b listedBackup) bool { return b.Timeline == t }) &&
		!slices.ContainsFunc(r.Unusable, func(u unusableReport) bool { return u.in(t) }) &&
		!slices.ContainsFunc(r.Incomplete, func(u incompleteReport) bool { return u.Timeline == t }) &&
		!slices.ContainsFunc(r.Logs, func(l logReport) bool { return l.Timeline == t }) &&
		!slices.ContainsFunc(r.Ranges, func(one walreplay.Range) bool { return one.Timeline == t })
}

// emptyNotNull keeps JSON lists lists.
func emptyNotNull[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// logsReport is what the archived logs add to the JSON form of `requorum list`.
type logsReport struct {
	// Ranges are the parts of each timeline in which every point can be
	// restored, and the gaps between them.
	Ranges []walreplay.Range `json:"ranges"`
	Logs   []logReport       `json:"logs"`
}

// logReport is the archived log of one timeline, as its headers show.
type logReport struct {
	Timeline repository.TimelineID `json:"timeline"`
	Segments int                   `json:"segments"` // objects that hold the log: none that a merged one replaces
	Small    int                   `json:"small"`    // of these, not merged
	Marks    int                   `json:"marks"`    // objects that say that a quiet cluster was watched
	Bytes    int64                 `json:"bytes"`
}

// readLogs lists the archived logs and reads their headers. What it returns is
// of use also with an error.
func readLogs(ctx context.Context, c *walreplay.Inventory) (logsReport, error) {
	report := logsReport{Ranges: []walreplay.Range{}, Logs: []logReport{}}
	ranges, err := c.Ranges(ctx)
	report.Ranges = emptyNotNull(ranges)
	for _, t := range c.Timelines {
		log := c.Log(t.ID)
		if log == nil {
			continue
		}
		one := logReport{Timeline: t.ID, Marks: len(log.Heartbeat())}
		for _, h := range log.Headers() {
			one.Bytes += h.Size()
			one.Segments++
			if h.Level == 0 {
				one.Small++
			}
		}
		if one.Segments > 0 {
			report.Logs = append(report.Logs, one)
		}
	}
	return report, err
}

// tableLog prints the ranges of one timeline and the size of its log.
func tableLog(w io.Writer, r logsReport, t repository.TimelineID) error {
	for _, l := range r.Logs {
		if l.Timeline == t {
			printf(w, "Archived log: %s in %s, %d of them not merged yet\n", size(l.Bytes), report.Counted(l.Segments, "segment", "segments"), l.Small)
		}
	}
	out := newTable(w)
	for _, one := range r.Ranges {
		if one.Timeline != t || !one.Gap && one.FirstIndex == one.LastIndex {
			continue // a snapshot alone is in the table above
		}
		if one.Gap && !r.hasSnapshot(t) {
			printf(w, "Nothing of it can be restored: %s. Take one with 'requorum backup'.\n", one.Reason)
			continue
		}
		if one.Gap {
			out.row("  not recoverable", fmt.Sprintf("raft index %d to %d", one.FirstIndex, one.LastIndex), one.Reason)
			continue
		}
		out.row("  recoverable", "revision "+revisions(one), fmt.Sprintf("raft index %d to %d", one.FirstIndex, one.LastIndex), times(one))
	}
	return out.flush()
}

// hasSnapshot reports whether a timeline has a full snapshot: each is in a range.
func (r logsReport) hasSnapshot(t repository.TimelineID) bool {
	return slices.ContainsFunc(r.Ranges, func(one walreplay.Range) bool { return one.Timeline == t && !one.Gap })
}

func revisions(r walreplay.Range) string {
	if r.LastRevision == 0 {
		return fmt.Sprintf("%d on", r.FirstRevision)
	}
	return fmt.Sprintf("%d to %s", r.FirstRevision, lastRevision(r))
}

func times(r walreplay.Range) string { return whenKnown(r.From) + " to " + whenKnown(r.To) }

func whenKnown(t time.Time) string {
	if t.IsZero() {
		return "a time not known"
	}
	return when(t)
}

// readEnded finds out which timelines have ended, and by what. What it returns is
// of use also with an error.
func readEnded(ctx context.Context, r *repository.Repository, timelines []repository.Timeline) ([]repository.Superseded, error) {
	ended := []repository.Superseded{}
	var failed []error
	for _, t := range timelines {
		s, is, err := r.Superseded(ctx, t.ID)
		switch {
		case errors.Is(err, repository.ErrAltered):
			failed = append(failed, &snapshot.DamagedError{Object: "the mark that ends timeline " + t.ID.String() + " in " + r.String(), Offset: -1, Err: err})
		case err != nil:
			return ended, err
		case is:
			ended = append(ended, s)
		}
	}
	return ended, errors.Join(failed...)
}

// howEnded says that a timeline ended; empty where it did not.
func howEnded(ended []repository.Superseded, t repository.TimelineID) string {
	for _, s := range ended {
		switch {
		case s.Timeline != t:
		case s.Undone:
			return fmt.Sprintf("the recovery that opened it was taken back on %s, and %s goes on: %s", when(s.Created), s.By, s.Reason)
		default:
			return fmt.Sprintf("superseded by %s on %s: %s", s.By, when(s.Created), s.Reason)
		}
	}
	return ""
}
