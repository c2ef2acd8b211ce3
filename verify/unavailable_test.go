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
	for _, c := range []struct {
		name, object string
		faults       []sinktest.Fault
	}{
		{"the log", logName(worldTimeline), []sinktest.Fault{sinktest.Fail(sinktest.List, 1, sinks.ErrDenied).Of("/l")}},
		{"the log, again", logName(worldTimeline), []sinktest.Fault{
			sinktest.Fail(sinktest.Open, 1, sinks.ErrNotFound).Of(l0(31)), sinktest.Fail(sinktest.List, 5, sinks.ErrDenied).Of("/l")}},
		{"the full snapshots, behind the log", logName(worldTimeline), []sinktest.Fault{sinktest.Fail(sinktest.List, 2, sinks.ErrDenied).Of("/full/")}},
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
