package job

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
)

const slot = "20000101T010000Z"

func ok(t *testing.T, err error) {
	t.Helper()
	require.NoError(t, err)
}

// endless is a job that lasts until its process ends.
func endless(name string) Entry {
	return Entry{Spec: Spec{Name: name}, Do: func(ctx context.Context, _ *Task) (Result, error) {
		<-ctx.Done()
		return Result{}, ctx.Err()
	}}
}

// holder is the one agent that holds the lease; empty for none.
func holder(t *testing.T, all ...*agent) (name string) {
	t.Helper()
	for _, a := range all {
		if a.runner.lease.holds() == 0 {
			continue
		}
		if name != "" {
			t.Fatalf("%s and %s hold the lease", name, a.name)
		}
		name = a.name
	}
	return name
}

// Of several agents one has the lease: another one after an orderly end at once,
// after a kill when three heartbeats were missed, and the same one after its restart.
func TestPromise2Lease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		start := func(name string) *agent { return startAgent(t, m, name, 0, Options{}, endless("full")) }
		a := start("a")
		synctest.Wait()
		b := start("b")
		time.Sleep(10 * time.Hour)
		if got := holder(t, a, b); got != "a" {
			t.Fatalf("%q holds the lease", got)
		}
		a.kill()
		a = start("a")
		time.Sleep(time.Second)
		if got := holder(t, a, b); got != "a" {
			t.Errorf("after a restart %q holds the lease", got)
		}
		a.stop()
		time.Sleep(Heartbeat)
		if got := holder(t, b); got != "b" {
			t.Errorf("after an orderly end %q holds the lease", got)
		}
		c := start("c")
		time.Sleep(10 * Heartbeat)
		killed := time.Now()
		b.kill()
		time.Sleep(lostAfter - Heartbeat - time.Second)
		if got := holder(t, c); got != "" {
			t.Errorf("taken %v after the last sign of life", time.Since(killed))
		}
		time.Sleep(2*Heartbeat + time.Second)
		if got := holder(t, c); got != "c" {
			t.Errorf("after a kill %q holds the lease", got)
		}
		c.stop()
	})
}

// An agent that should not have the lease leaves it to others for a while, and
// takes it where nobody wants it.
func TestLeasePreferred(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		follower := func() bool { return false }
		a := startAgent(t, m, "a", 0, Options{Prefer: follower}, endless("full"))
		b := startAgent(t, m, "b", 0, Options{Prefer: follower}, endless("full"))
		time.Sleep(preferredWait + Heartbeat)
		first := holder(t, a, b)
		if first == "" {
			t.Fatal("nobody has it")
		}
		c := startAgent(t, m, "c", 0, Options{}, endless("full"))
		time.Sleep(10 * Heartbeat)
		if got := holder(t, a, b, c); got != first {
			t.Errorf("%q took it from one that lives", got)
		}
		other := a
		if first == "a" {
			a.kill()
			other = b
		} else {
			b.kill()
		}
		time.Sleep(lostAfter + 2*Heartbeat)
		if got := holder(t, other, c); got != "c" {
			t.Errorf("%q has it, not the preferred one", got)
		}
		other.stop()
		c.stop()
	})
}

// Work ends half a minute before another agent can take the lease, also where the
// repository lets requests hang, and what it says afterwards does not count.
func TestPromise2WorkEndsBefore(t *testing.T) {
	for _, hangs := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			m, _ := newRepo(t)
			var mu sync.Mutex
			ended := map[string]time.Time{}
			began := map[string]time.Time{}
			entry := func(name string) Entry {
				return Entry{Spec: daily, Do: func(ctx context.Context, _ *Task) (Result, error) {
					mu.Lock()
					began[name] = time.Now()
					mu.Unlock()
					select {
					case <-ctx.Done():
					case <-time.After(20 * time.Minute):
					}
					mu.Lock()
					ended[name] = time.Now()
					mu.Unlock()
					return Result{Text: "by " + name}, nil
				}}
			}
			a := startAgent(t, m, "a", 0, Options{}, entry("a"))
			b := startAgent(t, m, "b", 0, Options{Prefer: func() bool { return false }}, entry("b"))
			at(t, "2000-01-01T01:00:10Z")
			if _, there := began["a"]; !there {
				t.Fatal("a has not begun")
			}
			if hangs {
				a.stall()
			} else {
				a.host.away.Store(true)
			}
			at(t, "2000-01-01T01:30:00Z")
			mu.Lock()
			margins := began["b"].Sub(ended["a"])
			mu.Unlock()
			if margins < margin || margins > lostAfter+preferredWait+Heartbeat {
				t.Errorf("b began %v after a had ended", margins)
			}
			a.wake()
			a.host.away.Store(false)
			at(t, "2000-01-01T02:00:00Z")
			if r := results(t, m, "full")[slot]; !r.OK || r.Holder != "b" || r.Attempt != 2 {
				t.Errorf("%+v", r)
			}
			if got := holder(t, a, b); got != "b" {
				t.Errorf("%q holds the lease", got)
			}
			a.stop()
			b.stop()
		})
	}
}

// A heartbeat whose answer was lost is the holder's own.
func TestLeaseLostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		faulty := sinktest.NewFaulty(m)
		for _, n := range []int{1, 3} { // taking it, and renewing it
			faulty.Add(sinktest.Lose(sinktest.Commit, n, sinks.ErrUncertain).Of("runner/"))
		}
		a := startAgent(t, faulty, "a", 0, Options{}, endless("full"))
		b := startAgent(t, m, "b", 0, Options{Prefer: func() bool { return false }}, endless("full"))
		time.Sleep(time.Hour)
		faulty.AllFired(t)
		if got := holder(t, a, b); got != "a" || a.runner.lease.holds() != 1 {
			t.Errorf("%q holds the lease, in epoch %d", got, a.runner.lease.holds())
		}
		a.stop()
		b.stop()
	})
}

// Promise 8: whoever sees the lease in the hands of another process of its own name
// says so, and not of the process before it.
func TestPromise8DuplicateName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		a := startAgent(t, m, "a", 0, Options{}, endless("full"))
		time.Sleep(time.Hour)
		a.kill()
		a = startAgent(t, m, "a", 0, Options{}, endless("full"))
		time.Sleep(time.Hour)
		if a.runner.DuplicateName() {
			t.Error("the process before passes for another agent of its name")
		}
		time.Sleep(Heartbeat / 2) // were both to write at one moment, either may be the one that finds out
		duplicateName := startAgent(t, m, "a", 0, Options{}, endless("full"))
		time.Sleep(2 * Heartbeat)
		if !a.runner.DuplicateName() {
			t.Error("it was not found out")
		}
		duplicateName.stop()
		time.Sleep(25 * time.Hour)
		if a.runner.DuplicateName() {
			t.Error("it is reported for ever")
		}
		a.stop()
	})
}

// Promise 6: a job that kills its process, wherever it is run, is begun three times.
func TestPromise6Attempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		var runs atomic.Int64
		at(t, "2000-01-01T01:00:00Z")
		for _, name := range []string{"a", "b", "a", "c", "b"} {
			var box atomic.Pointer[agent]
			a := startAgent(t, m, name, 0, Options{}, Entry{Spec: daily, Do: func(ctx context.Context, _ *Task) (Result, error) {
				runs.Add(1)
				time.Sleep(time.Second) // the box is filled when startAgent has returned
				box.Load().host.dead.Store(true)
				<-ctx.Done()
				return Result{}, ctx.Err()
			}})
			box.Store(a)
			time.Sleep(2 * lostAfter)
			a.kill()
		}
		if r := results(t, m, "full")[slot]; runs.Load() != MaxAttempts || r.OK || r.Attempt != MaxAttempts || !strings.Contains(r.Text, "ended in the middle of it") {
			t.Errorf("%d runs, %+v", runs.Load(), r)
		}
	})
}

// A job that is run here runs without the lease; two agents that do so share its
// slots, and one takes over when the other's run should have ended long ago.
func TestHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		var runs atomic.Int64
		here := quick(daily, &runs)
		here.Here = true
		other := endless("merge")
		a := startAgent(t, m, "a", 0, Options{}, other)
		time.Sleep(time.Minute)
		v := startAgent(t, m, "v", 0, Options{}, here)
		if v.runner.lease != nil {
			t.Error("without a job for it, it takes part in the lease")
		}
		stuck := endless("full")
		stuck.Spec, stuck.Here, stuck.Timeout = daily, true, time.Hour
		at(t, "2000-01-01T02:00:00Z")
		if r := results(t, m, "full")[slot]; !r.OK || r.Holder != "v" || runs.Load() != 2 || holder(t, a) != "a" {
			t.Errorf("%+v, %d runs", r, runs.Load())
		}
		v.stop()
		w := startAgent(t, m, "w", 0, Options{}, stuck)
		at(t, "2000-01-02T01:10:00Z")
		w.kill()
		here.Timeout = time.Hour
		v = startAgent(t, m, "v", 0, Options{}, here)
		at(t, "2000-01-02T01:50:00Z")
		if s := v.runner.Status()[0]; s.Waiting != "w is at it (attempt 1)" {
			t.Errorf("%+v", s)
		}
		at(t, "2000-01-02T02:30:00Z")
		if r := results(t, m, "full")["20000102T010000Z"]; !r.OK || r.Holder != "v" || r.Attempt != 2 {
			t.Errorf("%+v", r)
		}
		v.stop()
		a.stop()
	})
}

// The process of a demand is killed; when its agent demands the slot again after the
// restart, the slot has a failure for its result, which the history shows.
func TestDemandOfKilledAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		a := startAgent(t, m, "a", 0, Options{}, endless("drill"))
		d, err := a.runner.Demand("drill", "", nil)
		ok(t, err)
		time.Sleep(10 * time.Minute) // however long it was at it
		a.kill()
		if all := results(t, m, "drill"); len(all) != 0 {
			t.Fatalf("it was to be killed without a word: %v", all)
		}
		again := startAgent(t, m, "a", 0, Options{}, endless("drill"))
		same, err := again.runner.Demand("drill", d.slot, nil)
		ok(t, err)
		<-same.Done()
		if r := results(t, m, "drill")[d.slot]; r.OK || r.Holder != "a" || !strings.Contains(r.Text, "ended in the middle of it") {
			t.Errorf("after the restart: %+v", r)
		}
		if s := again.runner.Status()[0]; s.LastFailure == nil || s.LastFailure.Slot != d.slot {
			t.Errorf("the status does not show it: %+v", s)
		}
		// One that is stopped in an orderly way has its result at once.
		d, err = again.runner.Demand("drill", "", nil)
		ok(t, err)
		time.Sleep(time.Minute)
		again.stop()
		if r := results(t, m, "drill")[d.slot]; r.OK || !strings.Contains(r.Text, "a was stopped in the middle of it") {
			t.Errorf("%+v", r)
		}
	})
}

// Of agents that were given one slot, as after a full snapshot, one does it.
func TestDemandOfOneSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		var runs atomic.Int64
		slot := repository.SlotName(time.Now()) + "-demand-0a1b2c"
		var all []*agent
		var demands []*Demand
		for _, name := range []string{"a", "b", "c"} {
			a := startAgent(t, m, name, 0, Options{}, lasting(Spec{Name: "drill"}, time.Minute, &runs))
			d, err := a.runner.Demand("drill", slot, nil)
			ok(t, err)
			all, demands = append(all, a), append(demands, d)
		}
		time.Sleep(10 * time.Minute)
		if r := results(t, m, "drill")[slot]; !r.OK || runs.Load() != 1 {
			t.Errorf("%d runs, %+v", runs.Load(), r)
		}
		for i, a := range all {
			<-demands[i].Done()
			a.stop()
		}
	})
}

// A claim that nobody can read blocks a slot for as long as a run may take.
func TestDamagedClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		_, err := sinks.Put(t.Context(), m, repository.ClaimName("full", slot, 1), []byte("{"), sinks.CreateOptions{})
		require.NoError(t, err)
		var runs atomic.Int64
		e := quick(daily, &runs)
		e.Timeout = time.Hour
		a := startAgent(t, m, "a", 0, Options{}, e)
		at(t, "2000-01-01T01:30:00Z")
		if s := a.runner.Status()[0]; !strings.Contains(s.Waiting, "cannot be read") {
			t.Errorf("%+v", s)
		}
		at(t, "2000-01-01T03:00:00Z")
		if r := results(t, m, "full")[slot]; !r.OK || r.Attempt != 2 {
			t.Errorf("%+v", r)
		}
		a.stop()
	})
}

// A run that takes too long is ended, and has failed for that reason.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		e := endless("full")
		e.Timeout = time.Hour
		a := startAgent(t, m, "a", 0, Options{}, e)
		d, err := a.runner.Demand("full", "", nil)
		ok(t, err)
		time.Sleep(time.Hour + time.Minute)
		if r := results(t, m, "full")[d.slot]; r.OK || !strings.Contains(r.Text, "it took longer than 1h0m0s (jobs.full.timeout)") {
			t.Errorf("%+v", r)
		}
		a.stop()
	})
}

func TestRunnerRefused(t *testing.T) {
	_, repo := newRepo(t)
	var runs atomic.Int64
	for why, c := range map[string]struct {
		o       Options
		entries []Entry
	}{
		"a name of its own": {Options{}, nil},
		"@every":            {Options{Agent: "a"}, []Entry{quick(Spec{Name: "full", Schedule: "@every 5m"}, &runs)}},
		"is there twice":    {Options{Agent: "a"}, []Entry{quick(daily, &runs), quick(daily, &runs)}},
		"has nothing to do": {Options{Agent: "a"}, []Entry{{Spec: daily}}},
	} {
		if _, err := NewRunner(repo, c.o, c.entries); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", why, err)
		}
	}
}
