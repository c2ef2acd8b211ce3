package job

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
)

var daily = Spec{Name: "full", Schedule: "0 1 * * *"}

// Promise 3: what was due before there was a repository nobody has missed.
func TestPromise3NewRepository(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at(t, "2000-01-05T12:30:00Z")
		m := sinktest.NewMemory()
		_, err := repository.Init(t.Context(), m, time.Now())
		require.NoError(t, err)
		var runs atomic.Int64
		a := startAgent(t, m, "a", 0, Options{}, quick(Spec{Name: "merge", Schedule: "0 * * * *"}, &runs), quick(daily, &runs))
		at(t, "2000-01-05T12:59:00Z")
		if runs.Load() != 0 {
			t.Errorf("%d runs in a repository that is %s old", runs.Load(), 29*time.Minute)
		}
		at(t, "2000-01-05T13:01:00Z")
		if runs.Load() != 1 {
			t.Errorf("%d runs after the first slot", runs.Load())
		}
		a.stop()
	})
}

// Promise 3: what was missed is made up once, the newest slot only: at the start,
// and when the clock jumps, which is also how waking up from suspend looks.
func TestPromise3MissedRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		var runs atomic.Int64
		hourly := Spec{Name: "merge", Schedule: "0 * * * *"}
		at(t, "2000-01-05T12:30:00Z")
		a := startAgent(t, m, "a", 0, Options{}, quick(hourly, &runs))
		at(t, "2000-01-05T12:59:00Z")
		if got := keys(results(t, m, "merge")); !slices.Equal(got, []string{"20000105T120000Z"}) {
			t.Fatalf("made up: %v", got)
		}
		a.stop()
		a = startAgent(t, m, "a", 0, Options{}, quick(hourly, &runs))
		at(t, "2000-01-05T14:30:00Z")
		if runs.Load() != 3 {
			t.Fatalf("%d runs: one was done twice, or not at all", runs.Load())
		}

		// Suspended for three days: the newest, at the next glance.
		a.skew.Store(int64(72 * time.Hour))
		time.Sleep(clockEvery)
		synctest.Wait()
		if got := keys(results(t, m, "merge")); runs.Load() != 4 || got[3] != "20000108T140000Z" {
			t.Fatalf("%d runs: %v", runs.Load(), got)
		}
		// The clock was wrong, and is set back: the slots of the true time go on.
		a.skew.Store(0)
		at(t, "2000-01-05T17:30:00Z")
		if got := keys(results(t, m, "merge")); runs.Load() != 7 || !slices.Contains(got, "20000105T170000Z") {
			t.Fatalf("%d runs: %v", runs.Load(), got)
		}
		// Back by an hour, within what was done already: nothing is done again.
		a.skew.Store(int64(-time.Hour))
		at(t, "2000-01-05T18:10:00Z")
		if runs.Load() != 7 {
			t.Fatalf("%d runs: %v", runs.Load(), keys(results(t, m, "merge")))
		}
		if h := a.status("merge"); h.Last == nil || h.Last.Slot != "20000105T170000Z" {
			t.Errorf("the last one is %+v: a slot of the future hides it", h.Last)
		}
		a.stop()
	})
}

// Promise 4: a slot that comes due while the one before it runs is skipped by its
// holder, and by the agent that looks on; it is neither a success nor a failure.
func TestPromise4Skipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		var runs atomic.Int64
		hourly := Spec{Name: "merge", Schedule: "0 * * * *"}
		a := startAgent(t, m, "a", 0, Options{}, lasting(hourly, 80*time.Minute, &runs))
		b := startAgent(t, m, "b", 0, Options{}, lasting(hourly, 80*time.Minute, &runs))
		at(t, "2000-01-01T05:50:00Z") // 00:00 was due at the start, to 01:20; 02:00 to 03:20; 04:00 to 05:20
		all := results(t, m, "merge")
		if got, want := keys(all), []string{"20000101T000000Z", "20000101T020000Z", "20000101T040000Z"}; !slices.Equal(got, want) {
			t.Errorf("runs at %v, want %v", got, want)
		}
		if runs.Load() != 3 {
			t.Errorf("%d runs", runs.Load())
		}
		for _, agent := range []*agent{a, b} {
			ok(t, agent.runner.History(t.Context()))
			if h := agent.status("merge"); h.Last == nil || h.Last.Slot != "20000101T040000Z" || h.LastFailure != nil {
				t.Errorf("%s: %+v", agent.name, h)
			}
			agent.stop()
		}
	})
}

// An agent that is stopped in the middle of a run has said so before Run returns,
// and another one goes on within a minute.
func TestStoppedInTheMiddle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		var runs atomic.Int64
		at(t, "2000-01-01T01:00:00Z")
		a := startAgent(t, m, "a", 0, Options{}, lasting(daily, 10*time.Minute, &runs))
		time.Sleep(time.Second)
		b := startAgent(t, m, "b", 0, Options{}, lasting(daily, 10*time.Minute, &runs))
		time.Sleep(time.Minute)
		if s := b.runner.Status()[0]; s.Waiting != "a is at it (attempt 1)" || s.Running != nil || s.Next.IsZero() {
			t.Errorf("b shows %+v", s)
		}
		if s := a.runner.Status()[0]; s.Running == nil || s.Running.Phase != "working" || s.Running.Total != 2 {
			t.Errorf("a shows %+v", s)
		}
		began := time.Now()
		a.stop()
		if took := time.Since(began); took > Grace {
			t.Errorf("stopping took %v", took)
		}
		if got := names(t, m, "jobs/full/"); !slices.Equal(got, []string{slot + ".attempt-1.json", slot + ".beat-1-1.json", slot + ".stopped-1.json"}) {
			t.Fatalf("stored: %v", got)
		}
		time.Sleep(Heartbeat)
		synctest.Wait()
		if s := b.runner.Status()[0]; s.Running == nil || s.Running.Attempt != 2 {
			t.Fatalf("b shows %+v", s)
		}
		time.Sleep(10 * time.Minute)
		b.stop()
		if r := results(t, m, "full")[slot]; !r.OK || r.Holder != "b" || runs.Load() != 2 {
			t.Errorf("%+v after %d runs", r, runs.Load())
		}
	})
}

// Promise 5: a repository that is away loses no slot, whether it goes before the
// claim or before the result, and the history stays as it was.
func TestPromise5RepositoryAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		var runs atomic.Int64
		a := startAgent(t, m, "a", 0, Options{}, lasting(daily, 40*time.Second, &runs))
		at(t, "2000-01-01T12:00:00Z")
		a.host.away.Store(true)
		at(t, "2000-01-02T03:00:00Z")
		s := a.runner.Status()[0]
		if !strings.Contains(s.Waiting, "no route to host") || s.LastSuccess == nil || s.LastSuccess.Slot != slot {
			t.Errorf("status: %+v", s)
		}
		require.Error(t, a.runner.History(t.Context()), "nothing says that the history is old")
		a.host.away.Store(false)
		time.Sleep(lastRetry + time.Minute)
		synctest.Wait()
		if r := results(t, m, "full")["20000102T010000Z"]; !r.OK {
			t.Fatalf("%+v", r)
		}
		at(t, "2000-01-03T01:00:10Z")
		a.host.away.Store(true)
		at(t, "2000-01-03T01:01:20Z")
		a.host.away.Store(false)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if r := results(t, m, "full")["20000103T010000Z"]; !r.OK || runs.Load() != 4 {
			t.Fatalf("%+v after %d runs", r, runs.Load())
		}
		a.stop()
	})
}

// A run that its agent asks for has its argument, waits for the run under way, and returns
// its failure.
func TestRunNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		var args []any
		entry := Entry{Spec: Spec{Name: "replay"}, Do: func(_ context.Context, task *Task) (Result, error) {
			args = append(args, task.Arg)
			time.Sleep(time.Minute)
			if len(args) == 2 {
				return Result{Bytes: 3, Damaged: true}, errors.New("went wrong")
			}
			return Result{Text: "done", Detail: json.RawMessage(`{"a":1}`)}, nil
		}}
		a := startAgent(t, m, "a", 0, Options{}, entry, Entry{Spec: Spec{Name: "drill"}, Off: "no identity"})
		synctest.Wait()
		first := make(chan error)
		go func() { first <- a.runner.RunNow(t.Context(), "replay", "x") }()
		time.Sleep(time.Second)
		second := make(chan error)
		go func() { second <- a.runner.RunNow(t.Context(), "replay", nil) }()
		ok(t, <-first)
		require.ErrorContains(t, <-second, "went wrong")
		if !slices.Equal(args, []any{"x", nil}) {
			t.Errorf("arguments: %q", args)
		}
		good := 0
		all := results(t, m, "replay")
		for _, r := range all {
			if r.OK {
				good++
			}
		}
		if len(all) != 2 || good != 1 {
			t.Errorf("%+v", all)
		}
		if s := a.status("replay"); s.LastSuccess == nil || string(s.LastSuccess.Detail) != `{"a":1}` || s.LastFailure == nil || s.LastFailure.Bytes != 3 || !s.LastFailure.Damaged {
			t.Errorf("%+v", s)
		}
		require.ErrorContains(t, a.runner.RunNow(t.Context(), "drill", nil), "no identity")
		a.stop()
	})
}

// A failed attempt is tried again a while later, when other agents had their turn.
func TestFailuresAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		var times []time.Duration
		at(t, "2000-01-01T01:00:00Z")
		began := time.Now()
		a := startAgent(t, m, "a", 0, Options{}, Entry{Spec: daily, Do: func(context.Context, *Task) (Result, error) {
			times = append(times, time.Since(began))
			return Result{}, errors.New("went wrong")
		}})
		time.Sleep(12 * time.Hour)
		synctest.Wait()
		if !slices.Equal(times, []time.Duration{0, preferredWait, preferredWait + 2*afterFailure}) {
			t.Errorf("tried after %v", times)
		}
		if s := a.runner.Status()[0]; s.Waiting != "" || s.LastFailure == nil || s.LastFailure.Attempt != 3 || s.LastFailure.Text != "went wrong" {
			t.Errorf("%+v", s)
		}
		a.stop()
	})
}

// Where an agent cannot do a job, another one makes the next attempt.
func TestFailuresAreTriedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		var runs atomic.Int64
		at(t, "2000-01-01T00:50:00Z")
		a := startAgent(t, m, "a", 0, Options{}, Entry{Spec: daily, Do: func(context.Context, *Task) (Result, error) {
			return Result{}, errors.New("went wrong")
		}})
		time.Sleep(time.Minute)
		b := startAgent(t, m, "b", 0, Options{}, quick(daily, &runs))
		at(t, "2000-01-01T02:00:00Z")
		if r := results(t, m, "full")["19991231T010000Z"]; !r.OK || r.Holder != "b" || r.Attempt != 2 {
			t.Errorf("%+v", r)
		}
		a.stop()
		b.stop()
	})
}

// What the package says of requests.
func TestRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		var runs atomic.Int64
		e := lasting(daily, 10*time.Second, &runs)
		var agents []*agent
		for _, name := range []string{"a", "b", "c"} {
			agents = append(agents, startAgent(t, m, name, 0, Options{}, e))
		}
		at(t, "2000-01-01T02:00:00Z")
		count := func() (ops, lists int64) {
			for _, a := range agents {
				ops, lists = ops+a.host.ops.Load(), lists+a.host.lists.Load()
			}
			return ops, lists
		}
		ops, lists := count()
		at(t, "2000-01-02T00:00:00Z")
		idleOps, idleLists := count()
		if ops > idleOps || lists > idleLists || idleOps-ops > 0 || idleLists-lists > 0 {
			t.Errorf("%d lists and %d requests in all in 22 hours of nothing", idleLists-lists, idleOps-ops)
		}
		// At the slot each agent lists its records. One begins the run, two find that, list again
		// a minute later, and read the result. (gate counts a put twice, at its creation and its
		// commit.)
		at(t, "2000-01-02T01:05:30Z")
		slotOps, slotLists := count()
		if got := slotLists - idleLists; got > 3+2 {
			t.Errorf("%d lists at a slot", got)
		}
		if got := slotOps - idleOps - (slotLists - idleLists); got > 2*(2+2)+2*2 {
			t.Errorf("%d other requests at a slot", got)
		}
		for _, a := range agents {
			a.stop()
		}
	})
}
