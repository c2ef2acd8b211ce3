package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// row is a line of the report.
type row struct {
	Package, Test string // Test is empty for the package's own
	Result        string
	Figures       string
	Took          string
	When, On      string
}

// fuzzed tells a row of `make fuzz` from those of tests.
func (r row) fuzzed() bool { return strings.HasPrefix(r.Test, "Fuzz") }

// long is from when on a test has a row although it states no figures: it ran,
// and that takes its time.
const long = time.Minute

func (t *test) worthARow() bool {
	return len(t.figures) > 0 || t.result != "pass" || t.took >= long
}

// rows are those of the tests, and the packages' own unless only a part of them
// ran; ran tells which rows of an earlier report they replace.
func (r *run) rows(part bool) (rows []row, ran func(row) bool) {
	for _, t := range r.tests {
		if t.worthARow() {
			rows = append(rows, r.row(t, strings.Join(t.figures, "; ")))
		}
	}
	for _, p := range r.packages {
		count := map[string]int{}
		for _, t := range r.tests {
			if t.pkg == p.pkg {
				count[t.result]++
			}
		}
		if part && p.result != "fail" || p.result == "skip" { // no tests in it
			continue
		}
		rows = append(rows, r.row(p, fmt.Sprintf("%d passed; %d failed; %d skipped", count["pass"], count["fail"]+count["not ended"], count["skip"])))
	}
	return rows, func(old row) bool {
		if old.Test == "" {
			return !part && slices.ContainsFunc(r.packages, func(p *test) bool { return old.Package == short(p.pkg) })
		}
		return slices.ContainsFunc(r.tests, func(t *test) bool {
			return old.Package == short(t.pkg) && old.Test == t.name && (!old.fuzzed() || t.execs != "")
		})
	}
}

func (r *run) row(t *test, figures string) row {
	took := t.took.Round(time.Second)
	if took < time.Second {
		took = t.took.Round(10 * time.Millisecond)
	}
	return row{short(t.pkg), t.name, t.result, figures, took.String(), r.When, r.On}
}

// short is a package's folder.
func short(pkg string) string { return strings.TrimPrefix(pkg, "github.com/requorum/requorum/") }

// merge puts the rows of what ran into the place of those of its last run.
func merge(old []row, rows []row, ran func(row) bool) []row {
	all := slices.DeleteFunc(slices.Clone(old), func(o row) bool {
		return ran(o) || slices.ContainsFunc(rows, func(n row) bool { return o.Package == n.Package && o.Test == n.Test })
	})
	all = append(all, rows...)
	slices.SortStableFunc(all, func(a, b row) int {
		if n := strings.Compare(a.Package, b.Package); n != 0 {
			return n
		}
		return strings.Compare(a.Test, b.Test)
	})
	return all
}
