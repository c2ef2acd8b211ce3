package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery"
)

// printRecovery prints what was found and what would be done: all that the one who
// is asked needs to know. intent are sentences about the doing.
func (g *globals) printRecovery(r recoveryReport, intent []string) error {
	if g.output == "json" {
		return g.printJSON(r)
	}
	if r.Plan == nil {
		return nil
	}
	g.printDecision(r.Plan, r.Findings)
	if r.Plan.Chosen == "" {
		return nil
	}
	g.printNewMembers(r.Members)
	g.printIntent(intent)
	if r.Host != nil {
		g.printSite(r.Host)
	}
	return nil
}

// unchanged ends what was only shown.
func (g *globals) unchanged() error {
	if g.output == "json" {
		return nil
	}
	_, err := fmt.Fprintln(g.stdout, "Nothing was changed.")
	return err
}

// endOfPlan parts the plan from what is asked and done.
func (g *globals) endOfPlan() error {
	_, err := fmt.Fprintln(g.stdout)
	return err
}

// printDecision prints the candidates, the findings and what was decided.
func (g *globals) printDecision(p *recovery.Plan, f *recovery.Findings) {
	if len(p.Histories) > 1 {
		fmt.Fprintln(g.stdout, "Histories that went different ways; they are never mixed:")
		for _, h := range p.Histories {
			g.printf("  %d  %s\n", h.Number, h.Why)
		}
		fmt.Fprintln(g.stdout)
	}
	g.printCandidates(p)
	g.printFindings(p, f)
	if p.Chosen == "" {
		return
	}
	fmt.Fprintln(g.stdout)
	c := p.Candidate(p.Chosen)
	g.printf("Chosen: %s, %s. %s\n", c.Name, madeOf(c), sentence(c.Why))
	if p.Target != "" && p.Target != "the end of the log" {
		g.printf("Up to: %s\n", p.Target)
	}
	if p.Proven {
		g.printf("PROVEN: %s\n", p.Why)
	} else {
		g.printf("UNPROVEN: %s\n", p.Why)
	}
	g.printf("Lost: %s\n", p.Loss.Text)
	g.printFence(p.Fence)
	g.printBumpDecision(p.Bump)
	for _, w := range p.Warnings {
		if !saysUnproven(p, w) && !slices.ContainsFunc(c.Findings, func(f recovery.Finding) bool { return w == c.Name+": "+f.String() }) {
			g.printItem("Warning: ", w)
		}
	}
}

// saysUnproven tells of a warning that says once more what stands beside UNPROVEN.
func saysUnproven(p *recovery.Plan, warning string) bool {
	return p != nil && warning == "unproven: "+p.Why
}

// printCandidates prints the table, the best one of each history first.
func (g *globals) printCandidates(p *recovery.Plan) {
	if len(p.Candidates) == 0 {
		fmt.Fprintln(g.stdout, "Nothing was found that a cluster can be rebuilt from.")
		return
	}
	header := []string{"  RANK", "CANDIDATE", "MADE OF", "RAFT INDEX", "TERM", "REVISION", "LOST", "LAST SIGN OF IT"}
	several := len(p.Histories) > 1
	if several {
		header = slices.Insert(header, 1, "HISTORY")
	}
	out := newTable(g.stdout, header...)
	for i := range p.Candidates {
		c := &p.Candidates[i]
		mark, rank := "  ", "-"
		if c.Name == p.Chosen {
			mark = "* "
		}
		if c.Rank > 0 {
			rank = fmt.Sprint(c.Rank)
		}
		row := []string{mark + rank, c.Name, madeOf(c), number(c.LastIndex), number(c.LastTerm), revisionsOf(c.Revision), lostOf(c), orDash(c.Time)}
		if several {
			row = slices.Insert(row, 1, number(uint64(c.History)))
		}
		out.row(row...)
	}
	out.flush() //nolint:errcheck // the user's own terminal or pipe
}

// printFindings prints what was found about each candidate, with what can be done.
func (g *globals) printFindings(p *recovery.Plan, f *recovery.Findings) {
	for i := range p.Candidates {
		c := &p.Candidates[i]
		switch {
		case c.Name != p.Chosen:
			g.printf("\n%s: %s\n", c.Name, c.Why)
		case len(c.Findings) > 0:
			g.printf("\n%s, which is chosen:\n", c.Name)
		}
		for _, found := range c.Findings {
			g.printFinding(found)
		}
	}
	if f == nil {
		return
	}
	for _, u := range f.Unread {
		g.printf("\n%s could not be read: %s\n", u.Repository, u.Reason)
	}
}

func (g *globals) printFinding(f recovery.Finding) {
	g.printf("  - %s\n", f.Text)
	if f.Next != "" {
		g.printf("    next: %s\n", f.Next)
	}
}

// printItem prints one of a list. Where it has several lines, the later ones stand
// below its first one.
func (g *globals) printItem(mark, text string) {
	for i, line := range strings.Split(text, "\n") {
		if i > 0 {
			mark = strings.Repeat(" ", len(mark))
		}
		g.printf("%s%s\n", mark, line)
	}
}

func (g *globals) printFence(f recovery.Fence) {
	word := "Old members"
	if !f.Enough && !f.Closes {
		word = "OLD MEMBERS COULD COME BACK"
	}
	g.printf("%s: %s\n", word, f.Why)
	for _, list := range []struct {
		what  string
		names []string
	}{{"stopped", f.Stopped}, {"declared dead", f.DeclaredDead}, {"to be stopped first", f.Stopping}, {"not known to be stopped", f.Open}} {
		if len(list.names) > 0 {
			g.printf("  %s: %s\n", list.what, strings.Join(list.names, ", "))
		}
	}
}

func (g *globals) printBumpDecision(b recovery.Bump) {
	if !b.Raise {
		g.printf("Revision: as it is; %s\n", b.Reason)
		return
	}
	g.printf("Revision: raised beyond %d, the highest that may have been reached, and all before is marked compacted; %s\n", b.HighestKnown, b.Reason)
}

func (g *globals) printNewMembers(members []recovery.NewMember) {
	if len(members) == 0 {
		return
	}
	fmt.Fprintln(g.stdout, "\nThe new cluster:")
	out := newTable(g.stdout, "  MEMBER", "ROLE", "PEER URLS", "IN PLACE OF")
	for _, m := range members {
		role := "voter"
		if m.Learner {
			role = "learner"
		}
		out.row("  "+m.Name, role, strings.Join(m.PeerURLs, ","), orDash(m.Old))
	}
	out.flush() //nolint:errcheck // the user's own terminal or pipe
}

func (g *globals) printIntent(intent []string) {
	if len(intent) == 0 {
		return
	}
	fmt.Fprintln(g.stdout, "\nWhat would be done:")
	for _, one := range intent {
		g.printItem("  - ", one)
	}
}

// printSite prints what was found where members are to be built.
func (g *globals) printSite(host *restore.Readiness) {
	for _, m := range host.Members {
		for _, path := range m.SetAside {
			g.printf("  - %s: %s is set aside\n", m.Name, path)
		}
		if m.Replaces {
			g.printf("  - %s: an unfinished restore is replaced\n", m.Name)
		}
	}
	for _, fs := range host.FileSystems {
		g.printf("  - about %s are needed below %s, free are %s\n", size(fs.Need), fs.Path, size(fs.Free))
	}
	for _, n := range host.Notes {
		g.printf("  - %s\n", n)
	}
}

// printLost ends what was done: what the outcome is worth.
func (g *globals) printLost(p *recovery.Plan) {
	switch {
	case p.Proven:
		g.printf("Proven: %s\nLost: %s\n", p.Why, p.Loss.Text)
		return
	case p.Chosen == "": // it was chosen elsewhere
		g.printf("Lost: %s (%s)\n", p.Loss.Text, p.Why)
		return
	}
	g.printf("UNPROVEN: %s\nLost: %s\n", p.Why, p.Loss.Text)
}
