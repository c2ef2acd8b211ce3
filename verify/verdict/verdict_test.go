package verdict

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// Promises 1 and 3 of the package: what counts for a backup, after a series of
// verdicts.
func TestNewest(t *testing.T) {
	a, b := manifest(backupA, "aa"), manifest(backupB, "bb")
	otherTimeline := manifest(backupA, "aa")
	otherTimeline.Timeline.N++
	for _, test := range []struct {
		name   string
		said   []Verdict
		of     *snapshot.Manifest
		level  report.Level // the least
		want   int          // the verdict's number; 0: none
		best   string       // the level that Best names, and Damaged
		reason string
	}{
		{name: "nothing said", of: a, level: report.Checksum},
		{name: "passed", said: []Verdict{verdictOn(a, report.Structure, report.Passed)}, of: a, level: report.Structure, want: 1, best: "structure"},
		{name: "a lower level is included", said: []Verdict{verdictOn(a, report.Drill, report.Passed)}, of: a, level: report.Checksum, want: 1, best: "drill"},
		{name: "not far enough", said: []Verdict{verdictOn(a, report.Checksum, report.Passed)}, of: a, level: report.Structure, best: "checksum"},
		{name: "the newest", said: []Verdict{verdictOn(a, report.Structure, report.Passed), verdictOn(a, report.Structure, report.Passed), verdictOn(b, report.Drill, report.Passed)}, of: a, level: report.Structure, want: 2, best: "structure"},
		{name: "an older one went further", said: []Verdict{verdictOn(a, report.Drill, report.Passed), verdictOn(a, report.Checksum, report.Passed)}, of: a, level: report.Replay, want: 1, best: "drill"},
		{name: "could not go on", said: []Verdict{verdictOn(a, report.Replay, report.Unchecked)}, of: a, level: report.Structure, want: 1, best: "structure"},
		{name: "could not even begin", said: []Verdict{verdictOn(a, report.Checksum, report.Unchecked)}, of: a, level: report.Checksum},
		{name: "damaged since", said: []Verdict{verdictOn(a, report.Drill, report.Passed), verdictOn(a, report.Checksum, report.Damaged)}, of: a, level: report.Checksum, best: "damaged"},
		{name: "damaged at a high level, lower ones passed", said: []Verdict{verdictOn(a, report.Drill, report.Damaged)}, of: a, level: report.Checksum, best: "damaged"},
		{name: "another one is damaged", said: []Verdict{verdictOn(a, report.Structure, report.Passed), verdictOn(b, report.Checksum, report.Damaged)}, of: a, level: report.Structure, want: 1, best: "structure"},
		{name: "mended since", said: []Verdict{verdictOn(a, report.Structure, report.Damaged), verdictOn(a, report.Structure, report.Passed)}, of: a, level: report.Structure, want: 2, best: "structure"},
		{name: "a level below the one that failed passes", said: []Verdict{verdictOn(a, report.Drill, report.Passed), verdictOn(a, report.Structure, report.Damaged), verdictOn(a, report.Checksum, report.Passed)}, of: a, level: report.Structure, best: "damaged"},
		{name: "another manifest", said: []Verdict{verdictOn(manifest(backupA, "ab"), report.Drill, report.Passed)}, of: a, level: report.Checksum},
		{name: "another manifest was damaged", said: []Verdict{verdictOn(a, report.Structure, report.Passed), verdictOn(manifest(backupA, "ab"), report.Drill, report.Damaged)}, of: a, level: report.Structure, want: 1, best: "structure"},
		{name: "another timeline", said: []Verdict{verdictOn(otherTimeline, report.Drill, report.Passed)}, of: a, level: report.Checksum},
		{name: "a status that is not known", said: []Verdict{odd(a, func(v *Verdict) { v.Status = "fine" })}, of: a, level: report.Checksum},
		{name: "a level that is not known", said: []Verdict{odd(a, func(v *Verdict) { v.Reached = "heaven" })}, of: a, level: report.Checksum},
	} {
		t.Run(test.name, func(t *testing.T) {
			repo := newRepo(t, sinktest.NewMemory())
			write(t, repo, test.said...)
			c := readAll(t, repo)
			w, ok := c.Newest(test.of, test.level)
			if ok != (test.want > 0) || ok && number(w.Verdict.Finished) != test.want {
				t.Errorf("got verdict %d, want %d", number(w.Verdict.Finished), test.want)
			}
			best := ""
			if s, ok := c.Best(test.of); ok {
				best = string(s.Verdict.Reached)
			}
			if s, ok := c.Damaged(test.of); ok {
				best += string(s.Verdict.Status)
			}
			if best != test.best {
				t.Errorf("it is %q, want %q", best, test.best)
			}
		})
	}
}

func odd(m *snapshot.Manifest, change func(*Verdict)) Verdict {
	v := verdictOn(m, report.Structure, report.Passed)
	change(&v)
	return v
}

// Checks are put together by what they are of, whatever object they name.
func TestFromReport(t *testing.T) {
	name := func(rest string) string { return timeline.String() + rest }
	pass := func(level report.Level, object string) report.Check {
		return report.Check{Level: level, Status: report.Passed, Object: object}
	}
	r := &report.Report{Level: report.Replay, Checks: []report.Check{
		pass(report.Checksum, "requorum.json"),
		pass(report.Checksum, "timelines/"+timeline.String()+".json"),
		{Level: report.Checksum, Status: report.Passed, Object: name("/full/" + backupA), Manifest: "aa"},
		pass(report.Checksum, name("/full/"+backupA+"/manifest.json")),
		pass(report.Checksum, name("/l0/0000000000000001")),
		{Level: report.Checksum, Status: report.Damaged, Object: name("/l1/0000000000000001-0000000000000009"), Findings: []report.Finding{{Kind: report.KindSegment, Text: "bad"}}},
		pass(report.Checksum, name("/log")),
		pass(report.Checksum, name("/full/"+backupB)), // its manifest was not read
		pass(report.Structure, name("/full/"+backupA)),
		{Level: report.Replay, Status: report.Unchecked, Object: name("/full/" + backupA), Reason: "no base", Phases: []report.Phase{{Name: "replay"}}},
		pass(report.Checksum, CheckObject),
	}}
	v := FromReport(r)
	var got []string
	for _, s := range v {
		got = append(got, fmt.Sprintf("%d %q manifest %s reached %q %s findings %v unchecked %q phases %d",
			s.Timeline.N, s.Backup, s.Manifest, s.Reached, s.Status, s.Findings, s.Unchecked, len(s.Phases)))
	}
	want := []string{
		`1 "` + backupA + `" manifest aa reached "structure" unchecked findings [] unchecked ["replay: no base"] phases 1`,
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
}

// What a verdict keeps is bounded, however much is wrong.
func TestFromReportBounded(t *testing.T) {
	c := report.Check{Level: report.Structure, Status: report.Damaged, Object: timeline.String() + "/full/" + backupA, Manifest: "aa"}
	for range 1000 {
		c.Findings = append(c.Findings, report.Finding{Kind: report.KindPage, Where: strings.Repeat("é", 400), Text: "x" + strings.Repeat("é", 400)})
	}
	s := FromReport(&report.Report{Checks: []report.Check{c}})[0]
	if len(s.Findings) != maxFindings || s.MoreFindings != 1000-maxFindings {
		t.Errorf("%d findings, %d more", len(s.Findings), s.MoreFindings)
	}
	for _, text := range []string{s.Findings[0].Where, s.Findings[0].Text} {
		if len(text) > maxText+len("…") || !utf8.ValidString(text) || !strings.HasSuffix(text, "…") {
			t.Errorf("%d bytes: %q", len(text), text)
		}
	}
}
