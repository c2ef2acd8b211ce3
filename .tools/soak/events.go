package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
)

// event is one line of `go test -json`.
type event struct {
	Action, Package, Test string
	ImportPath            string // of a package that does not build
	Elapsed               float64
	Output                string
	Key, Value            string
}

// test is what is known of one test, or, without a name, of its package.
type test struct {
	pkg, name string
	result    string // empty while it runs
	figures   []string
	execs     string // of a fuzz target, when it was fuzzed
	took      time.Duration
	output    []string
}

// executions is the line in which fuzzing says how far it is. It begins with the
// corpus, which it does not count.
var executions = regexp.MustCompile(`^fuzz: elapsed: \S+, (?:gathering|execs: (\d+))`)

// keptOutput is how many of a failed test's last lines are printed.
const keptOutput = 400

// run is what ran, in the order in which it began.
type run struct {
	On       string
	tests    []*test
	packages []*test
}

func (r *run) find(pkg, name string) *test {
	list := &r.tests
	if name == "" {
		list = &r.packages
	}
	for _, t := range slices.Backward(*list) {
		if t.pkg == pkg && t.name == name {
			return t
		}
	}
	t := &test{pkg: pkg, name: name}
	*list = append(*list, t)
	return t
}

// read takes events until the input ends, and says as they come what ended how.
// Lines that are no events, as a broken build has, are passed on.
func (r *run) read(in io.Reader, out io.Writer) (failed bool, err error) {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			break
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return true, err
		}
		var e event
		if json.Unmarshal(line, &e) != nil || e.Action == "" {
			fmt.Fprintf(out, "%s", line)
			continue
		}
		failed = r.take(e, out) || failed
	}
	ran := false
	for _, t := range slices.Concat(r.tests, r.packages) {
		if t.result == "" {
			failed = true
			t.result = "not ended"
			fmt.Fprintf(out, "NOT ENDED %s %s\n", t.pkg, t.name)
		}
		ran = ran || t.name != ""
	}
	if !ran {
		failed = true
		fmt.Fprintln(out, "no test ran")
	}
	return failed, nil
}

func (r *run) take(e event, out io.Writer) (failed bool) {
	if e.Package == "" { // build-output, build-fail
		fmt.Fprint(out, e.Output)
		return e.Action == "build-fail"
	}
	t := r.find(e.Package, e.Test)
	switch e.Action {
	case "attr":
		t.figures = append(t.figures, strings.ReplaceAll(e.Key, "-", " ")+" "+e.Value)
	case "output":
		if n := executions.FindStringSubmatch(e.Output); n != nil {
			t.execs = cmp.Or(n[1], t.execs, "0")
		}
		t.output = append(t.output, e.Output)
		if len(t.output) > keptOutput {
			t.output = slices.Delete(t.output, 0, keptOutput/2)
		}
	case "pass", "fail", "skip":
		if t.execs != "" {
			t.figures = append(t.figures, "executions "+t.execs)
		}
		t.result, t.took = e.Action, time.Duration(e.Elapsed*float64(time.Second))
		if t.result == "fail" || t.result == "skip" && t.name != "" {
			fmt.Fprint(out, strings.Join(t.output, ""))
		} else if t.name == "" || r.worthARow(t) {
			fmt.Fprintln(out, t.result, t.pkg, t.name, t.took, strings.Join(t.figures, "; "))
		}
		t.output = nil
	}
	return e.Action == "fail"
}
