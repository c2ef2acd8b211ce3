package job

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
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

// newRepo is a repository in memory that is a year old.
func newRepo(t *testing.T) (*sinktest.Memory, *repository.Repository) {
	t.Helper()
	m := sinktest.NewMemory()
	r, err := repository.Init(t.Context(), m, time.Now().AddDate(-1, 0, 0))
	require.NoError(t, err)
	return m, r
}

// agent is one process of the simulation.
type agent struct {
	name   string
	host   *host
	runner *Runner
	cancel context.CancelFunc
	ended  chan struct{}
	skew   atomic.Int64
}

func startAgent(t *testing.T, s sinks.Sink, name string, skew time.Duration, o Options, entries ...Entry) *agent {
	t.Helper()
	a := &agent{name: name, host: &host{Sink: s}, ended: make(chan struct{})}
	repo, err := repository.Open(context.Background(), a.host)
	require.NoError(t, err)
	o.Agent = name
	a.runner, err = NewRunner(o, entries)
	require.NoError(t, err)
	a.skew.Store(int64(skew))
	a.runner.now = func() time.Time { return time.Now().Add(time.Duration(a.skew.Load())) }
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	go func() {
		defer close(a.ended)
		a.runner.Run(ctx, repo)
	}()
	return a
}

// stop is an orderly end.
func (a *agent) stop() {
	a.cancel()
	<-a.ended
}

// kill ends it without a word.
func (a *agent) kill() {
	a.host.dead.Store(true)
	a.wake()
	a.stop()
}

// status is one job of it.
func (a *agent) status(job string) Status { return a.runner.loop(job).show() }

func (a *agent) stall() {
	c := make(chan struct{})
	a.host.stalled.Store(&c)
}

func (a *agent) wake() {
	if c := a.host.stalled.Swap(nil); c != nil {
		close(*c)
	}
}

// results are all results of a job, by slot.
func results(t *testing.T, s sinks.Sink, job string) map[string]repository.JobRecord {
	t.Helper()
	r, err := repository.Open(context.Background(), s)
	require.NoError(t, err)
	all := map[string]repository.JobRecord{}
	for obj, err := range s.List(context.Background(), "jobs/"+job+"/", "") {
		require.NoError(t, err)
		n, err := repository.ParseJobName(obj.Name)
		require.NoError(t, err)
		if n.Attempt > 0 || all[n.Slot].OK { // a success counts, whoever failed as well
			continue
		}
		if all[n.Slot], err = r.ReadJob(context.Background(), n); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// Promises 1 to 3 and 5: five agents whose clocks differ share the slots of three
// jobs for a month (with -short for eight days, in a soak for two months, six times), while they are killed, stopped,
// stalled, cut off and woken up at random. No slot has two results, none is lost,
// nobody's late result wins.
func TestAgentsAtRandom(t *testing.T) {
	seeds, long := uint64(1), 31*24*time.Hour
	if testing.Short() {
		long = 8 * 24 * time.Hour
	}
	if os.Getenv("REQUORUM_SOAK") == "1" {
		seeds, long = 6, 62*24*time.Hour
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { simulate(t, seed, long) })
		})
	}
}

func simulate(t *testing.T, seed uint64, long time.Duration) {
	chance := 25 // that a run fails, to one
	if testing.Short() {
		chance = 10
	}
	random := rand.New(rand.NewPCG(seed, 7))
	memory, repo := newRepo(t)
	watched := &writes{Memory: memory, taken: map[string]int{}}
	berlin := zone(t, "Europe/Berlin")
	begin := time.Now()
	specs := []Spec{
		{Name: "full", Schedule: "0 1 * * *", Zone: berlin, Jitter: time.Hour},
		{Name: "merge", Schedule: "0 */2 * * *"},
		{Name: "drill", Schedule: "0 */6 * * *", Zone: berlin, Jitter: 10 * time.Minute},
	}
	length := map[string]time.Duration{"full": 8 * time.Minute, "merge": 3 * time.Second, "drill": 40 * time.Minute}
	done := &effects{first: map[string]string{}, runs: map[string]int{}}
	var late, skips, failures, stalls, takeovers int
	var mu sync.Mutex

	entries := func(a *atomic.Pointer[agent]) (all []Entry) {
		for _, s := range specs {
			all = append(all, Entry{
				Spec: s, Timeout: 2 * time.Hour,
				Do: func(ctx context.Context, task *Task) (Result, error) {
					if task.Attempt > 1 {
						mu.Lock()
						takeovers++
						mu.Unlock()
					}
					for step := range int64(10) {
						task.Progress("working", step, 10)
						select {
						case <-time.After(length[s.Name] / 10):
						case <-ctx.Done():
							return Result{}, ctx.Err()
						}
						if err := a.Load().host.gate(context.Background()); err != nil && a.Load().host.dead.Load() {
							return Result{}, err
						}
					}
					mu.Lock()
					fails := random.IntN(chance) == 0
					mu.Unlock()
					if fails {
						mu.Lock()
						failures++
						mu.Unlock()
						return Result{}, errors.New("it went wrong")
					}
					key := s.Name + "/" + task.Slot
					done.mu.Lock()
					defer done.mu.Unlock()
					done.runs[key]++
					if _, taken := done.first[key]; taken {
						done.second++
						return Result{}, errors.New("the backup of this slot is there already")
					}
					done.first[key] = a.Load().name
					return Result{Text: "made by " + a.Load().name, Backup: task.BackupID()}, nil
				},
			})
		}
		return all
	}
	start := func(i int) *agent {
		var box atomic.Pointer[agent] // jobs have begun when startAgent returns, but not ended
		a := startAgent(t, watched, fmt.Sprintf("m%d", i), time.Duration(i-2)*40*time.Second, Options{}, entries(&box)...)
		box.Store(a)
		return a
	}
	agents := make([]*agent, 5)
	for i := range agents {
		agents[i] = start(i)
	}
	for time.Since(begin) < long {
		mu.Lock()
		pause, i, what := time.Duration(random.Int64N(int64(4*time.Hour))), random.IntN(len(agents)), random.IntN(6)
		nap := time.Duration(random.Int64N(int64(20 * time.Minute)))
		mu.Unlock()
		// Mostly when something is under way: a little behind a full hour.
		if pause > time.Hour {
			at := time.Now().Add(pause).Truncate(time.Hour).Add(nap / 10)
			pause = max(time.Until(at), time.Second)
		}
		time.Sleep(pause)
		a := agents[i]
		switch what {
		case 0, 1:
			a.kill()
			time.Sleep(nap / 10)
			agents[i] = start(i)
		case 2:
			a.stop()
			agents[i] = start(i)
		case 3, 4:
			stalls++
			a.stall()
			time.Sleep(nap)
			a.wake()
		case 5:
			a.host.away.Store(true)
			time.Sleep(nap)
			a.host.away.Store(false)
		}
	}
	time.Sleep(2 * time.Hour)
	for _, a := range agents {
		a.stop()
	}

	for name, n := range watched.taken {
		if n != 1 {
			t.Errorf("%s was stored %d times", name, n)
		}
	}
	for _, s := range specs {
		table, err := s.Timetable(repo.ID())
		require.NoError(t, err)
		all := results(t, memory, s.Name)
		want := slotsOf(table, begin.Add(time.Minute), begin.Add(long))
		for _, at := range want {
			slot := repository.SlotName(at)
			r, ok := all[slot]
			if !ok {
				// It came due during a run: by the clock of that agent.
				if skipped := slices.ContainsFunc(slices.Collect(maps.Values(all)), func(r repository.JobRecord) bool {
					return r.Slot < slot && r.Started.Before(at) && !r.Finished.Before(at)
				}); !skipped {
					t.Errorf("slot %s of %s is lost", slot, s.Name)
				}
				skips++
				continue
			}
			if !r.OK {
				late++
			}
			if first, made := done.first[s.Name+"/"+slot]; r.OK && (!made || r.Text != "made by "+first || r.Holder != first) {
				t.Errorf("slot %s of %s: result by %s, but made by %s", slot, s.Name, r.Holder, first)
			}
		}
		for slot := range all {
			if at, _, err := repository.ParseSlot(slot); err != nil || !table.Previous(at).Equal(at) {
				t.Errorf("%s has a result at %s, which is no slot of it", s.Name, slot)
			}
		}
	}
	if failures == 0 || stalls == 0 || takeovers == 0 {
		t.Errorf("%d failures, %d stalls, %d takeovers: the test has not tested", failures, stalls, takeovers)
	}
	t.Logf("%d slots done, %d skipped, %d ended as failures, %d second attempts, %d runs whose work was there already, %d runs failed by chance",
		len(done.first), skips, late, takeovers, done.second, failures)
}

// names lists what is stored under a prefix.
func names(t *testing.T, s sinks.Sink, prefix string) (all []string) {
	t.Helper()
	for obj, err := range s.List(context.Background(), prefix, "") {
		require.NoError(t, err)
		all = append(all, strings.TrimPrefix(obj.Name, prefix))
	}
	return all
}

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// at sleeps until a time of the bubble's clock, which begins at 2000-01-01T00:00:00Z.
func at(t *testing.T, clock string) {
	t.Helper()
	to, err := time.Parse(time.RFC3339, clock)
	if err != nil || time.Until(to) < 0 {
		t.Fatal(clock, err)
	}
	time.Sleep(time.Until(to))
	synctest.Wait()
}

// quick is a job that takes a moment, and counts.
func quick(s Spec, runs *atomic.Int64) Entry {
	return Entry{Spec: s, Do: func(context.Context, *Task) (Result, error) {
		runs.Add(1)
		return Result{Text: "done"}, nil
	}}
}

// lasting is a job that takes a while, or until its context ends.
func lasting(s Spec, long time.Duration, runs *atomic.Int64) Entry {
	return Entry{Spec: s, Do: func(ctx context.Context, task *Task) (Result, error) {
		runs.Add(1)
		task.Progress("working", 1, 2)
		select {
		case <-time.After(long):
			return Result{Text: "done"}, nil
		case <-ctx.Done():
			time.Sleep(time.Second) // it clears up
			return Result{}, ctx.Err()
		}
	}}
}
