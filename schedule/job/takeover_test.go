package job

import (
	"context"
	"errors"
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

// A run whose agent was killed is taken over when three signs of it are missing, not before;
// its own agent continues at once, and so does another one after an orderly end.
func TestPromise2TakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		var runs atomic.Int64
		e := lasting(daily, 20*time.Minute, &runs)
		at(t, "2000-01-01T01:00:00Z")
		a := startAgent(t, m, "a", 0, Options{}, e)
		time.Sleep(time.Second)
		b := startAgent(t, m, "b", 0, Options{}, e)
		time.Sleep(10*time.Minute + 30*time.Second)
		if s := b.runner.Status()[0]; s.Running != nil || s.Waiting != "a is at it (attempt 1)" {
			t.Errorf("b shows %+v", s)
		}
		a.kill()
		a = startAgent(t, m, "a", 0, Options{}, e)
		time.Sleep(time.Second)
		if s := a.runner.Status()[0]; s.Running == nil || s.Running.Attempt != 2 {
			t.Errorf("after a restart a shows %+v", s)
		}
		time.Sleep(10 * time.Minute)
		a.kill()
		time.Sleep(lostAfter - Heartbeat - time.Second)
		if s := b.runner.Status()[0]; s.Running != nil {
			t.Error("taken over too soon")
		}
		time.Sleep(2*Heartbeat + time.Second)
		if s := b.runner.Status()[0]; s.Running == nil || s.Running.Attempt != 3 {
			t.Errorf("after a kill b shows %+v", s)
		}
		time.Sleep(21 * time.Minute)
		if r := results(t, m, "full")[slot]; !r.OK || r.Holder != "b" || runs.Load() != 3 {
			t.Errorf("%+v after %d runs", r, runs.Load())
		}
		b.stop()
	})
}

// An agent that should not do the jobs leaves them to others for a while, and does them if
// none does.
func TestPreferred(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		var runs atomic.Int64
		follower := func() bool { return false }
		a := startAgent(t, m, "a", 0, Options{Prefer: follower}, quick(daily, &runs))
		b := startAgent(t, m, "b", 0, Options{}, quick(daily, &runs))
		for day := range 5 {
			at(t, time.Date(2000, 1, 1+day, 1, 0, 10, 0, time.UTC).Format(time.RFC3339))
			if r := results(t, m, "full")[repository.SlotName(time.Now().Truncate(time.Hour))]; r.Holder != "b" {
				t.Errorf("%+v: not the preferred one", r)
			}
		}
		b.stop()
		at(t, "2000-01-06T01:01:00Z")
		if n := len(results(t, m, "full")); n != 6 { // one was made up at the start
			t.Errorf("%d results: it did not wait", n)
		}
		at(t, "2000-01-06T01:02:00Z")
		if r := results(t, m, "full")["20000106T010000Z"]; !r.OK || r.Holder != "a" {
			t.Errorf("%+v: none did it", r)
		}
		a.stop()
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
			a.stop()
			b.stop()
		})
	}
}

// Signs and attempts whose answers were lost are the agent's own.
func TestLostAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		faulty := sinktest.NewFaulty(m,
			sinktest.Lose(sinktest.Commit, 1, sinks.ErrUncertain).Of("jobs/full/"+slot+".attempt"),
			sinktest.Lose(sinktest.Commit, 2, sinks.ErrUncertain).Of("jobs/full/"+slot+".beat"),
			sinktest.Lose(sinktest.Commit, 1, sinks.ErrUncertain).Of("jobs/full/"+slot+".json"))
		var runs atomic.Int64
		at(t, "2000-01-01T01:00:00Z")
		a := startAgent(t, faulty, "a", 0, Options{}, lasting(daily, time.Hour, &runs))
		b := startAgent(t, m, "b", 0, Options{Prefer: func() bool { return false }}, lasting(daily, time.Hour, &runs))
		time.Sleep(2 * time.Hour)
		faulty.AllFired(t)
		if r := results(t, m, "full")[slot]; !r.OK || r.Holder != "a" || runs.Load() != 1 {
			t.Errorf("%+v after %d runs", r, runs.Load())
		}
		a.stop()
		b.stop()
	})
}

// Promise 8: whoever sees a run by another process of its own name says so, and not of the
// process before it.
func TestPromise8DuplicateName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		var runs atomic.Int64
		e := quick(Spec{Name: "merge", Schedule: "0 * * * *"}, &runs)
		twin := func(a *agent) bool {
			ok(t, a.runner.History(t.Context()))
			return a.runner.DuplicateName()
		}
		a := startAgent(t, m, "a", 0, Options{}, e)
		time.Sleep(time.Hour + time.Minute)
		a.kill()
		a = startAgent(t, m, "a", 0, Options{}, e)
		time.Sleep(time.Hour)
		if twin(a) {
			t.Error("the process before passes for another agent of its name")
		}
		other := startAgent(t, m, "a", 0, Options{}, e)
		time.Sleep(2 * time.Hour)
		if !twin(a) && !twin(other) {
			t.Error("it was not found out")
		}
		other.stop()
		time.Sleep(25 * time.Hour)
		if twin(a) {
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

// A job that is run here is not left to others first. Two agents that run it here share its
// slots, and one takes over when the other is dead.
func TestHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		var runs atomic.Int64
		here := quick(daily, &runs)
		here.Here = true
		v := startAgent(t, m, "v", 0, Options{Prefer: func() bool { return false }}, here)
		at(t, "2000-01-01T01:00:10Z")
		if r := results(t, m, "full")[slot]; !r.OK || r.Holder != "v" || runs.Load() != 2 {
			t.Errorf("%+v, %d runs", r, runs.Load())
		}
		v.stop()
		stuck := endless("full")
		stuck.Spec, stuck.Here = daily, true
		w := startAgent(t, m, "w", 0, Options{}, stuck)
		at(t, "2000-01-02T01:10:00Z")
		w.kill()
		v = startAgent(t, m, "v", 0, Options{}, here)
		at(t, "2000-01-02T01:12:00Z")
		if s := v.runner.Status()[0]; s.Waiting != "w is at it (attempt 1)" {
			t.Errorf("%+v", s)
		}
		at(t, "2000-01-02T01:15:00Z")
		if r := results(t, m, "full")["20000102T010000Z"]; !r.OK || r.Holder != "v" || r.Attempt != 2 {
			t.Errorf("%+v", r)
		}
		v.stop()
	})
}

// occasion is a job that is due once, for a reason that all agents find.
func occasion(e Entry, slot string) Entry {
	begin := time.Now()
	e.Due = func(time.Time) *Occasion { return &Occasion{Slot: slot, Seen: begin, Here: true} }
	return e
}

// The process of an occasion's run is killed; after the restart of its agent the occasion has
// a failure for its result, which the history shows. An orderly end does not count.
func TestOccasionOfKilledAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		one, other := slot+"-demand-0a1b2c", slot+"-demand-0a1b2d"
		a := startAgent(t, m, "a", 0, Options{}, occasion(endless("drill"), one))
		time.Sleep(10 * time.Minute) // however long it was at it
		a.kill()
		if all := results(t, m, "drill"); len(all) != 0 {
			t.Fatalf("it was to be killed without a word: %v", all)
		}
		again := startAgent(t, m, "a", 0, Options{}, occasion(endless("drill"), one))
		time.Sleep(time.Minute)
		if r := results(t, m, "drill")[one]; r.OK || r.Holder != "a" || !strings.Contains(r.Text, "ended in the middle of it") {
			t.Errorf("after the restart: %+v", r)
		}
		if s := again.status("drill"); s.LastFailure == nil || s.LastFailure.Slot != one {
			t.Errorf("the status does not show it: %+v", s)
		}
		again.stop()
		var runs atomic.Int64
		again = startAgent(t, m, "a", 0, Options{}, occasion(endless("drill"), other))
		time.Sleep(time.Minute)
		again.stop()
		b := startAgent(t, m, "b", 0, Options{}, occasion(quick(Spec{Name: "drill"}, &runs), other))
		time.Sleep(time.Minute)
		if r := results(t, m, "drill")[other]; !r.OK || r.Attempt != 2 || runs.Load() != 1 {
			t.Errorf("after an orderly end: %+v, %d runs", r, runs.Load())
		}
		b.stop()
	})
}

// Of agents that find one occasion, as after a full snapshot, one runs the job.
func TestOccasion_SeveralAgents_OneRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		var runs atomic.Int64
		slot := slot + "-demand-0a1b2c"
		var all []*agent
		for _, name := range []string{"a", "b", "c"} {
			all = append(all, startAgent(t, m, name, 0, Options{}, occasion(lasting(Spec{Name: "drill"}, time.Minute, &runs), slot)))
		}
		time.Sleep(10 * time.Minute)
		if r := results(t, m, "drill")[slot]; !r.OK || runs.Load() != 1 {
			t.Errorf("%d runs, %+v", runs.Load(), r)
		}
		for _, a := range all {
			a.stop()
		}
	})
}

// A listing from before a run ended is not a reason for another run.
func TestOccasion_StaleListing_IsNoReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		var runs atomic.Int64
		e := lasting(Spec{Name: "full"}, 3*time.Hour, &runs)
		seen := atomic.Pointer[time.Time]{}
		begin := time.Now()
		seen.Store(&begin)
		e.Due = func(now time.Time) *Occasion {
			return &Occasion{Slot: repository.DemandSlot(now.Truncate(time.Hour), []byte("size")), Seen: *seen.Load()}
		}
		a := startAgent(t, m, "a", 0, Options{}, e)
		time.Sleep(4 * time.Hour)
		if runs.Load() != 1 {
			t.Errorf("%d runs", runs.Load())
		}
		now := time.Now()
		seen.Store(&now)
		time.Sleep(time.Minute)
		if runs.Load() != 2 {
			t.Errorf("%d runs after a new listing", runs.Load())
		}
		a.stop()
	})
}

// A failure that another attempt would repeat ends the slot.
func TestFinalFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		var runs atomic.Int64
		at(t, "2000-01-01T01:00:00Z")
		a := startAgent(t, m, "a", 0, Options{}, Entry{Spec: daily, Do: func(context.Context, *Task) (Result, error) {
			runs.Add(1)
			return Result{Damaged: true, Final: true}, errors.New("it is damaged")
		}})
		time.Sleep(12 * time.Hour)
		if r := results(t, m, "full")[slot]; runs.Load() != 1 || r.OK || !r.Damaged || r.Text != "it is damaged" {
			t.Errorf("%d runs, %+v", runs.Load(), r)
		}
		a.stop()
	})
}

// An attempt whose record cannot be read blocks a slot for as long as it may be under way.
func TestDamagedAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		name := repository.JobName{Job: "full", Slot: slot, Kind: repository.JobBegun, Attempt: 1}.String()
		_, err := sinks.Put(t.Context(), m, name, []byte("{"), sinks.CreateOptions{})
		require.NoError(t, err)
		var runs atomic.Int64
		e := quick(daily, &runs)
		e.Timeout = time.Hour
		a := startAgent(t, m, "a", 0, Options{}, e)
		at(t, "2000-01-01T01:02:00Z")
		if s := a.runner.Status()[0]; !strings.Contains(s.Waiting, "cannot be read") {
			t.Errorf("%+v", s)
		}
		at(t, "2000-01-01T01:10:00Z")
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
		time.Sleep(time.Second)
		require.ErrorContains(t, a.runner.RunNow(t.Context(), "full", nil), "it took longer than 1h0m0s (jobs.full.timeout)")
		if s := a.status("full"); s.LastFailure == nil || !strings.Contains(s.LastFailure.Text, "it took longer than") {
			t.Errorf("%+v", s)
		}
		a.stop()
	})
}

func TestRunnerRefused(t *testing.T) {
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
		if _, err := NewRunner(c.o, c.entries); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", why, err)
		}
	}
}

// Two runs for two slots whose agents died are both given up, and the newer slot is done.
func TestPromise2TwoDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, repo := newRepo(t)
		for _, hour := range []int{2, 3} {
			name := repository.JobName{Job: "merge", Slot: repository.SlotName(time.Date(2000, 1, 1, hour, 0, 0, 0, time.UTC)), Kind: repository.JobBegun, Attempt: 1}
			ok(t, repo.WriteJob(t.Context(), name, repository.JobRecord{Job: name.Job, Slot: name.Slot, Attempt: 1, Holder: "x", Process: "x"}))
		}
		at(t, "2000-01-01T03:00:30Z")
		var runs atomic.Int64
		e := quick(Spec{Name: "merge", Schedule: "0 * * * *"}, &runs)
		e.Timeout = 2 * time.Hour
		c := startAgent(t, m, "c", 0, Options{}, e)
		time.Sleep(lostAfter - time.Second)
		if runs.Load() != 0 {
			t.Error("they may be under way")
		}
		time.Sleep(lostAfter + 2*Heartbeat)
		if r := results(t, m, "merge")["20000101T030000Z"]; !r.OK || r.Holder != "c" || r.Attempt != 2 {
			t.Errorf("%+v", r)
		}
		c.stop()
	})
}
