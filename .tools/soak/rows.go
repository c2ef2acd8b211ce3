package main

import (
	"slices"
	"strings"
	"time"
)

// row is a line of the report.
type row struct {
	Package, Test string // Test is empty for a package that failed
	Result        string
	Figures       string
	Took          string
	On            string // when, which commit, which machine
}

// fuzzed tells a row of `make fuzz` from those of tests.
func (r row) fuzzed() bool { return strings.HasPrefix(r.Test, "Fuzz") }

// worthARow reports whether a test states figures of its own, which speak for the
// tests below it that passed, or did not pass.
func (r *run) worthARow(t *test) bool {
	if t.result != "pass" {
		return true
	}
	return len(t.figures) > 0 && !slices.ContainsFunc(r.tests, func(above *test) bool {
		return above.pkg == t.pkg && len(above.figures) > 0 && strings.HasPrefix(t.name, above.name+"/")
	})
}

// rows are those of the tests, and of the packages that failed; ran says which rows
// of an earlier report they replace.
func (r *run) rows() (rows []row, ran func(row) bool) {
	for _, t := range r.tests {
		if r.worthARow(t) {
			rows = append(rows, r.row(t, strings.Join(t.figures, "; ")))
		}
	}
	for _, p := range r.packages {
		if p.result == "fail" || p.result == "not ended" {
			rows = append(rows, r.row(p, ""))
		}
	}
	return rows, func(old row) bool {
		if old.Test == "" {
			return slices.ContainsFunc(r.packages, func(p *test) bool { return old.Package == short(p.pkg) })
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
	return row{short(t.pkg), t.name, t.result, figures, took.String(), r.On}
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
