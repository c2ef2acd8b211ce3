package main

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const prefix = `"Package":"github.com/requorum/requorum/`

// first is a run of two packages in which all goes well.
var first = strings.ReplaceAll(`{"Action":"start",@cmd"}
{"Action":"run",@cmd","Test":"TestLog"}
{"Action":"run",@cmd","Test":"TestLog/3.5"}
{"Action":"attr",@cmd","Test":"TestLog/3.5","Key":"archivers-killed","Value":"12"}
{"Action":"attr",@cmd","Test":"TestLog/3.5","Key":"etcd","Value":"3.5.23|x"}
{"Action":"pass",@cmd","Test":"TestLog/3.5","Elapsed":12.4}
{"Action":"run",@cmd","Test":"TestLog/3.7"}
{"Action":"attr",@cmd","Test":"TestLog/3.7","Key":"archivers-killed","Value":"13"}
{"Action":"pass",@cmd","Test":"TestLog/3.7","Elapsed":9}
{"Action":"pass",@cmd","Test":"TestLog","Elapsed":22}
{"Action":"run",@cmd","Test":"TestQuick"}
{"Action":"pass",@cmd","Test":"TestQuick","Elapsed":0.1}
{"Action":"run",@cmd","Test":"TestRounds"}
{"Action":"run",@cmd","Test":"TestRounds/1"}
{"Action":"attr",@cmd","Test":"TestRounds/1","Key":"kills","Value":"1"}
{"Action":"pass",@cmd","Test":"TestRounds/1","Elapsed":60}
{"Action":"attr",@cmd","Test":"TestRounds","Key":"rounds","Value":"1"}
{"Action":"pass",@cmd","Test":"TestRounds","Elapsed":61}
{"Action":"pass",@cmd","Elapsed":90}
{"Action":"skip",@store/internal","Elapsed":0}
{"Action":"start",@store"}
{"Action":"run",@store","Test":"TestRoot"}
{"Action":"output",@store","Test":"TestRoot","Output":"needs root\n"}
{"Action":"skip",@store","Test":"TestRoot","Elapsed":0}
{"Action":"pass",@store","Elapsed":1.234}
`, "@", prefix)

func results(t *testing.T, input string) (*run, bool, string) {
	t.Helper()
	r := &run{On: "2026-01-02, abc, 2 cores"}
	var out bytes.Buffer
	failed, err := r.read(strings.NewReader(input), &out)
	if err != nil {
		t.Fatal(err)
	}
	return r, failed, out.String()
}

func find(rows []row, pkg, test string) *row {
	for _, r := range rows {
		if r.Package == pkg && r.Test == test {
			return &r
		}
	}
	return nil
}

func TestReport(t *testing.T) {
	r, failed, out := results(t, first)
	if failed || !strings.Contains(out, "needs root") {
		t.Errorf("failed %v:\n%s", failed, out)
	}
	rows := whole(r)
	for _, c := range []struct{ pkg, test, result, figures, took string }{
		{"cmd", "TestLog/3.5", "pass", "archivers killed 12; etcd 3.5.23|x", "12s"},
		{"cmd", "TestLog/3.7", "pass", "archivers killed 13", "9s"},
		{"cmd", "TestRounds", "pass", "rounds 1", "1m1s"},
		{"store", "TestRoot", "skip", "", "0s"},
	} {
		got := find(rows, c.pkg, c.test)
		if want := (row{c.pkg, c.test, c.result, c.figures, c.took, r.On}); got == nil || *got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if len(rows) != 4 {
		t.Errorf("%d rows: %+v", len(rows), rows)
	}
	again, err := parse(write(rows))
	if err != nil || !reflect.DeepEqual(again, rows) {
		t.Errorf("read back %+v, %v; want %+v", again, err, rows)
	}
}

// whole are the rows of a first, whole run.
func whole(r *run) []row {
	rows, ran := r.rows()
	return merge(nil, rows, ran)
}

// A part takes the place of its own last run, and of nothing else.
func TestMerge(t *testing.T) {
	r, _, _ := results(t, first)
	rows := whole(r)
	part, failed, out := results(t, strings.ReplaceAll(`{"Action":"run",@cmd","Test":"TestLog"}
{"Action":"run",@cmd","Test":"TestLog/3.5"}
{"Action":"output",@cmd","Test":"TestLog/3.5","Output":"row 7 differs\n"}
{"Action":"fail",@cmd","Test":"TestLog/3.5","Elapsed":3}
{"Action":"fail",@cmd","Test":"TestLog","Elapsed":3}
{"Action":"run",@cmd","Test":"TestRounds"}
{"Action":"pass",@cmd","Test":"TestRounds","Elapsed":2}
{"Action":"fail",@cmd","Elapsed":3}
`, "@", prefix))
	if !failed || !strings.Contains(out, "row 7 differs") {
		t.Errorf("failed %v:\n%s", failed, out)
	}
	part.On = "2026-02-03, def, 2 cores"
	news, ran := part.rows()
	rows = merge(rows, news, ran)
	for _, c := range []struct{ test, result, on string }{
		{"TestLog/3.5", "fail", part.On}, {"TestLog", "fail", part.On}, {"TestLog/3.7", "pass", r.On},
	} {
		if got := find(rows, "cmd", c.test); got == nil || got.Result != c.result || got.On != c.on {
			t.Errorf("%s: %+v, want %s, %s", c.test, got, c.result, c.on)
		}
	}
	if got := find(rows, "cmd", "TestRounds"); got != nil {
		t.Errorf("it ran again, and states no figures now: %+v", got)
	}
	if got := find(rows, "cmd", ""); got == nil || got.Result != "fail" {
		t.Errorf("the package that failed: %+v", got)
	}
	if !strings.Contains(write(rows), "| **fail** |") {
		t.Error("a failure does not stand out")
	}
}

// Fuzzing says how much it tried. A run of the seeds alone, as every test run has
// it, does not take that away.
func TestFuzz(t *testing.T) {
	seeds := strings.ReplaceAll(`{"Action":"run",@cmd","Test":"FuzzX"}
{"Action":"pass",@cmd","Test":"FuzzX","Elapsed":0.1}
{"Action":"pass",@cmd","Elapsed":1}
`, "@", prefix)
	fuzzed := strings.Replace(seeds, `{"Action":"pass"`, `{"Action":"output",`+prefix+`cmd","Test":"FuzzX","Output":"fuzz: elapsed: 0s, gathering baseline coverage: 0/3 completed\n"}
{"Action":"output",`+prefix+`cmd","Test":"FuzzX","Output":"fuzz: elapsed: 3s, execs: 7 (2/sec), new interesting: 1 (total: 2)\n"}
{"Action":"output",`+prefix+`cmd","Test":"FuzzX","Output":"fuzz: elapsed: 6s, execs: 15 (2/sec)\n"}
{"Action":"pass"`, 1)
	r, failed, _ := results(t, fuzzed)
	rows := whole(r)
	want := row{"cmd", "FuzzX", "pass", "executions 15", "100ms", r.On}
	if got := find(rows, "cmd", "FuzzX"); failed || got == nil || *got != want {
		t.Fatalf("failed %v: %+v, want %+v", failed, got, want)
	}
	none, _, _ := results(t, strings.ReplaceAll(fuzzed, "execs: ", "gathering "))
	if got := find(whole(none), "cmd", "FuzzX"); got == nil || got.Figures != "executions 0" {
		t.Errorf("only the corpus: %+v", got)
	}
	again, _, _ := results(t, seeds)
	news, ran := again.rows()
	if got := find(merge(rows, news, ran), "cmd", "FuzzX"); got == nil || *got != want {
		t.Errorf("after a run of the seeds: %+v, want %+v", got, want)
	}
}

// What did not end, does not build, or did not run has failed.
func TestFailures(t *testing.T) {
	for name, input := range map[string]string{
		"cut off":   first[:strings.LastIndex(first, `{"Action":"pass"`)],
		"no build":  `{"ImportPath":"x","Action":"build-output","Output":"x.go:1: syntax error\n"}` + "\n" + `{"ImportPath":"x","Action":"build-fail"}`,
		"no test":   strings.ReplaceAll(`{"Action":"start",@cmd"}`+"\n"+`{"Action":"pass",@cmd","Elapsed":0}`, "@", prefix),
		"not json":  "go: no such package\n",
		"no output": "",
	} {
		if _, failed, out := results(t, input); !failed || out == "" {
			t.Errorf("%s: failed %v:\n%s", name, failed, out)
		}
	}
}

func TestAlteredReport(t *testing.T) {
	path := filepath.Join(t.TempDir(), "soak.md")
	if rows, err := readReport(path); err != nil || rows != nil {
		t.Errorf("no report: %v, %v", rows, err)
	}
	if err := os.WriteFile(path, []byte("# Soak\n| a | pass |\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readReport(path); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("got %v", err)
	}
}
