package main

import (
	"slices"
	"testing"
	"time"

	verifyreport "github.com/requorum/requorum/verify/report"
)

// The recovery is the phases that one waits for, of the same round.
func TestDrillPhases(t *testing.T) {
	d := drilled{phases: map[string][]time.Duration{}}
	for _, factor := range []time.Duration{1, 3} {
		err := d.add([]verifyreport.Phase{{Name: "fetch", Took: 2 * factor}, {Name: "build", Took: 1 * factor}, {Name: "expect", Took: 10 * factor},
			{Name: "boot", Took: 100 * factor}, {Name: "first read", Took: 1000 * factor}, {Name: "serve", Took: 10000 * factor}})
		if err != nil {
			t.Fatal(err)
		}
	}
	if want := []time.Duration{1103, 3309}; !slices.Equal(d.recovery, want) {
		t.Errorf("recovery %v, want %v", d.recovery, want)
	}
	if err := d.add([]verifyreport.Phase{{Name: "build", Took: 1}}); err == nil {
		t.Error("a drill that did not boot was taken for a recovery")
	}
	if want := []string{"fetch", "build", "expect", "boot", "first read", "serve"}; !slices.Equal(d.order, want) {
		t.Errorf("phases %v, want %v", d.order, want)
	}
}
