package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/store/shell"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
)

// unchanged ends what was only shown.
func (g *globals) unchanged() error {
	if g.output == "json" {
		return nil
	}
	_, err := fmt.Fprintln(g.stdout, "Nothing was changed.")
	return err
}

// printDecision prints the candidates, the findings and what was decided.
func printDecision(w io.Writer, p *sources.Plan, f *sources.Findings, up *walreplay.GivenUp) {
	if len(p.Histories) > 1 {
		fmt.Fprintln(w, "Histories that went different ways; they are never mixed:")
		for _, h := range p.Histories {
			printf(w, "  %d  %s\n", h.Number, h.Why)
		}
		fmt.Fprintln(w)
	}
	printCandidates(w, p, f)
	printFindings(w, p, f)
	if p.Chosen == "" {
		return
	}
	fmt.Fprintln(w)
	c := p.Candidate(p.Chosen)
	printf(w, "Chosen: %s, %s. %s\n", c.Name, madeOf(c, f), sentence(c.Why))
	if p.Target != "" && p.Target != "the end of the log" {
		printf(w, "Up to: %s\n", p.Target)
	}
	if p.Proven {
		printf(w, "PROVEN: %s\n", p.Why)
	} else {
		printf(w, "UNPROVEN: %s\n", p.Why)
	}
	printf(w, "Lost: %s\n", p.Loss.Text)
	printGivenUp(w, up, "")
	printFence(w, p.Fence)
	printBumpDecision(w, p.Bump)
	for _, warning := range p.Warnings {
		printItem(w, "Warning: ", warning)
	}
}

// printCandidates prints the table, the best one of each history first.
func printCandidates(w io.Writer, p *sources.Plan, f *sources.Findings) {
	if len(p.Candidates) == 0 {
		fmt.Fprintln(w, "Nothing was found that a cluster can be rebuilt from.")
		return
	}
	header := []string{"  RANK", "CANDIDATE", "MADE OF", "RAFT INDEX", "TERM", "REVISION", "LOST", "LAST SIGN OF IT"}
	several := len(p.Histories) > 1
	if several {
		header = slices.Insert(header, 1, "HISTORY")
	}
	out := newTable(w, header...)
	for i := range p.Candidates {
		c := &p.Candidates[i]
		mark, rank := "  ", "-"
		if c.Name == p.Chosen {
			mark = "* "
		}
		if c.Rank > 0 {
			rank = fmt.Sprint(c.Rank)
		}
		row := []string{mark + rank, c.Name, madeOf(c, f), number(c.LastIndex), number(c.LastTerm), revisionsOf(c.Revision), lostOf(c), cmp.Or(c.Time, "-")}
		if several {
			row = slices.Insert(row, 1, number(uint64(c.History)))
		}
		out.row(row...)
	}
	out.flush() //nolint:errcheck // the user's own terminal or pipe
}

// printFindings prints what was found about each candidate, with what can be done.
func printFindings(w io.Writer, p *sources.Plan, f *sources.Findings) {
	for i := range p.Candidates {
		c := &p.Candidates[i]
		switch {
		case c.Name != p.Chosen:
			printf(w, "\n%s: %s\n", c.Name, c.Why)
		case len(c.Findings) > 0:
			printf(w, "\n%s, which is chosen:\n", c.Name)
		}
		for _, found := range c.Findings {
			printf(w, "  - %s\n", found.Text)
			if found.Next != "" {
				printf(w, "    next: %s\n", found.Next)
			}
		}
	}
	if f == nil {
		return
	}
	for _, u := range f.Unread {
		printf(w, "\n%s could not be read: %s\n", u.Repository, u.Reason)
	}
}

// printItem prints one of a list. Where it has several lines, the later ones stand
// below its first one.
func printItem(out io.Writer, mark, text string) {
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintf(out, "%s%s\n", report.Printable(mark), report.Printable(line))
		mark = strings.Repeat(" ", len(mark))
	}
}

func printFence(w io.Writer, f sources.Fence) {
	if f.Why == "" { // nothing was found out: an error says why
		return
	}
	word := "Old members"
	if !f.Enough && !f.Closes {
		word = "OLD MEMBERS COULD COME BACK"
	}
	printf(w, "%s: %s\n", word, f.Why)
	for _, list := range []struct {
		what  string
		names []string
	}{{"stopped", f.Stopped}, {"declared dead", f.DeclaredDead}, {"to be stopped first", f.Stopping}, {"neither read nor declared dead", f.Open}} {
		if len(list.names) > 0 {
			printf(w, "  %s: %s\n", list.what, strings.Join(list.names, ", "))
		}
	}
}

func printBumpDecision(w io.Writer, b sources.Bump) {
	if !b.Raise {
		printf(w, "Revision: as it is; %s\n", b.Reason)
		return
	}
	printf(w, "Revision: raised beyond %d, the highest that may have been reached, and all before is marked compacted; %s\n", b.HighestKnown, b.Reason)
}

func printNewMembers(w io.Writer, members []sources.NewMember) {
	if len(members) == 0 {
		return
	}
	fmt.Fprintln(w, "\nThe new cluster:")
	out := newTable(w, "  MEMBER", "ROLE", "PEER URLS", "IN PLACE OF")
	for _, m := range members {
		out.row("  "+m.Name, roleOf(m.Learner), strings.Join(m.PeerURLs, ","), cmp.Or(m.Old, "-"))
	}
	out.flush() //nolint:errcheck // the user's own terminal or pipe
}

func printIntent(w io.Writer, intent []string) {
	if len(intent) == 0 {
		return
	}
	fmt.Fprintln(w, "\nWhat would be done:")
	for _, one := range intent {
		printItem(w, "  - ", one)
	}
}

// printLost ends what was done: what the outcome is worth.
func printLost(w io.Writer, p *sources.Plan) {
	switch {
	case p.Proven:
		printf(w, "Proven: %s\nLost: %s\n", p.Why, p.Loss.Text)
		return
	case p.Chosen == "": // it was chosen elsewhere
		printf(w, "Lost: %s (%s)\n", p.Loss.Text, p.Why)
		return
	}
	printf(w, "UNPROVEN: %s\nLost: %s\n", p.Why, p.Loss.Text)
}

// madeOf says in a few words what a candidate is made of.
func madeOf(c *sources.Candidate, f *sources.Findings) string {
	s := c.Source
	if s == nil {
		return "nothing that can be rebuilt"
	}
	base := "the database of " + s.Base.Owner
	switch {
	case s.Base.Backup != "":
		base = "backup " + s.Base.Backup
	case s.Base.Path == "":
		base = "a log from its first entry on"
	case s.Base.Owner == c.Name:
		base = "its database"
	}
	var logs []string
	for _, p := range s.Log {
		switch own := s.Base.Owner == c.Name; {
		case own && p.Owner == c.Name:
			logs = append(logs, "its log")
		case strings.HasPrefix(p.Owner, "archive:"):
			logs = append(logs, "the archived log")
		default:
			logs = append(logs, "the log of "+p.Owner)
		}
	}
	if len(logs) == 0 && f != nil && slices.ContainsFunc(f.Survivors, func(m sources.Remains) bool {
		return m.Name == c.Name && m.Log != nil && m.Log.Damage == nil && m.Log.LastIndex == c.LastIndex
	}) {
		return base + ", which has all of its log"
	}
	if len(logs) == 0 {
		return base + " alone"
	}
	return base + " and " + strings.Join(slices.Compact(logs), ", ")
}

// lostOf is what a candidate lacks, for a cell of a table.
func lostOf(c *sources.Candidate) string {
	switch {
	case c.Source == nil:
		return "-"
	case c.Lost.Entries > 0:
		return report.Counted(int(c.Lost.Entries), "entry", "entries")
	}
	short, _, _ := strings.Cut(c.Lost.Text, ";")
	return cmp.Or(short, "-")
}

// revisionsOf are exact, or between two.
func revisionsOf(b sources.Bounds) string {
	switch {
	case b.AtMost == 0:
		return "-"
	case b.AtLeast == b.AtMost:
		return strconv.FormatInt(b.AtMost, 10)
	}
	return fmt.Sprintf("%d to %d", b.AtLeast, b.AtMost)
}

func number(n uint64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatUint(n, 10)
}

// sentence begins with a capital.
func sentence(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// recoveryReport is the JSON form of `requorum recover`.
type recoveryReport struct {
	*recovery.Report
	PlanFile  string   `json:"host_plan_file,omitempty"` // with --to-snapshot and --plan
	Endpoints []string `json:"endpoints,omitempty"`      // with --start
}

// localIntent is what would be done on this machine.
func localIntent(p *recovery.Preview) (all []string) {
	if text := comparison(p.Plan); text != "" {
		all = append(all, text)
	}
	if p.Build.Path != "" {
		all = append(all, fmt.Sprintf("on this machine: one snapshot file, %s, is written; no data directory is changed", p.Build.Path))
	} else {
		for _, name := range sources.NamesOf(p.Members) {
			all = append(all, fmt.Sprintf("on this machine: member %s is built in %s", name, strings.ReplaceAll(p.Build.DataDir, "{name}", name)))
		}
	}
	if len(p.Findings.Archives) > 0 && len(p.Members) > 0 {
		all = append(all, "in the repositories: the old cluster's timeline ends in favour of the new one's")
	}
	return all
}

// printRecovered prints what was done on this machine.
func (g *globals) printRecovered(r recoveryReport) error {
	if s := r.Snapshot; s != nil {
		if err := g.printSnapshotFile(s); err != nil {
			return err
		}
	}
	if p := r.HostPlan; p != nil {
		fmt.Fprintln(g.stdout, "On each host, with the old members stopped:")
		for _, m := range p.Members {
			g.printf("  %s\n", shell.Quote("requorum", "restore", "--plan", r.PlanFile, "--file", r.Snapshot.Path, "--name", m.Name, "--set-aside"))
		}
	}
	if r.Restore != nil {
		printBuilt(g.stdout, r.Restore)
	}
	printLineage(g.stdout, r.Lineage)
	printCompared(g.stdout, r.Compared)
	printLost(g.stdout, r.Plan)
	if r.Restore != nil {
		printStart(g.stdout, r.Restore)
	}
	return nil
}

// joined lists what prints itself.
func joined[T fmt.Stringer](all []T) string {
	var texts []string
	for _, one := range all {
		texts = append(texts, one.String())
	}
	return strings.Join(texts, ", ")
}

// comparison says beforehand what the result will be compared with; empty where
// there is nothing to compare with, as the plan has said.
func comparison(p *sources.Plan) string {
	s := p.Candidate(p.Chosen).Source
	var names []string
	for _, p := range s.Peers {
		names = append(names, p.Owner)
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("before anything is built: the keys are compared with the database of %s, since a database has no checksums", strings.Join(names, " and that of "))
}

// printCompared says what came out of the comparison; where that is damage, loudly.
func printCompared(w io.Writer, c *sources.Comparison) {
	switch {
	case c == nil:
	case c.Differ() && c.Trusted():
		printItem(w, "WARNING: ", c.String()+". Its database was not used")
	case c.Differ():
		printItem(w, "WARNING: ", fmt.Sprintf("%s. That of %s was used, since it was asked for by name", c, c.Base))
	case len(c.Same) > 0:
		printf(w, "Compared: %s\n", c)
	case len(c.NotCompared) > 0: // of one that has no other the plan has said it
		printItem(w, "WARNING: ", c.String())
	}
}

// printPreview prints what was found on the hosts and what would be done.
func (g *globals) printPreview(p *recovery.Preview) error {
	if g.output == "json" {
		return g.printJSON(p)
	}
	if p.Restore != nil { // the same command has built all
		printBuilt(g.stdout, p.Restore)
		printLost(g.stdout, p.Plan)
		return nil
	}
	g.printf("Cluster %s\n", p.Cluster)
	if p.Run != "" {
		g.printf("Run %s is under way; it goes on with: %s\n", p.Run, p.Reached)
	}
	printHosts(g.stdout, p)
	if p.Build == nil {
		printQuorum(g.stdout, p.Quorum)
	}
	if p.Plan != nil && (len(p.Plan.Candidates) > 0 || len(p.Unsurveyed) == 0) {
		fmt.Fprintln(g.stdout)
		printDecision(g.stdout, p.Plan, p.Findings, p.GivenUp)
		switch {
		case p.Plan.Chosen == "":
		case p.Build != nil:
			if p.Plan.Proven {
				printItem(g.stdout, "Condition: ", "each directory is the member's own, or was copied after all members had stopped. A copy of a member that ran lacks what was written later.")
			}
			printNewMembers(g.stdout, p.Members)
			printIntent(g.stdout, localIntent(p))
		default:
			printNewMembers(g.stdout, p.Members)
			printIntent(g.stdout, hostIntent(p))
		}
	}
	if p.Host != nil {
		printReadiness(g.stdout, "  - ", p.Host)
	}
	for _, n := range p.Next {
		printItem(g.stdout, "", n)
	}
	if len(p.Unsurveyed) > 0 {
		g.printf("\n%s: to be stopped first; what is there is read then, and the plan is made anew\n", strings.Join(p.Unsurveyed, ", "))
	}
	for _, w := range p.Warnings {
		printItem(g.stdout, "Warning: ", w)
	}
	if len(p.Blockers) > 0 {
		fmt.Fprintln(g.stdout, "\nIt would be refused now:")
		for _, o := range p.Blockers {
			printItem(g.stdout, "  - ", o)
		}
	}
	return nil
}

func printHosts(w io.Writer, p *recovery.Preview) {
	out := newTable(w, "  HOST OF", "REACHED BY", "KIND", "STATE", "DATA DIRECTORY")
	for _, h := range p.Hosts {
		out.row("  "+h.Member, h.Address, cmp.Or(string(h.Kind), "-"), h.Word(), cmp.Or(h.DataDir, "-"))
	}
	out.flush() //nolint:errcheck // the user's own terminal or pipe
	for _, h := range p.Hosts {
		switch {
		case h.Answers:
			printf(w, "  %s: it cannot be worked with: %s\n", h.Member, h.Unreachable)
		case h.Unreachable != "":
			printf(w, "  %s: it does not answer: %s\n", h.Member, h.Unreachable)
		}
		if h.Unclear != "" {
			printf(w, "  %s: whether it runs is not clear: %s\n", h.Member, h.Unclear)
		}
	}
}

func printQuorum(w io.Writer, q recovery.Quorum) {
	switch {
	case q.Serves:
		printf(w, "The cluster SERVES: member %s answered a linearizable read\n", q.By)
	case q.Unknown != "":
		printf(w, "Whether the cluster serves is not known: %s\n", q.Unknown)
	default:
		printf(w, "The cluster does not serve: no linearizable read was answered\n")
	}
	for _, a := range q.Answers {
		printItem(w, "  ", a)
	}
}

// hostIntent is what would be done on each host.
func hostIntent(p *recovery.Preview) []string {
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
				steps = append(steps, "set aside what is in "+cmp.Or(h.DataDir, "none"), "rebuild "+m.Name, "start it")
			}
		}
		switch {
		case h.Unreachable != "":
			steps = []string{"nothing: it does not answer"}
		case len(steps) == 0:
			steps = []string{"nothing"}
		}
		all = append(all, h.Member+": "+strings.Join(steps, ", "))
	}
	for _, name := range p.Left {
		all = append(all, name+": gets no new member, and stays stopped with its data set aside, so that no reboot starts it")
	}
	return append(all, "then: the members are proved to serve the same, clients start once that is true of a quorum, the old timeline ends, a full snapshot is taken")
}

// printRescued prints what a recovery did.
func (g *globals) printRescued(r recoveryReport) error {
	switch {
	case g.output == "json":
		return g.printJSON(r)
	case r.Restore != nil, r.Snapshot != nil:
		return g.printRecovered(r)
	}
	if r.GivenUp {
		for _, h := range r.Hosts {
			g.printf("%s: what run %s had stopped is started again\n", h.Member, r.Run)
		}
		g.printf("Run %s is given up: cluster %s serves, and nothing of it had been set aside.\n", r.Run, r.Cluster)
		return nil
	}
	if r.Continued {
		g.printf("Run %s had been begun before, and went on.\n", r.Run)
	}
	g.printf("Recovered cluster %s as cluster %s at revision %d%s\n", r.Cluster, r.NewClusterID, r.RevisionBefore, raised(r.Report))
	for _, h := range r.Hosts {
		printHostReport(g.stdout, h)
	}
	if r.Proof != nil {
		for _, s := range r.Proof.Proved {
			g.printf("proved: %s\n", s)
		}
		for _, s := range r.Proof.Unproved {
			printItem(g.stdout, "not proved: ", s)
		}
		for _, m := range r.Proof.Missing {
			g.printf("not up yet: %s: %s\n", m.Name, m.Why)
		}
	}
	printLineage(g.stdout, r.Lineage)
	for _, s := range r.Snapshots {
		g.printf("%s: full snapshot %s\n", s.Repository, s.Backup)
	}
	printTimes(g.stdout, r.Report)
	printLost(g.stdout, r.Plan)
	printAfter(g.stdout, r.Incomplete, r.Warnings, r.Next)
	return nil
}

func raised(r *recovery.Report) string {
	if r.RevisionAfter == r.RevisionBefore {
		return ""
	}
	return fmt.Sprintf(", raised to %d, and all before is marked compacted", r.RevisionAfter)
}

func printHostReport(w io.Writer, h recovery.HostReport) {
	switch {
	case h.Dead:
		printf(w, "%s: declared dead, passed by\n", h.Member)
	case h.Left:
		printf(w, "%s: no new member; it stays stopped, and what was there is set aside\n", h.Member)
	}
	if a := h.Aside; a != nil && len(a.Paths()) > 0 {
		printf(w, "%s: the old data is in %s\n", h.Member, strings.Join(a.Paths(), " and "))
	}
	for _, b := range h.Brought {
		printf(w, "%s: %s from %s in %s\n", h.Member, size(b.Bytes), b.From, took(b.Took))
	}
}

// printTimes prints how long it took, phase by phase.
func printTimes(w io.Writer, r *recovery.Report) {
	out := newTable(w, "PHASE", "TOOK")
	for _, p := range r.Phases {
		out.row(string(p.Phase), took(p.Took))
	}
	out.flush() //nolint:errcheck // the user's own terminal or pipe
	printf(w, "RTO %s: from the first change to the proof\n", took(r.RTO.Round(time.Millisecond)))
	if r.ClientsBack > 0 {
		printf(w, "Clients were back after %s\n", took(r.ClientsBack.Round(time.Millisecond)))
	}
}

// printLineage prints what was written into the repositories.
func printLineage(w io.Writer, all []recovery.TimelinesDone) {
	for _, d := range all {
		for _, warning := range d.Warnings {
			printf(w, "note: %s: %s\n", d.Repository, warning)
		}
		switch {
		case d.Failed != "":
			printf(w, "%s: not recorded: %s\n", d.Repository, d.Failed)
		case len(d.Reinstated) > 0:
			printf(w, "%s: timeline %s is current again, %s has ended\n", d.Repository, joined(d.Reinstated), d.Timeline)
		case len(d.Superseded) > 0:
			printf(w, "%s: timeline %s replaces %s\n", d.Repository, d.Timeline, joined(d.Superseded))
		default:
			printf(w, "%s: timeline %s is current; no timeline of the old cluster was left to end\n", d.Repository, d.Timeline)
		}
	}
}

func printAfter(w io.Writer, incomplete, warnings, next []string) {
	for _, t := range incomplete {
		printItem(w, "INCOMPLETE: ", t)
	}
	for _, warning := range warnings {
		printItem(w, "Warning: ", warning)
	}
	if len(next) > 0 {
		fmt.Fprintln(w, "Next:")
		for _, n := range next {
			printItem(w, "  - ", n)
		}
	}
}
