package main

import (
	"fmt"
	"strings"

	"github.com/requorum/requorum/restore"
)

// restoreReport is the JSON form of `requorum restore`.
type restoreReport struct {
	Restore *restore.Result `json:"restore"`
	// Timeline is the new cluster's in the repository it was restored from.
	Timeline string `json:"timeline,omitempty"`
	// TimelineError says why that timeline could not be recorded there.
	TimelineError string `json:"timeline_error,omitempty"`
	// Endpoints are the client URLs with --start.
	Endpoints []string `json:"endpoints,omitempty"`
}

// planReport is the JSON form of `requorum restore --dry-run`.
type planReport struct {
	Plan *restore.Plan      `json:"plan"`
	Host *restore.Readiness `json:"host"`
	// Point is what the target came to; nil where no point was asked for.
	Point *pointReport `json:"point,omitempty"`
}

// pointReport is what a target came to.
type pointReport struct {
	Target    string `json:"target"`
	Base      string `json:"base"`
	BaseIndex uint64 `json:"base_index"`
	// Entries are those to replay; with Rebuilt they were replayed, in a scratch
	// folder, and Index and Revision are exact.
	Entries       uint64 `json:"entries"`
	Index         uint64 `json:"index"`
	Revision      int64  `json:"revision"`
	RevisionExact bool   `json:"revision_exact"`
	Time          string `json:"time,omitempty"`
	Change        string `json:"change,omitempty"`
	Rebuilt       bool   `json:"rebuilt"`
}

// pointReport is nil where the source is an image as it is.
func (s *restoreSource) pointReport() *pointReport {
	p := s.point
	if p == nil {
		return nil
	}
	r := &pointReport{
		Target: p.Target.String(), Base: p.Base.Name, BaseIndex: p.Base.Index(),
		Entries: p.Entries(), Index: p.Last, Revision: p.Revision, RevisionExact: !p.AtLeast, Time: p.Time,
	}
	if p.Change != nil {
		r.Change = p.Change.String()
	}
	if s.rebuilt != nil && s.rebuilt.Recipe != nil {
		c := s.rebuilt.Recipe
		r.Entries, r.Index, r.Revision, r.RevisionExact, r.Time, r.Rebuilt = c.Entries, c.Index, c.Revision, true, c.Time, true
	}
	return r
}

func (g *globals) printPoint(r *pointReport) {
	if r == nil {
		return
	}
	least := ""
	if !r.RevisionExact {
		least = "at least "
	}
	g.printf("Target %s: raft index %d, revision %s%d", r.Target, r.Index, least, r.Revision)
	if r.Time != "" {
		g.printf(", written %s", r.Time)
	}
	g.printf("\n  from %s at raft index %d and %d entries of the log\n", r.Base, r.BaseIndex, r.Entries)
	if r.Rebuilt {
		fmt.Fprintln(g.stdout, "  (replayed in a scratch folder to find out, and removed)")
	}
}

func (g *globals) printPlan(p *restore.Plan, host *restore.Readiness, point *pointReport) error {
	if g.output == "json" {
		return g.printJSON(planReport{p, host, point})
	}
	f := p.Source.Facts
	if point != nil && !point.Rebuilt && point.Entries > 0 {
		g.printf("Would restore %s\n  database of up to about %s\n", p.Source.Name, size(p.Source.Size))
	} else {
		g.printf("Would restore %s\n  revision %d, raft index %d, database %s\n", p.Source.Name, f.Revision, f.RaftIndex, size(p.Source.Size))
	}
	g.printPoint(point)
	g.printf("into cluster %s (token %s)\n", p.ClusterID, p.ClusterToken)
	g.printMembers(p.Members)
	g.printPlannedBump(p.Bump, point)
	if host != nil {
		for _, m := range host.Members {
			for _, path := range m.SetAside {
				g.printf("%s: %s would be set aside\n", m.Name, path)
			}
			if m.Replaces {
				g.printf("%s: an unfinished restore would be replaced\n", m.Name)
			}
		}
		for _, fs := range host.FileSystems {
			g.printf("needs %s below %s, free are %s\n", size(fs.Need), fs.Path, size(fs.Free))
		}
		g.printNotes(host.Notes)
		if host.Completes != nil {
			g.printf("an earlier run of the same request (plan %s) would be completed\n", host.Completes.ID)
		}
	}
	g.printNotes(p.Notes)
	fmt.Fprintln(g.stdout, "Nothing was changed.")
	return nil
}

func (g *globals) printMembers(members []restore.Member) {
	out := newTable(g.stdout, "  MEMBER", "ID", "PEER URLS", "ROLE", "DATA DIRECTORY")
	for _, m := range members {
		role := "voter"
		if m.Learner {
			role = "learner"
		}
		out.row("  "+m.Name, m.ID.String(), strings.Join(m.PeerURLs, ","), role, m.DataDir)
	}
	out.flush() //nolint:errcheck // the user's own terminal or pipe
}

func (g *globals) printBump(b *restore.Bump) {
	if b != nil {
		g.printf("revision %d is bumped by %d to %d and all before is marked compacted: %s\n", b.From, b.Amount, b.NewRevision, b.Reason)
	}
}

// printPlannedBump leaves the numbers out where only the replay tells them.
func (g *globals) printPlannedBump(b *restore.Bump, point *pointReport) {
	if b == nil || point == nil || point.RevisionExact {
		g.printBump(b)
		return
	}
	fmt.Fprintln(g.stdout, "the revision is bumped and all before is marked compacted; from which one to which the replay tells")
}

func (g *globals) printNotes(notes []string) {
	for _, n := range notes {
		g.printf("note: %s\n", n)
	}
}

func (g *globals) printRestore(r restoreReport) error {
	if g.output == "json" {
		return g.printJSON(r)
	}
	g.printBuilt(r.Restore)
	if r.TimelineError != "" {
		g.printf("note: the repository does not know of the new timeline %s (%s); its first backup will not name its parent\n", r.Timeline, r.TimelineError)
	}
	g.printStart(r.Restore)
	return nil
}

// printBuilt tells which members were built.
func (g *globals) printBuilt(r *restore.Result) {
	p := r.Plan
	if r.CompletedEarlier {
		fmt.Fprintln(g.stdout, "An earlier run of the same request had everything in place; it is completed.")
	}
	g.printf("Restored %s at revision %d into cluster %s in %s\n", p.Source.Name, r.RevisionBefore, p.ClusterID, took(r.Took()))
	g.printAsked(p.Source)
	for _, m := range r.Members {
		for _, path := range m.SetAside {
			g.printf("%s: set aside %s\n", m.Name, path)
		}
	}
	g.printBump(p.Bump)
	for _, a := range r.AlarmsCleared {
		g.printf("alarm %s of member %s was cleared\n", a.Type, a.MemberID)
	}
	if r.DowngradeEnded != "" {
		g.printf("a downgrade to %s was under way; the new cluster is not downgrading\n", r.DowngradeEnded)
	}
	g.printNotes(p.Notes)
}

// printAsked holds what was asked for against what it came to: a time is as exact
// as the observations around it.
func (g *globals) printAsked(s restore.Source) {
	if s.Target == "" || s.Recipe == nil {
		return
	}
	written := ""
	if s.Recipe.Time != "" {
		written = ", the last entry written " + s.Recipe.Time
	}
	g.printf("  for %s: raft index %d%s\n", s.Target, s.Recipe.Index, written)
}

// printStart tells how to start what was built.
func (g *globals) printStart(r *restore.Result) {
	fmt.Fprintln(g.stdout, "Start the members with their usual listen addresses and certificates, and:")
	for _, m := range r.Members {
		g.printf("  etcd %s\n", strings.Join(m.Flags, " "))
	}
}
