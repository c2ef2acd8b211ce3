package verify

import (
	"strings"
	"testing"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/verify/report"
)

// What cannot be listed or opened on the way is Unchecked, and takes nothing from
// what was found.
func TestOneStepFails(t *testing.T) {
	faulty := sinktest.NewFaulty(onMemory())
	w := newWorld(t, faulty)
	before := faulty.Calls(sinktest.List)
	wantKinds(t, w.verify(Request{}))
	lists := faulty.Calls(sinktest.List) - before // all names come last
	for _, c := range []struct {
		name, object string
		faults       []sinktest.Fault
	}{
		{"the claims", "claims", []sinktest.Fault{sinktest.Fail(sinktest.List, 1, sinks.ErrDenied).Of("claims/")}},
		{"the results of jobs", "jobs", []sinktest.Fault{sinktest.Fail(sinktest.List, 1, sinks.ErrDenied).Of("jobs/")}},
		{"the records", "pruned", []sinktest.Fault{sinktest.Fail(sinktest.List, 2, sinks.ErrDenied).Of("pruned/")}}, // behind the log, which asks for its own
		{"the log", logName(worldTimeline), []sinktest.Fault{sinktest.Fail(sinktest.List, 1, sinks.ErrDenied).Of("/l")}},
		{"the log, again", logName(worldTimeline), []sinktest.Fault{
			sinktest.Fail(sinktest.Open, 1, sinks.ErrNotFound).Of(l0(31)), sinktest.Fail(sinktest.List, 5, sinks.ErrDenied).Of("/l")}},
		{"the full snapshots, behind the log", logName(worldTimeline), []sinktest.Fault{sinktest.Fail(sinktest.List, 2, sinks.ErrDenied).Of("/full/")}},
		{"all names", "objects", []sinktest.Fault{sinktest.Fail(sinktest.List, lists, sinks.ErrDenied)}},
		{"the verdicts", "verdicts", []sinktest.Fault{sinktest.Fail(sinktest.List, 1, sinks.ErrDenied).Of("verdicts/")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := onMemory()
			w := newWorld(t, m)
			w.flip(snapshotObject(newBackup), 20)
			faulty := sinktest.NewFaulty(m)
			repo, err := repository.Open(t.Context(), faulty)
			w.must(err)
			faulty.Add(c.faults...)
			r := (&world{T: t, sink: faulty, repo: repo}).verify(Request{})
			faulty.AllFired(t)
			wantKinds(t, r, "object full/"+newBackup+"/snapshot.zst")
			for _, check := range r.Checks {
				if check.Object == c.object && check.Status == report.Unchecked && strings.Contains(check.Reason, sinks.ErrDenied.Error()) {
					return
				}
			}
			t.Errorf("no check says that %s could not be looked at: %+v", c.name, r.Checks)
		})
	}
}
