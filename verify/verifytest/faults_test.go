package verifytest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/verify"
	"github.com/requorum/requorum/verify/report"
)

// run verifies everything up to a rung.
func run(t testing.TB, r *Repo, rung report.Rung) *report.Report {
	t.Helper()
	return runOn(t, r, verify.Request{Backup: verify.All, Rung: rung})
}

func runOn(t testing.TB, r *Repo, req verify.Request) *report.Report {
	t.Helper()
	req.Identities, req.ScratchDir, req.Tool = r.Identities, t.TempDir(), tool
	found, _, err := verify.Repository(t.Context(), r.Open(t), req)
	must(t, err)
	return found
}

// TestFaults: each kind of fault is found by the rung that docs/verify.md names,
// by no rung below, and has changed something. The same is asked of etcdutl where
// the fault is in a database. The short form runs each fault at its rung, in the
// form that it needs; REQUORUM_SOAK=1 runs each on every rung, plain and encrypted.
func TestFaults(t *testing.T) {
	t.Parallel() // drills and clusters mostly wait
	forms := recordForms(t)
	table := &table{}
	faults := All()
	if len(faults) < 40 {
		t.Fatalf("%d kinds of faults", len(faults))
	}
	began := time.Now()
	t.Run("each", func(t *testing.T) {
		for _, f := range faults {
			t.Run(f.Name, func(t *testing.T) {
				t.Parallel()
				inForms(t, f, forms, table)
			})
		}
	})
	t.Attr("faults", fmt.Sprint(len(faults)))
	t.Logf("%d faults in %s", len(faults), time.Since(began).Round(time.Millisecond))
	if !t.Failed() {
		table.check(t, faults)
	}
}

// recordForms writes what one cluster did as a plain and as an encrypted
// repository, and proves both healthy on every rung that is asked for.
func recordForms(t *testing.T) map[Form]*Repo {
	t.Helper()
	h := Script(t)
	forms := map[Form]*Repo{}
	for _, form := range []Form{Plain, Encrypted} {
		r := h.Write(t, Layout{Encrypted: form == Encrypted, Merged: 2, Extras: true})
		forms[form] = r
		expectHealthy(t, run(t, r, report.Replay))
	}
	return forms
}

// expectHealthy wants all checks to have passed.
func expectHealthy(t testing.TB, r *report.Report) {
	t.Helper()
	for _, c := range r.Checks {
		if c.Status != report.Passed {
			t.Errorf("a healthy repository: %s %s is %s: %s %v", c.Rung, c.Object, c.Status, c.Reason, c.Findings)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

func inForms(t *testing.T, f Fault, forms map[Form]*Repo, table *table) {
	done := false
	for _, form := range []Form{Plain, Encrypted} {
		if !f.Fits(forms[form]) || done && !storetest.Soak() {
			continue
		}
		done = true
		table.ran(f.Name)
		r := forms[form].Clone(t)
		was := r.Fingerprint(t)
		what := f.Inject(t, r)
		if r.Fingerprint(t) == was {
			t.Fatalf("nothing was changed (%s)", what)
		}
		rungs := []report.Rung{f.Rung}
		switch {
		case storetest.Soak():
			rungs = report.Rungs()
		case slices.Contains(f.Kinds, report.KindPage), slices.Contains(f.Kinds, report.KindRow):
			// etcd's applier, which the next rung is done with, would end this process.
			rungs = append(rungs, report.Replay)
		}
		for _, rung := range rungs {
			at(t, f, run(t, r, rung), fmt.Sprintf("%s, %s, %s", form, rung, what))
		}
		if f.Database && (form == Plain || f.Only == Encrypted) {
			status, hash := etcdutlFinds(t, r, last)
			table.add(f.Name, status, hash)
		}
	}
}

// at wants a report to have the fault where its rung was run, and there alone:
// and nothing where only those below it were.
func at(t testing.TB, f Fault, r *report.Report, what string) {
	t.Helper()
	lowest, kinds := report.Rung(""), []report.Kind{}
	for _, rung := range report.Rungs() {
		for _, c := range r.Checks {
			if c.Rung != rung || c.Status != report.Damaged || lowest != "" && lowest != rung {
				continue
			}
			lowest = rung
			for _, finding := range c.Findings {
				kinds = append(kinds, finding.Kind)
			}
		}
	}
	t.Logf("%s:%s", what, told(r))
	want := f.Rung
	if !r.Rung.Includes(f.Rung) {
		want = ""
	}
	if lowest != want || want != "" && !slices.ContainsFunc(kinds, func(k report.Kind) bool { return slices.Contains(f.Kinds, k) }) {
		t.Errorf("%s: found by %q as %v, want %q as %v:%s", what, lowest, kinds, want, f.Kinds, told(r))
	}
}

// told is a report for people.
func told(r *report.Report) string {
	var s strings.Builder
	for _, c := range r.Checks {
		if c.Status == report.Passed {
			continue
		}
		fmt.Fprintf(&s, "\n  %s %s %s %s", c.Rung, c.Status, c.Object, c.Reason)
		for i, f := range c.Findings {
			if i == 6 {
				fmt.Fprintf(&s, "\n    … %d in all", len(c.Findings))
				break
			}
			fmt.Fprintf(&s, "\n    %s %s", f.Kind, f)
		}
	}
	return s.String()
}
