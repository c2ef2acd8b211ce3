package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/requorum/requorum/schedule/rescue"
	"github.com/requorum/requorum/schedule/rescue/lineage"
)

// printProspect prints what was found on the hosts and what would be done.
func (g *globals) printProspect(p *rescue.Prospect) error {
	if g.output == "json" {
		return g.printJSON(p)
	}
	g.printf("Cluster %s\n", p.Cluster)
	if p.Run != "" {
		g.printf("Run %s is under way; it goes on with: %s\n", p.Run, p.Reached)
	}
	g.printHosts(p)
	g.printQuorum(p.Quorum)
	if p.Plan != nil && (len(p.Plan.Candidates) > 0 || len(p.Unsurveyed) == 0) {
		fmt.Fprintln(g.stdout)
		g.printDecision(p.Plan, p.Findings)
		if p.Plan.Chosen != "" {
			g.printNewMembers(p.Members)
			g.printIntent(hostIntent(p))
		}
	}
	g.printStaleFlags(p)
	if len(p.Unsurveyed) > 0 {
		g.printf("\n%s: what %s is read once %s stopped, and the plan is made anew then\n", strings.Join(p.Unsurveyed, ", "),
			plural(len(p.Unsurveyed), "this one holds", "these hold"), plural(len(p.Unsurveyed), "it is", "they are"))
	}
	for _, w := range p.Warnings {
		if !saysUnproven(p.Plan, w) {
			g.printItem("Warning: ", w)
		}
	}
	if len(p.Obstacles) > 0 {
		fmt.Fprintln(g.stdout, "\nIt would be refused now:")
		for _, o := range p.Obstacles {
			g.printItem("  - ", o)
		}
	}
	return nil
}

func (g *globals) printHosts(p *rescue.Prospect) {
	asked := slices.ContainsFunc(p.Hosts, func(h rescue.HostState) bool { return h.Repositories != nil || h.Unasked != "" })
	columns := []string{"  HOST OF", "CONTROL", "KIND", "STATE", "DATA DIRECTORY"}
	if asked {
		columns = append(columns, "REPOSITORIES")
	}
	out := newTable(g.stdout, columns...)
	for _, h := range p.Hosts {
		cells := []string{"  " + h.Member, h.Address, orDash(string(h.Kind)), h.Word(), orDash(h.DataDir)}
		if asked {
			cells = append(cells, h.RepositoriesWord())
		}
		out.row(cells...)
	}
	out.flush() //nolint:errcheck // the user's own terminal or pipe
	for _, h := range p.Hosts {
		for _, r := range h.Repositories {
			if why := r.Unreadable(); why != "" {
				g.printItem("  "+h.Member+": ", "does not read "+r.URL+": "+why)
			}
		}
		switch {
		case h.Answers:
			g.printf("  %s: its control process cannot be worked with: %s\n", h.Member, h.Unreachable)
		case h.Unreachable != "":
			g.printf("  %s: its control process does not answer: %s\n", h.Member, h.Unreachable)
		}
		if h.Unclear != "" {
			g.printf("  %s: whether it runs is not clear: %s\n", h.Member, h.Unclear)
		}
		if h.Holder != "" && h.Holder != p.Run {
			g.printf("  %s: it belongs to run %s\n", h.Member, h.Holder)
		}
		for _, step := range h.Manual {
			g.printItem("  "+h.Member+": by hand: ", step)
		}
	}
}

func (g *globals) printQuorum(q rescue.Quorum) {
	switch {
	case q.Serves:
		g.printf("The cluster SERVES: member %s answered a linearizable read\n", q.By)
	case q.Unknown != "":
		g.printf("Whether the cluster serves is not known: %s\n", q.Unknown)
	default:
		g.printf("The cluster does not serve: no linearizable read was answered\n")
	}
	for _, a := range q.Answers {
		g.printItem("  ", a)
	}
}

// hostIntent is what would be done on each host.
func hostIntent(p *rescue.Prospect) []string {
	var all []string
	for _, h := range p.Hosts {
		var steps []string
		if len(h.Clients) > 0 {
			var names []string
			for _, c := range h.Clients {
				names = append(names, c.Name)
			}
			steps = append(steps, "stop "+strings.Join(names, ", "))
		}
		if h.Runs {
			steps = append(steps, "stop the member")
		}
		for _, m := range p.Members {
			if m.Name == h.Member || m.Old == h.Member {
				steps = append(steps, "set aside what is in "+orNone(h.DataDir), "rebuild "+m.Name, "start it")
			}
		}
		switch {
		case h.Unreachable != "":
			steps = []string{"nothing: its control process does not answer"}
		case len(steps) == 0:
			steps = []string{"nothing"}
		}
		all = append(all, h.Member+": "+strings.Join(steps, ", "))
	}
	for _, name := range p.Left {
		all = append(all, name+": gets no new member, and stays stopped with its data set aside, so that no reboot starts it")
	}
	return append(all, "then: all members are proved to serve the same, the old timeline ends, clients start, a full snapshot is taken")
}

// printStaleFlags prints which of etcd's flags the new members would make stale.
func (g *globals) printStaleFlags(p *rescue.Prospect) {
	for _, f := range p.Flags {
		switch {
		case f.ByHand != "":
			g.printItem("", fmt.Sprintf("flags on %s are stale, and are to be changed by hand: %s (in %s: %s)", f.Member, f.Words(), f.In, f.ByHand))
		case p.UpdateFlags:
			g.printItem("", fmt.Sprintf("flags on %s are brought in line, in %s: %s", f.Member, f.In, f.Words()))
		default:
			g.printItem("", fmt.Sprintf("flags on %s are stale, in %s: %s; --update-flags brings them in line", f.Member, f.In, f.Words()))
		}
	}
}

// printRescued prints what a recovery did.
func (g *globals) printRescued(r *rescue.Report) error {
	if g.output == "json" {
		return g.printJSON(r)
	}
	if r.GivenUp != "" {
		for _, h := range r.Hosts {
			g.printf("%s: clients that run %s had stopped are started again\n", h.Member, r.GivenUp)
		}
		fmt.Fprintf(g.stdout, "Run %s is given up: cluster %s serves, and nothing of it had been set aside.\n", r.GivenUp, r.Cluster)
		g.printAfter(r.Incomplete, r.Warnings, r.Next)
		return nil
	}
	if r.Inherited != "" {
		fmt.Fprintf(g.stdout, "Run %s had been begun elsewhere, and was completed from here.\n", r.Inherited)
	}
	if r.WentOn {
		fmt.Fprintf(g.stdout, "Run %s had been begun before, and went on.\n", r.Run)
	}
	g.printf("Recovered cluster %s as cluster %s at revision %d%s\n", r.Cluster, r.NewClusterID, r.RevisionBefore, raised(r))
	for _, h := range r.Hosts {
		g.printHostReport(h)
	}
	if r.Proof != nil {
		for _, s := range r.Proof.Proved {
			g.printf("proved: %s\n", s)
		}
		for _, s := range r.Proof.Unproved {
			g.printItem("not proved: ", s)
		}
		for _, m := range r.Proof.Missing {
			g.printf("not up yet: %s: %s\n", m.Name, m.Why)
		}
	}
	g.printLineage(r.Lineage)
	for _, s := range r.Snapshots {
		if s.Error != "" {
			g.printf("%s: no full snapshot was taken: %s\n", s.Repository, s.Error)
			continue
		}
		g.printf("%s: full snapshot %s\n", s.Repository, s.Backup)
	}
	g.printTimes(r)
	g.printLost(r.Plan)
	said := func(w string) bool {
		return saysUnproven(r.Plan, w) || r.Proof != nil && slices.Contains(r.Proof.Unproved, strings.TrimPrefix(w, "not proved: "))
	}
	g.printAfter(r.Incomplete, slices.DeleteFunc(slices.Clone(r.Warnings), said), r.Next)
	return nil
}

func raised(r *rescue.Report) string {
	if r.RevisionAfter == r.RevisionBefore {
		return ""
	}
	return fmt.Sprintf(", raised to %d, and all before is marked compacted", r.RevisionAfter)
}

func (g *globals) printHostReport(h rescue.HostReport) {
	switch {
	case h.Dead:
		g.printf("%s: declared dead, passed by\n", h.Member)
	case h.Left:
		g.printf("%s: no new member; it stays stopped, and what was there is set aside\n", h.Member)
	}
	if a := h.Aside; a != nil && len(a.Paths()) > 0 {
		g.printf("%s: the old data is in %s\n", h.Member, strings.Join(a.Paths(), " and "))
	}
	for _, b := range h.Brought {
		g.printf("%s: %s of %s from %s in %s\n", h.Member, size(b.Bytes), b.Owner, b.From, took(b.Took))
	}
}

// printTimes prints how long it took, phase by phase.
func (g *globals) printTimes(r *rescue.Report) {
	out := newTable(g.stdout, "PHASE", "TOOK")
	for _, p := range r.Phases {
		out.row(string(p.Phase), took(p.Took))
	}
	out.flush() //nolint:errcheck // the user's own terminal or pipe
	g.printf("RTO %s: from the first change to the proof\n", took(r.RTO.Round(time.Millisecond)))
	if r.ClientsBack > 0 {
		g.printf("Clients were back after %s\n", took(r.ClientsBack.Round(time.Millisecond)))
	}
}

// printLineage prints what was written into the repositories.
func (g *globals) printLineage(all []lineage.Done) {
	for _, d := range all {
		for _, w := range d.Warnings {
			g.printf("note: %s: %s\n", d.Repository, w)
		}
		switch {
		case d.Failed != "":
			g.printf("%s: not told: %s\n", d.Repository, d.Failed)
		case len(d.Reinstated) > 0:
			g.printf("%s: timeline %s lives again, %s has ended\n", d.Repository, joined(d.Reinstated), d.Timeline)
		case len(d.Superseded) > 0:
			g.printf("%s: timeline %s goes on in the place of %s\n", d.Repository, d.Timeline, joined(d.Superseded))
		default:
			g.printf("%s: timeline %s goes on; no living timeline of the old cluster was there to end\n", d.Repository, d.Timeline)
		}
	}
}

func (g *globals) printAfter(incomplete, warnings, next []string) {
	for _, t := range incomplete {
		g.printItem("INCOMPLETE: ", t)
	}
	for _, w := range warnings {
		g.printItem("Warning: ", w)
	}
	if len(next) > 0 {
		fmt.Fprintln(g.stdout, "Next:")
		for _, n := range next {
			g.printItem("  - ", n)
		}
	}
}
