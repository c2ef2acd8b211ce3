package main

import (
	"fmt"
	"strings"

	"github.com/requorum/requorum/schedule/retention"
)

// tablePlan prints what stays and what goes, and what can be restored.
func (g *globals) tablePlan(p *retention.Plan, dryRun bool) error {
	out := newTable(g.stdout, "BACKUP", "TAKEN", "WHAT", "WHY")
	for _, w := range p.Windows {
		for _, k := range p.Keep {
			if k.Timeline == w.Timeline {
				out.row(k.Backup, when(k.Taken), "stays", strings.Join(k.Reasons, ", "))
			}
		}
		for _, l := range p.Let {
			if l.Timeline == w.Timeline {
				out.row(l.Backup, when(l.Taken), map[bool]string{true: "would go", false: "goes"}[dryRun], l.Why)
			}
		}
	}
	if err := out.flush(); err != nil {
		return err
	}
	for _, l := range p.Leftovers {
		g.printf("Goes: %s in the folder of %s, %s (%s)\n", counted(len(l.Objects), "object", "objects"), l.Backup, l.Kind, size(l.Bytes))
	}
	for _, l := range p.Log {
		g.printf("Log of timeline %s before raft index %d goes: %s, %s (%s)\n", l.Timeline, l.Before, counted(l.Segments, "segment", "segments"), size(l.Bytes), l.Why)
	}
	for _, l := range p.Later {
		until := "when that has ended"
		if !l.Until.IsZero() {
			until = "after " + when(l.Until)
		}
		g.printf("Later, %s: backup %s: %s\n", until, l.Backup, l.Why)
	}
	for _, note := range p.Notes {
		g.printf("Note: %s\n", note)
	}
	for _, w := range p.Windows {
		g.printf("Timeline %s can be restored\n", w.Timeline)
		g.printRecoverable("before", w.Before)
		g.printRecoverable("after", w.After)
		if !w.From.IsZero() {
			g.printf("  every point is kept from %s on\n", when(w.From.Add(p.Policy.Grace)))
		}
	}
	if dryRun {
		g.printf("Nothing was deleted.\n")
	}
	return nil
}

// printRecoverable prints runs of points, and how many single ones there are.
func (g *globals) printRecoverable(label string, all []retention.Recoverable) {
	single := 0
	for _, r := range all {
		if r.FirstIndex == r.LastIndex {
			single++
			continue
		}
		g.printf("  %s: every point from raft index %d (backup %s of %s) to %d\n", label, r.FirstIndex, r.FirstBackup, when(r.From), r.LastIndex)
	}
	if single > 0 || len(all) == 0 {
		g.printf("  %s: %s\n", label, counted(single, "single full snapshot", "single full snapshots"))
	}
}

// printPruned prints what was done.
func (g *globals) printPruned(r retention.Result) {
	for _, s := range r.Spared {
		g.printf("Stays after all: backup %s: %s\n", s.Backup, s.Why)
	}
	text := fmt.Sprintf("Let go: %s. Deleted: %s of backups, %s, %s, %s. Freed: %s",
		counted(r.Backups, "full snapshot", "full snapshots"), counted(r.Objects, "object", "objects"),
		counted(r.Segments, "log segment", "log segments"), counted(r.Marks+r.Gaps, "mark or gap record", "marks and gap records"),
		counted(r.Swept, "old record", "old records"), size(r.BytesGone))
	if r.Locked > 0 {
		text += fmt.Sprintf(". Locked, and left for later: %s", counted(r.Locked, "object", "objects"))
	}
	g.printf("%s\n", text)
}

// counted is a number and what it counts.
func counted(n int, one, many string) string { return fmt.Sprintf("%d %s", n, plural(n, one, many)) }
