// Package job says when a job is to be run, by whom, and how it ended. Of several
// agents that know nothing of each other the one that holds the repository's lease
// runs the jobs. It promises:
//
//  1. A slot has one result, whoever wrote it; a result is never replaced, and
//     one that comes late is [ErrLost].
//  2. When the holder dies or stalls, another agent takes the lease, which needs the
//     repository for that and nothing else: no quorum, no clock that agrees with
//     another host's. Work under a lease ends half a minute before that.
//  3. Of the slots that are past, the newest one that has no result is done, and
//     only that: after a day of outage an hourly job runs once, not 24 times. Slots
//     from before the repository was made are nobody's.
//  4. In one agent a job never runs twice at once. A slot that comes due while
//     the one before it still runs is skipped, and that is its result.
//  5. A repository that is away costs no slot: it is tried again until the next slot
//     is due, which is then done instead.
//  6. An attempt is recorded before it begins, and there are three at most: a job
//     that kills its process does not go round.
//  7. A run that the agent itself asks for ([Runner.Demand]) is done by that agent, lease
//     or not, and has one attempt.
//  8. That two agents have one name is found out: [Runner.DuplicateName].
//
// What a job owes: it ends soon after its context does, and what it writes under
// a name that follows from job and slot it writes once, so that one which wakes up
// late can't do harm. Nobody can be fenced off in S3.
//
// # Requests
//
// Each minute the holder writes a heartbeat and each other agent makes a LIST and a
// GET. [Runner.History] is a LIST (more where nobody may delete old results: one for
// each 1,000 new ones). A slot takes 2 LIST and 2 PUT.
package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/requorum/requorum/sinks/repository"
)

const (
	// Grace is how long a run that was stopped may take to write that down.
	Grace = 5 * time.Second
	// MaxAttempts is after how many a failure is the slot's result.
	MaxAttempts = 3
	// demandsWaiting is how many demands of one job may wait to be begun.
	demandsWaiting = 8
	// clockEvery is how often the wall clock is looked at: timers stand still while a
	// host is suspended, and know nothing of a clock that was set.
	clockEvery = 30 * time.Second
	// firstRetry and lastRetry are between tries while the repository is away.
	firstRetry, lastRetry = 5 * time.Second, time.Minute
	// demandTries is how often the runner tries to begin a demand, for about ten
	// minutes: slots of the schedule wait behind it.
	demandTries = 14
	// afterFailure is the time to the next attempt, times the one that failed.
	afterFailure = time.Minute
)

// Entry is a job as it is to be run here.
type Entry struct {
	Spec
	// Off says why the job does not run here, in words; empty where it does. Its
	// history is shown all the same.
	Off string
	// Here runs the job whoever holds the lease.
	Here bool
	// Timeout ends a run that takes longer; 0: nothing does.
	Timeout time.Duration
	// Do does the job once. It ends soon after ctx; its error is why it failed.
	// With an error, what the Result says of a backup, bytes and a verdict counts
	// all the same.
	Do func(ctx context.Context, t *Task) (Result, error)
}

// Options say how an agent takes part.
type Options struct {
	// Agent is the agent's name: the same after a restart, and no other agent's.
	Agent string
	// Alone promises that no other agent uses the repository: the jobs need no lease.
	// Without it, of two writers racing for one name the repository must let exactly
	// one win (sinks.Abilities).
	Alone bool
	// Prefer says that this agent should have the lease rather than another one:
	// where it is false, it leaves a free one to others for a while. nil: always.
	Prefer func() bool
	// About describes the agent in the heartbeats of its lease; may be nil.
	About  func() *repository.Agent
	Logger *slog.Logger // nil: nothing is logged
}

// Runner runs the jobs of one agent: one goroutine for each.
type Runner struct {
	Options
	*history
	repo    *repository.Repository
	lease   *lease // nil: none is needed
	process string
	now     func() time.Time // the wall clock
	loops   []*loop
}

// NewRunner makes a Runner for entries. It asks nothing yet.
func NewRunner(repo *repository.Repository, o Options, entries []Entry) (*Runner, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Runner{Options: o, repo: repo, process: newProcess(), now: time.Now}
	r.history = &history{repo: repo, now: func() time.Time { return r.now() }, known: map[string]*jobHistory{}}
	var errs []error
	if o.Agent == "" {
		errs = append(errs, errors.New("an agent needs a name of its own to share jobs: set the key name"))
	}
	leased := false
	for _, e := range entries {
		times, err := e.Timetable(repo.ID())
		switch {
		case err != nil:
			errs = append(errs, err)
		case r.loop(e.Name) != nil:
			errs = append(errs, fmt.Errorf("job %s is there twice", e.Name))
		case e.Do == nil && e.Off == "":
			errs = append(errs, fmt.Errorf("job %s has nothing to do, and nothing says why", e.Name))
		}
		leased = leased || e.Off == "" && !e.Here
		r.loops = append(r.loops, &loop{Runner: r, Entry: e, times: times, log: o.Logger.With("job", e.Name), poke: make(chan struct{}, 1)})
	}
	if !o.Alone && leased {
		r.lease = newLease(repo, o.Agent, o.Prefer, o.Logger, func() {
			for _, l := range r.loops {
				l.wake()
			}
		})
		r.lease.about = o.About
		r.process = r.lease.process
	}
	return r, errors.Join(errs...)
}

func (r *Runner) loop(job string) *loop {
	if i := slices.IndexFunc(r.loops, func(l *loop) bool { return l.Name == job }); i >= 0 {
		return r.loops[i]
	}
	return nil
}

// Run runs the jobs until ctx ends. What is under way then is stopped, recorded
// as such within Grace, so that another agent goes on at once, and has ended when
// Run returns. What others did it reads at its beginning alone: later, History does. It
// may be called once.
func (r *Runner) Run(ctx context.Context) error {
	var running, leasing sync.WaitGroup
	if r.lease != nil {
		leasing.Go(func() { r.lease.run(ctx) })
	}
	for _, l := range r.loops {
		running.Go(func() { l.run(ctx) })
	}
	if err := r.History(ctx); err != nil && ctx.Err() == nil {
		r.Logger.Warn("results of jobs cannot be read", "error", err)
	}
	running.Wait()
	leasing.Wait()
	if r.lease != nil {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), Grace)
		defer cancel()
		r.lease.release(last)
	}
	return nil
}

// Runs reports whether this agent runs the slots of a job now.
func (r *Runner) Runs(job string) bool {
	l := r.loop(job)
	return l != nil && l.Off == "" && (l.Here || r.lease == nil || r.lease.holds() != 0)
}

// DuplicateName says that another agent runs under this one's name, as far as it held
// the lease within a day.
func (r *Runner) DuplicateName() bool {
	if r.lease == nil {
		return false
	}
	r.lease.mu.Lock()
	defer r.lease.mu.Unlock()
	return !r.lease.duplicateName.IsZero() && time.Since(r.lease.duplicateName) < 24*time.Hour
}

// Holder is the newest heartbeat of the lease of the jobs; zero if none is known.
func (r *Runner) Holder() repository.Lease {
	if r.lease == nil {
		return repository.Lease{}
	}
	r.lease.mu.Lock()
	defer r.lease.mu.Unlock()
	return r.lease.current
}

// StrayLease is the name of an object that is no heartbeat of the lease and was passed
// over within a day; empty for none.
func (r *Runner) StrayLease() string {
	if r.lease == nil {
		return ""
	}
	r.lease.mu.Lock()
	defer r.lease.mu.Unlock()
	if time.Since(r.lease.straySeen) >= 24*time.Hour {
		return ""
	}
	return r.lease.stray
}

// Demand is a run that the agent itself asked for. It lives in this process only, and
// has one attempt.
type Demand struct {
	slot string
	arg  any
	done chan struct{}
	err  error
}

// Done is closed when the run has ended, or the runner has given it up.
func (d *Demand) Done() <-chan struct{} { return d.done }

// Err returns why the run failed; nil after a success. Call it after Done.
func (d *Demand) Err() error { return d.err }

// Demand asks for a run of a job of this Runner as soon as no other run of it is under
// way here. Of agents that demand one slot, one does it; an empty slot is a new one. The
// run gets arg as it is.
func (r *Runner) Demand(job, slot string, arg any) (*Demand, error) {
	if slot == "" {
		slot = repository.NewDemandSlot(r.now())
	}
	l := r.loop(job)
	d := &Demand{slot: slot, arg: arg, done: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.Off != "":
		return nil, fmt.Errorf("job %s does not run here: %s", job, l.Off)
	case len(l.demands) >= demandsWaiting:
		return nil, fmt.Errorf("job %s: %d runs are waiting already: wait for them", job, len(l.demands))
	}
	l.demands = append(l.demands, d)
	l.wake()
	return d, nil
}

// Status is the jobs as they stand, in the order of the entries. It asks nobody.
func (r *Runner) Status() []Status {
	known := r.Known()
	all := make([]Status, 0, len(r.loops))
	for _, l := range r.loops {
		job, h := l.status(), known[l.Name]
		job.Last, job.LastSuccess, job.LastFailure = h.Last, h.LastSuccess, h.LastFailure
		all = append(all, job)
	}
	return all
}

// loop is one job of a Runner.
type loop struct {
	*Runner
	Entry
	times *Timetable
	log   *slog.Logger
	poke  chan struct{} // something changed: of 1, so that it never blocks

	mu      sync.Mutex
	demands []*Demand
	task    *Task
	waiting string

	// Of the goroutine alone.
	settled time.Time // the newest slot that needs nothing more
	tried   slotState
	begun   attempt // what this process began last
	seen    attempt // another's, and since when
	since   time.Time
	now     span
}

// attempt is one at a slot.
type attempt struct {
	slot   string
	number int
}

// slotState is what came of trying a slot.
type slotState struct {
	slot     string
	from     time.Time // not to be tried before, by the monotonic clock
	failures int       // of the repository, in a row
}

// span is between two slots: it spares working them out at each glance.
type span struct{ due, next time.Time }

// around is the newest slot at or before a time, and the one after it.
func (s *span) around(at time.Time, times *Timetable) (due, next time.Time) {
	if s.next.IsZero() || at.Before(s.due) || !at.Before(s.next) {
		*s = span{times.Previous(at), times.Next(at)}
	}
	return s.due, s.next
}

func (l *loop) wake() {
	select {
	case l.poke <- struct{}{}:
	default:
	}
}

func (l *loop) status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	job := Status{Name: l.Name, Schedule: l.Schedule, Off: l.Off, Waiting: l.waiting}
	if job.Off == "" {
		job.Next = l.times.Next(l.Runner.now())
	}
	if l.task != nil {
		job.Running = l.task.Run()
	}
	return job
}

// run does what is due until ctx ends.
func (l *loop) run(ctx context.Context) {
	for ctx.Err() == nil {
		timer := time.NewTimer(l.step(ctx))
		select {
		case <-ctx.Done():
		case <-l.poke:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// step does what is due, and says how long nothing will be.
func (l *loop) step(ctx context.Context) time.Duration {
	if l.Off != "" {
		return clockEvery
	}
	l.mu.Lock()
	demands := l.demands
	l.mu.Unlock()
	if len(demands) > 0 {
		return l.try(ctx, demands[0].slot, demands[0])
	}
	now := l.Runner.now()
	due, next := l.now.around(now, l.times)
	// What was due before there was a repository, nobody has missed.
	nothing := due.IsZero() || due.Equal(l.settled) || due.Before(l.repo.Created())
	if runs := l.Runs(l.Name); nothing || !runs {
		why := ""
		if !nothing && !runs {
			why = l.lease.why()
		}
		l.wait(why)
		if next.IsZero() {
			return clockEvery
		}
		return min(clockEvery, next.Sub(now))
	}
	return l.try(ctx, repository.SlotName(due), nil)
}

// try goes for a slot once: of the schedule, or of a demand.
func (l *loop) try(ctx context.Context, slot string, d *Demand) time.Duration {
	if l.tried.slot != slot {
		if l.tried.failures > 0 {
			l.log.Warn("a slot was passed over while the repository was away", "slot", l.tried.slot, "next", slot)
		}
		l.tried = slotState{slot: slot}
	}
	if wait := time.Until(l.tried.from); wait > 0 {
		return min(wait, clockEvery)
	}
	task, why, err := l.begin(ctx, slot, d)
	switch {
	case task != nil:
		l.work(ctx, task)
		return 0
	case err == nil && why == done:
		l.settle(slot, d, nil)
		return 0
	case err == nil:
		l.tried.failures = 0
		l.wait(why)
		return clockEvery
	}
	if l.tried.failures++; l.tried.failures == 1 && ctx.Err() == nil {
		l.log.Warn("a slot cannot be begun; it is tried again", "slot", slot, "error", err)
	}
	if d != nil && l.tried.failures >= demandTries {
		l.log.Error("a demand is given up: it cannot be begun", "slot", slot, "error", err)
		l.settle(slot, d, fmt.Errorf("given up: it cannot be begun: %w", err))
		return 0
	}
	l.wait("the slot cannot be begun: " + err.Error())
	pause := min(firstRetry<<min(l.tried.failures-1, 10), lastRetry)
	l.tried.from = time.Now().Add(pause)
	return min(pause, clockEvery)
}

func (l *loop) wait(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = why
}

// settle says that a slot needs nothing more here; err is why a demand's run failed.
func (l *loop) settle(slot string, d *Demand, err error) {
	l.tried = slotState{}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = ""
	if d == nil {
		l.settled, _, _ = repository.ParseSlot(slot) // the schedule gave it
		return
	}
	l.demands = slices.DeleteFunc(l.demands, func(o *Demand) bool { return o == d })
	d.err = err
	close(d.done)
}
