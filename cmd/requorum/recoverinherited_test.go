package main

import (
	"testing"

	"github.com/requorum/requorum/restore/recovery"
)

// Promise 2: who completes the run of a lost machine is told by the exit code, too, what
// is left of its plan: the revision is raised where nothing is proven.
func TestPromise2InheritedUnproven(t *testing.T) {
	for _, c := range []struct {
		report recovery.Report
		want   int
	}{
		{recovery.Report{Inherited: "lost", RevisionBefore: 9, RevisionAfter: 9}, exitOK},
		{recovery.Report{Inherited: "lost", RevisionBefore: 9, RevisionAfter: 1_000_000_009}, exitUnproven},
		{recovery.Report{RevisionBefore: 9, RevisionAfter: 1_000_000_009}, exitOK}, // its own plan tells
		{recovery.Report{GivenUp: "lost"}, exitOK},
	} {
		if got := exitCode(t.Context(), unprovenElsewhere(&c.report)); got != c.want {
			t.Errorf("%+v: exit code %d, want %d", c.report, got, c.want)
		}
	}
}
