// Command soak keeps docs/soak.md: it reads `go test -json` from standard input,
// prints what failed, and puts the results into the report. Tests state their
// figures with t.Attr.
//
// It ends with 1 when a test or a package failed, when none ran, or when the
// input ended before they did: the report is written all the same.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

func main() {
	out := flag.String("out", "", "the report; what it holds of other tests stays")
	whole := flag.Bool("whole", false, "everything runs: what the report holds of tests that are gone goes")
	flag.Parse()
	if *out == "" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "usage: go test -json … | soak -out FILE [-whole]")
		os.Exit(2)
	}
	failed, err := keep(*out, *whole)
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
	}
	if err != nil || failed {
		os.Exit(1)
	}
}

// keep reads the results and writes the report.
func keep(path string, whole bool) (failed bool, err error) {
	commit, err := exec.Command("git", "describe", "--always", "--dirty", "--tags").Output()
	if err != nil {
		return false, fmt.Errorf("name the commit: git describe: %w", err)
	}
	// Before hours of tests, not after them.
	if _, err := readReport(path); err != nil {
		return false, err
	}
	r := run{
		On: fmt.Sprintf("%s %s %d", time.Now().UTC().Format("2006-01-02"), strings.TrimSpace(string(commit)), runtime.NumCPU()),
	}
	failed, readErr := r.read(os.Stdin, os.Stdout)
	if len(r.packages) == 0 {
		return true, readErr // a wrong pattern, or nothing that compiles
	}
	// Anew: another part may have run meanwhile.
	old, err := readReport(path)
	if err != nil {
		return failed, err
	}
	if whole {
		old = slices.DeleteFunc(old, func(r row) bool { return !r.fuzzed() })
	}
	rows, ran := r.rows()
	if err := os.WriteFile(path, []byte(write(merge(old, rows, ran))), 0o644); err != nil {
		return failed, err
	}
	return failed, readErr
}
