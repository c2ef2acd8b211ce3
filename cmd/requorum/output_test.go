package main

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
)

// hostile is what somebody who can write to a repository may put into a gap's
// reason, a member's name or a bucket's.
const hostile = "x\x1b[2J\npassed    drill"

// wantTame wants what is hostile in a text to be shown, and nothing of it to be
// obeyed, or to look like a line of its own.
func wantTame(t *testing.T, got string) {
	t.Helper()
	if strings.Contains(got, "\x1b") || strings.Contains(got, "\npassed    drill") || !strings.Contains(got, `x\x1b[2J\npassed    drill`) {
		t.Errorf("printed %q", got)
	}
}

// What comes from a backup is never obeyed by the terminal, wherever it stands in
// a report.
func TestHostileTextIsNotObeyed(t *testing.T) {
	sound := report.Check{Level: report.Checksum, Status: report.Passed, Object: "o", Compared: "c"}
	for name, alter := range map[string]func(*report.Report, *report.Check){
		"note":     func(r *report.Report, _ *report.Check) { r.Notes = []string{hostile} },
		"target":   func(r *report.Report, _ *report.Check) { r.Target = hostile },
		"object":   func(_ *report.Report, c *report.Check) { c.Object = hostile },
		"compared": func(_ *report.Report, c *report.Check) { c.Compared = hostile },
		"reason":   func(_ *report.Report, c *report.Check) { c.Reason = hostile },
		"phase":    func(_ *report.Report, c *report.Check) { c.Phases = []report.Phase{{Name: hostile}} },
		"finding": func(_ *report.Report, c *report.Check) {
			c.Findings = []report.Finding{{Kind: report.KindRow, Text: hostile}}
		},
		"where": func(_ *report.Report, c *report.Check) {
			c.Findings = []report.Finding{{Kind: report.KindRow, Where: hostile}}
		},
		"kind": func(_ *report.Report, c *report.Check) { c.Findings = []report.Finding{{Kind: hostile}} },
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			g := &globals{environment: environment{stdout: &out}, verbose: true}
			c := sound
			r := &report.Report{Target: "t", Level: report.Checksum}
			alter(r, &c)
			r.Checks = []report.Check{c}
			g.printVerified(r, &verdictReport{})
			wantTame(t, out.String())
		})
	}
}

// Nor is it in a list, in any table, in a note or in an error, whose own line
// breaks stay.
func TestHostileListIsNotObeyed(t *testing.T) {
	id := repository.TimelineID{ClusterID: 1, N: 1}
	var out bytes.Buffer
	g := &globals{environment: environment{stdout: &out, stderr: &out}}
	want := func() {
		t.Helper()
		wantTame(t, out.String())
		out.Reset()
	}
	listed := catalogReport{Timelines: []repository.Timeline{{ID: id, Reason: hostile}}}
	require.NoError(t, tableCatalog(g.stdout, listed))
	want()
	listed.Timelines[0].Reason = "first"
	listed.Ranges = []walreplay.Range{{Timeline: id, FirstIndex: 1, LastIndex: 2}, {Timeline: id, Gap: true, FirstIndex: 3, LastIndex: 4, Reason: hostile}}
	require.NoError(t, tableCatalog(g.stdout, listed))
	want()
	// What a server of etcd says of itself, too.
	require.NoError(t, g.printBackup(sinktest.NewMemory(), &snapshot.Result{Manifest: &snapshot.Manifest{}, Failures: []snapshot.MemberFailure{{Endpoint: "http://e", Member: hostile, Err: errors.New("no")}}}))
	want()
	doctor := &examination{globals: g, report: doctorReport{Checks: []checkReport{{Check: hostile}}}}
	require.NoError(t, doctor.print())
	want()
	for _, say := range []func(){
		func() { g.agentLogger(config.Log{Format: "text"}, new(slog.LevelVar)).Warn(hostile, "why", hostile) },
		func() {
			doctor.report.Checks = []checkReport{{Text: hostile}}
			require.NoError(t, doctor.print())
		},
	} {
		if say(); strings.ContainsRune(out.String(), 0x1b) || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("printed %q", out.String())
		}
		out.Reset()
	}
	table := newTable(&out)
	table.row("Members", hostile)
	require.NoError(t, table.flush())
	want()
	g.note("%v: %d", errors.New(hostile), 1)
	want()
	if got := printableLines("one\ntwo\x1b[2J"); got != "one\n  two"+`\x1b[2J` {
		t.Errorf("an error of two lines: %q", got)
	}
}
