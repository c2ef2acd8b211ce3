package job

import (
	"errors"
	"math"
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

// Heartbeats of somebody who is not trusted neither take the lease, nor keep it from
// whom it is due.
func TestForeignLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, foreign := newRepo(t)
		s := trusting(t, m)
		a := startAgent(t, s, "a", 0, Options{}, endless("full"))
		time.Sleep(Heartbeat)
		b := startAgent(t, s, "b", 0, Options{}, endless("full"))
		forged := 0
		forge := func(lasting time.Duration) {
			for end := time.Now().Add(lasting); time.Now().Before(end); time.Sleep(Heartbeat / 3) {
				newest, _, err := foreign.NewestLease(t.Context(), 0)
				ok(t, err)
				err = foreign.WriteLease(t.Context(), repository.Lease{Number: newest + 1, Epoch: newest + 1, Holder: "x", Process: "x"})
				if errors.Is(err, sinks.ErrExists) {
					continue // an agent was faster
				}
				ok(t, err)
				forged++
			}
		}
		forge(time.Hour)
		if got := holder(t, a, b); got != "a" {
			t.Errorf("%q holds the lease", got)
		}
		a.kill()
		forge(3 * lostAfter)
		if got := holder(t, b); got != "b" {
			t.Errorf("after a kill %q holds the lease", got)
		}
		b.stop()
		if forged < 100 {
			t.Errorf("%d were forged", forged)
		}
	})
}

// What somebody plants under the names of heartbeats, where the next one would be or far
// ahead, stops no job, and is reported. The agent takes the number after it.
func TestPlantedHeartbeats(t *testing.T) {
	type numbers [][2]uint64 // from, to
	for name, c := range map[string]struct {
		trust                   bool
		genuine, unsigned, junk numbers
		within                  time.Duration
		epoch                   uint64
	}{
		"junk at 1":             {trust: true, junk: numbers{{1, 1}}, within: time.Second, epoch: 2},
		"unsigned at 1":         {trust: true, unsigned: numbers{{1, 1}}, within: time.Second, epoch: 2},
		"both":                  {trust: true, unsigned: numbers{{1, 9}}, junk: numbers{{10, 20}, {30, 31}}, within: time.Second, epoch: 21},
		"the last number":       {trust: true, junk: numbers{{math.MaxUint64, math.MaxUint64}}, within: time.Second, epoch: 1},
		"the last 100":          {trust: true, unsigned: numbers{{math.MaxUint64 - 99, math.MaxUint64}}, within: time.Second, epoch: 1},
		"1 and the last":        {trust: true, junk: numbers{{1, 1}, {math.MaxUint64, math.MaxUint64}}, within: time.Second, epoch: 2},
		"70 at 1":               {trust: true, unsigned: numbers{{1, 70}}, within: lostAfter, epoch: 71},
		"70 after a genuine":    {trust: true, genuine: numbers{{1, 1}}, unsigned: numbers{{2, 71}}, within: lostAfter, epoch: 72},
		"500, older removed":    {trust: true, genuine: numbers{{41, 60}}, unsigned: numbers{{1, 5}, {61, 560}, {1 << 40, 1<<40 + 200}}, within: lostAfter, epoch: 561},
		"plain: junk at 1":      {junk: numbers{{1, 1}}, within: lostAfter, epoch: 2},
		"plain: 70 at 1":        {junk: numbers{{1, 70}}, within: lostAfter, epoch: 71},
		"plain: the last":       {junk: numbers{{math.MaxUint64, math.MaxUint64}}, within: time.Second, epoch: 1},
		"plain: after a sound":  {genuine: numbers{{41, 60}}, junk: numbers{{61, 61}, {1 << 40, 1<<40 + 9}}, within: lostAfter, epoch: 62},
		"plain: 1 and the last": {junk: numbers{{1, 1}, {math.MaxUint64 - 1, math.MaxUint64}}, within: lostAfter, epoch: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, foreign := newRepo(t)
				s := sinks.Sink(m)
				if c.trust {
					s = trusting(t, m)
				}
				own, err := repository.Open(t.Context(), s)
				ok(t, err)
				each := func(all numbers, plant func(number uint64) error) {
					for _, run := range all {
						for offset := range run[1] - run[0] + 1 {
							ok(t, plant(run[0]+offset))
						}
					}
				}
				heartbeat := func(r *repository.Repository) func(uint64) error {
					return func(number uint64) error {
						return r.WriteLease(t.Context(), repository.Lease{Number: number, Epoch: number, Holder: "x", Process: "x"})
					}
				}
				each(c.genuine, heartbeat(own))
				each(c.unsigned, heartbeat(foreign))
				each(c.junk, func(number uint64) error {
					_, err := sinks.Put(t.Context(), m, repository.LeaseName(number), []byte("junk"), sinks.CreateOptions{})
					return err
				})
				a := startAgent(t, s, "a", 0, Options{}, endless("full"))
				time.Sleep(c.within + time.Second)
				if epoch := a.runner.lease.holds(); epoch != c.epoch {
					t.Errorf("it holds the lease in epoch %d, want %d", epoch, c.epoch)
				}
				if a.runner.StrayLease() == "" {
					t.Error("nothing is reported of them")
				}
				a.stop()
			})
		})
	}
}

// Nor do very many, planted where the holder goes on, give the lease to two.
func TestPlantedHeartbeatsOfHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		s := trusting(t, m)
		a := startAgent(t, s, "a", 0, Options{}, endless("full"))
		time.Sleep(30*Heartbeat + Heartbeat/2)
		for _, first := range []uint64{32, 1000} {
			for n := range uint64(200) {
				_, err := sinks.Put(t.Context(), m, repository.LeaseName(first+n), []byte("junk"), sinks.CreateOptions{})
				ok(t, err)
			}
		}
		b := startAgent(t, s, "b", 0, Options{}, endless("full"))
		for range 3600 {
			time.Sleep(time.Second)
			holder(t, a, b) // not both
		}
		if got := holder(t, a, b); got == "" {
			t.Error("nobody holds the lease")
		}
		if a.runner.StrayLease() == "" || b.runner.StrayLease() == "" {
			t.Error("nothing is reported of them")
		}
		a.stop()
		b.stop()
	})
}

// Results and claims that somebody else wrote beforehand keep no slot from being done
// once, nor the agent that did it from knowing so.
func TestForeignResultsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, foreign := newRepo(t)
		at(t, "2000-01-05T12:30:00Z")
		for hour := range 6 {
			slot := repository.SlotName(time.Now().Truncate(time.Hour).Add(time.Duration(hour) * time.Hour))
			ok(t, foreign.WriteJobResult(t.Context(), repository.JobResult{Job: "merge", Slot: slot, OK: true}))
			for _, attempt := range []int{1, 2, 1000} {
				ok(t, foreign.WriteClaim(t.Context(), repository.Claim{Job: "merge", Slot: slot, Attempt: attempt, Holder: "x"}))
			}
		}
		var runs atomic.Int64
		a := startAgent(t, trusting(t, m), "a", 0, Options{}, quick(Spec{Name: "merge", Schedule: "0 * * * *"}, &runs))
		at(t, "2000-01-05T16:30:00Z")
		if n := runs.Load(); n != 5 { // of 12, which was missed, to 16 o'clock
			t.Errorf("%d runs", n)
		}
		last := a.runner.Known()["merge"].LastSuccess
		if last == nil || last.Slot != "20000105T160000Z" || last.Agent != "a" {
			t.Errorf("the last success is %+v", last)
		}
		a.stop()
	})
}
