package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify/serve"
)

// twoHistories is a plan in which something has to be chosen.
func twoHistories() *sources.Plan {
	source := &sources.Source{
		Base: sources.Base{Owner: "m1", Path: "/d/m1/member/snap/db", Index: 10}, Index: 30,
		Log: []sources.Piece{{Owner: "m1", First: 11, Last: 20}, {Owner: "archive:1-1", First: 21, Last: 30}},
	}
	return &sources.Plan{
		Histories: []sources.History{{Number: 1, Why: "m1 went on with it"}, {Number: 2, Why: "m2 was \x1b[2Jstarted alone"}},
		Candidates: []sources.Candidate{
			{Name: "m1", Kind: sources.FromJoined, History: 1, Rank: 1, LastIndex: 30, LastTerm: 3, Revision: sources.Bounds{AtLeast: 20, AtMost: 25}, Why: "it reaches furthest", Source: source},
			{
				Name: "m2", History: 2, Rank: 1, LastIndex: 28, LastTerm: 4, Lost: sources.Loss{Entries: 2}, Why: "2 entries behind", Source: &sources.Source{Base: sources.Base{Owner: "m2", Path: "/db"}},
				Findings: []sources.Finding{{Kind: sources.KindForced, Text: "it was started with --force-new-cluster", Next: "use m1"}},
			},
			{Name: "m3", Why: "it has no log"},
		},
		Why: "nothing was chosen",
	}
}

func printed(t *testing.T, write func(g *globals) error) string {
	t.Helper()
	var out bytes.Buffer
	g := &globals{environment: environment{stdout: &out, stderr: &out}}
	require.NoError(t, write(g))
	if strings.Contains(out.String(), "\x1b") {
		t.Error("the terminal obeys what was read")
	}
	return out.String()
}

func expectLines(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%q is not said in\n%s", w, text)
		}
	}
}

// Where something has to be chosen, the table shows what there is to choose from,
// and chooses nothing.
func TestPrintTwoHistories(t *testing.T) {
	t.Parallel()
	text := printed(t, func(g *globals) error {
		return g.printPreview(&recovery.Preview{Plan: twoHistories(), Build: &restore.Request{}})
	})
	expectLines(t, text, "they are never mixed", "HISTORY", "its database and its log, the archived log", "20 to 25", "2 entries",
		"  - it was started with --force-new-cluster\n    next: use m1\n", "m3: it has no log", "nothing that can be rebuilt")
	if strings.Contains(text, "Chosen") || strings.Contains(text, "*") {
		t.Errorf("something is chosen:\n%s", text)
	}
}

func TestPrintPreview(t *testing.T) {
	t.Parallel()
	plan := twoHistories()
	plan.Chosen, plan.Proven, plan.Fence.Enough = "m2", false, false
	p := &recovery.Preview{
		Cluster: "production",
		Hosts: []recovery.HostState{
			{Member: "m1", Address: "10.0.0.1:2391", Kind: "systemd", Stopped: true, DataDir: "/var/lib/etcd"},
			{Member: "m2", Address: "10.0.0.2:2391", Kind: "systemd", Runs: true, DataDir: "/var/lib/etcd"},
			{Member: "m3", Address: "10.0.0.3:2391", Unreachable: "no route to host"},
			{Member: "m4", Address: "10.0.0.4:2391", Stopped: true},
		},
		Quorum: recovery.Quorum{Answers: []string{"m1: refused"}}, Plan: plan, Unsurveyed: []string{"m2"},
		Members: []sources.NewMember{{Name: "m1", Old: "m1", PeerURLs: []string{"https://10.0.0.1:2380"}}, {Name: "m4", Old: "m2", Learner: true}},
		Left:    []string{"m5"}, Blockers: []string{"m3 is neither stopped nor declared dead: --declare-dead m3"},
	}
	text := printed(t, func(g *globals) error { return g.printPreview(p) })
	expectLines(t, text, "Cluster production", "unreachable", "it does not answer: no route to host", "does not serve",
		"m1: set aside what is in /var/lib/etcd, rebuild m1, start it", "m2: stop the member, set aside", "rebuild m4", "m3: nothing: it does not answer",
		"m5: gets no new member", "m2: to be stopped first; what is there is read then", "It would be refused now:\n  - m3 is neither", "UNPROVEN", "learner", "* 1")
}

// A database that has all of its log is not called alone.
func TestMadeOf(t *testing.T) {
	t.Parallel()
	c := &sources.Candidate{Name: "m1", LastIndex: 30, Source: &sources.Source{Base: sources.Base{Owner: "m1", Path: "/db"}}}
	for _, of := range []struct {
		log  *sources.Log
		want string
	}{
		{nil, "its database alone"},
		{&sources.Log{LastIndex: 30, Damage: &sources.Place{}}, "its database alone"},
		{&sources.Log{LastIndex: 30}, "its database, which has all of its log"},
	} {
		require.Equal(t, of.want, madeOf(c, &sources.Findings{Survivors: []sources.Remains{{Name: "m1", Log: of.log}}}))
	}
}

// Commands are quoted for a shell.
func TestPrintedCommands(t *testing.T) {
	t.Parallel()
	r := &restore.Result{Plan: &restore.Plan{}, Members: []restore.MemberResult{{Flags: []string{"--name=m1", "--data-dir=/my etcd/m1"}}}, Path: "/my etcd/state.db"}
	text := printed(t, func(g *globals) error {
		printStart(g.stdout, r)
		g.printPlanFile(&restoreOptions{buildOptions: buildOptions{plan: "my plan.json"}, planWritten: true})
		return g.printRescued(recoveryReport{Report: &recovery.Report{Plan: twoHistories(), Snapshot: r, HostPlan: &restore.Plan{Members: []restore.Member{{Name: "m1"}}}}, PlanFile: "/it's.json"})
	})
	expectLines(t, text, "  etcd --name=m1 '--data-dir=/my etcd/m1'\n", ": requorum restore --plan 'my plan.json' --name NAME\n",
		`  requorum restore --plan '/it'\''s.json' --file '/my etcd/state.db' --name m1 --set-aside`)
}

// What stands beside UNPROVEN, or is a finding, is said once, and each line of a warning
// is a line.
func TestPrintWarnings(t *testing.T) {
	t.Parallel()
	plan := twoHistories()
	plan.Chosen, plan.Why = "m2", "only one log was read"
	p := &recovery.Preview{Plan: plan, Warnings: []string{"one\ntwo"}}
	text := printed(t, func(g *globals) error { return g.printPreview(p) })
	expectLines(t, text, "UNPROVEN: only one log was read", "Warning: one\n         two\n")
	for _, once := range []string{"only one log was read", "it was started with --force-new-cluster"} {
		if n := strings.Count(text, once); n != 1 {
			t.Errorf("%q is said %d times:\n%s", once, n, text)
		}
	}
	// With JSON nothing was shown before the question: all of it is said beside it.
	text = printed(t, func(g *globals) error {
		g.output = "json"
		return newRescueEvents(g, &recoverOptions{yes: true}).Confirm(t.Context(), recovery.Question{Reasons: []string{"it serves"}, Preview: p})
	})
	require.Equal(t, "it serves\nunproven: only one log was read\nm2: it was started with --force-new-cluster: use m1\none\ntwo\n", text)
	text = printed(t, func(g *globals) error {
		newRescueEvents(g, nil).Warn("one\ntwo \x1b[2J")
		return nil
	})
	expectLines(t, text, "WARNING: one\n         two ")
}

func TestPrintRescued(t *testing.T) {
	t.Parallel()
	plan := twoHistories()
	plan.Proven, plan.Why, plan.Loss.Text = true, "all three were read", "nothing that was acknowledged"
	old := repository.TimelineID{ClusterID: 1, N: 1}
	r := &recovery.Report{
		Cluster: "production", Run: "r1", Continued: true, Plan: plan, RevisionBefore: 70, RevisionAfter: 1_000_000_070,
		Hosts:      []recovery.HostReport{{Member: "m1", Aside: &restore.Aside{Folder: "/var/lib/etcd/member.set-aside-1"}}, {Member: "m3", Dead: true}},
		Proof:      &serve.Report{Proved: []string{"all members hold the same"}, Unproved: []string{"that it can be written to: no password was given"}},
		Phases:     []recovery.PhaseTime{{Phase: recovery.PhaseRebuild, Took: 3 * time.Second}},
		RTO:        12 * time.Second,
		Lineage:    []recovery.TimelinesDone{{Repository: "file:///r", Timeline: repository.TimelineID{ClusterID: 2, N: 1}, Superseded: []repository.TimelineID{old}}, {Repository: "s3://b", Failed: "no route"}},
		Snapshots:  []recovery.Stored{{Repository: "file:///r", Backup: "20260102T000000Z-abcdef"}},
		Incomplete: []string{"s3://b could not be written"}, Next: []string{"change --initial-cluster in the units"},
	}
	text := printed(t, func(g *globals) error { return g.printRescued(recoveryReport{Report: r}) })
	expectLines(t, text, "had been begun before", "raised to 1000000070", "the old data is in /var/lib/etcd/member.set-aside-1", "m3: declared dead", "proved: all members", "not proved: that it can be written to",
		"replaces "+old.String(), "s3://b: not recorded: no route", "full snapshot 20260102", "RTO 12s", "Proven: all three", "Lost: nothing", "INCOMPLETE: s3://b", "Next:\n  - change")
	u := &recovery.UndoReport{Cluster: "production", Run: "r1", Hosts: []recovery.HostUndo{{Member: "m1", PutBack: "/var/lib/etcd", Kept: []string{"/var/lib/etcd/member.set-aside-2"}}, {Member: "m2", Failed: "it does not start"}, {Member: "m3", Dead: true}},
		Lineage: []recovery.TimelinesDone{{Repository: "file:///r", Reinstated: []repository.TimelineID{old}}}}
	text = printed(t, func(g *globals) error { return g.printUndone(u) })
	expectLines(t, text, "/var/lib/etcd is as it was", "kept in /var/lib/etcd/member.set-aside-2", "m1: not started", "WARNING: m2: it does not start", "m3 is declared dead", "is current again", "r1 of cluster production is taken back")
}
