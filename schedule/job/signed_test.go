package job

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
)

// Unwrap gives the keys of what the simulation opens.
func (h *host) Unwrap() sinks.Sink { return h.Sink }

// trusting is s for agents that sign, and believe each other alone.
func trusting(t *testing.T, s sinks.Sink) sinks.Sink {
	t.Helper()
	return repository.WithKeys(s, sinktest.NewKeys(t))
}

// Results, attempts and signs of runs that an untrusted writer planted keep no slot from being done
// once, nor the agent that did it from knowing so.
func TestForeignResultsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, foreign := newRepo(t)
		at(t, "2000-01-05T12:30:00Z")
		for hour := range 6 {
			slot := repository.SlotName(time.Now().Truncate(time.Hour).Add(time.Duration(hour) * time.Hour))
			ok(t, foreign.WriteJob(t.Context(), repository.JobName{Job: "merge", Slot: slot}, repository.JobRecord{Job: "merge", Slot: slot, OK: true}))
			for _, attempt := range []int{1, 2, 1000} {
				for _, kind := range []repository.JobKind{repository.JobBegun, repository.JobStopped, repository.JobFailed} {
					name := repository.JobName{Job: "merge", Slot: slot, Kind: kind, Attempt: attempt}
					ok(t, foreign.WriteJob(t.Context(), name, repository.JobRecord{Job: "merge", Slot: slot, Attempt: attempt, Holder: "x"}))
				}
			}
		}
		var runs atomic.Int64
		a := startAgent(t, trusting(t, m), "a", 0, Options{}, quick(Spec{Name: "merge", Schedule: "0 * * * *"}, &runs))
		at(t, "2000-01-05T16:30:00Z")
		if n := runs.Load(); n != 5 { // of 12, which was missed, to 16 o'clock
			t.Errorf("%d runs", n)
		}
		last := a.status("merge").LastSuccess
		if last == nil || last.Slot != "20000105T160000Z" || last.Agent != "a" {
			t.Errorf("the last success is %+v", last)
		}
		a.stop()
	})
}
