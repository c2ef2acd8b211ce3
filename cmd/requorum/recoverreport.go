package main

import (
	"fmt"
	"strings"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/restore/recovery/rebuild"
	"github.com/requorum/requorum/schedule/rescue/lineage"
)

// recoveryReport is the JSON form of `requorum recover --local`.
type recoveryReport struct {
	// Proven is that of the plan; false where none could be made.
	Proven   bool                        `json:"proven"`
	Plan     *recovery.Plan              `json:"plan"`
	Findings *recovery.Findings          `json:"findings,omitempty"` // absent where an earlier run had found them
	Members  []recovery.NewMember        `json:"new_members,omitempty"`
	Host     *restore.Readiness          `json:"host,omitempty"` // with --dry-run
	Compared *rebuild.Comparison         `json:"cross_check,omitempty"`
	Restore  *restore.Result             `json:"restore,omitempty"`   // what was built
	Snapshot *restore.SnapshotFileResult `json:"snapshot,omitempty"`  // with --to-snapshot
	HostPlan *restore.Plan               `json:"host_plan,omitempty"` // with --to-snapshot and --plan
	PlanFile string                      `json:"host_plan_file,omitempty"`
	// Repositories tell what was written into each.
	Repositories []lineage.Done `json:"repositories,omitempty"`
	Endpoints    []string       `json:"endpoints,omitempty"` // with --start
}

func (l *localRecovery) report() recoveryReport {
	return recoveryReport{Proven: l.plan != nil && l.plan.Proven, Plan: l.plan, Findings: l.findings, Members: l.members, Compared: l.compared}
}

// intent is what would be done here, in sentences for the plan.
func (l *localRecovery) intent() []string {
	var all []string
	if text := l.comparison(); text != "" {
		all = append(all, text)
	}
	switch {
	case l.o.toSnapshot != "":
		all = append(all, fmt.Sprintf("on this machine: one snapshot file, %s, is written; no data directory is changed", l.o.toSnapshot))
	default:
		for _, name := range l.here() {
			all = append(all, fmt.Sprintf("on this machine: member %s is built in %s", name, strings.ReplaceAll(l.o.dataDir(l.shared), "{name}", name)))
		}
	}
	if n := len(l.repos); n > 0 && (l.o.toSnapshot == "" || l.o.plan != "") {
		all = append(all, fmt.Sprintf("in %d %s: the old cluster's timeline ends in favour of the new one's", n, plural(n, "repository", "repositories")))
	}
	return all
}

// dataDir is where members are built: as asked for, or as the plan of another host
// has it.
func (o *buildOptions) dataDir(shared *restore.Plan) string {
	if o.req.DataDir != "" || shared == nil {
		return o.req.DataDir
	}
	for _, m := range shared.Members {
		if m.Name == o.name {
			return m.DataDir
		}
	}
	return "its directory in the plan"
}

// printRecovered prints what was done.
func (g *globals) printRecovered(r recoveryReport) error {
	if g.output == "json" {
		return g.printJSON(r)
	}
	if s := r.Snapshot; s != nil {
		g.printSnapshotFile(s)
	}
	if p := r.HostPlan; p != nil {
		fmt.Fprintln(g.stdout, "On each host, with the old members stopped:")
		for _, m := range p.Members {
			g.printf("  requorum restore --plan %s --file %s --name %s --set-aside\n", r.PlanFile, r.Snapshot.Path, m.Name)
		}
	}
	if r.Restore != nil {
		g.printBuilt(r.Restore)
	}
	g.printLineage(r.Repositories)
	g.printCompared(r.Compared)
	g.printLost(r.Plan)
	if r.Restore != nil {
		g.printStart(r.Restore)
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
