package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
)

const (
	// Grace is how long a run that was stopped may take to record that.
	Grace = 5 * time.Second
	// MaxAttempts is after how many a failure is the slot's result.
	MaxAttempts = 3
	// clockEvery is how often the conditions are evaluated, by the wall clock: timers stand
	// still while a host is suspended, and do not follow a clock that was set.
	clockEvery = 30 * time.Second
	// firstRetry and lastRetry are between tries while the repository is unreachable.
	firstRetry, lastRetry = 5 * time.Second, time.Minute
	// afterFailure is the time to the next attempt, times the one that failed.
	afterFailure = time.Minute
	// Heartbeat is how often a run shows that it is under way, and other agents check that.
	Heartbeat = time.Minute
	// lostAfter is how long the others wait after they saw the newest sign of a run for the
	// first time before they make the next attempt: three missed ones.
	lostAfter = 3 * Heartbeat
	// margin is how long before that the run ends.
	margin = 30 * time.Second
	// preferredWait is how long an agent leaves a slot to those that should do it: they may
	// evaluate the conditions that much later.
	preferredWait = 3 * clockEvery
	// beatRetry is how soon a sign that could not be written is tried again.
	beatRetry = 10 * time.Second
	// noticed is for how long a duplicate name is reported.
	noticed = 24 * time.Hour
)

// ErrLost says that a run could not show for too long that it is under way: another agent
// makes the next attempt, and the run does not count.
var ErrLost = errors.New("another agent has taken over, or may have")

// Entry is a job as it is to be run here.
type Entry struct {
	Spec
	// Off is why the job does not run here, in words; empty if it does. Its
	// history is shown all the same.
	Off string
	// Here runs the job without leaving it to the agents that should do it.
	Here bool
	// Timeout ends a run that takes longer; 0: none does.
	Timeout time.Duration
	// Due returns an occasion to run the job besides its schedule; nil for none. It makes no
	// request. Nil: the job has a schedule only.
	Due func(now time.Time) *Occasion
	// Do does the job once. It ends soon after ctx; its error is why it failed.
	// With an error, the Result's other fields count all the same.
	Do func(ctx context.Context, t *Task) (Result, error)
}

// Occasion is a reason to run a job, found in the repository. It has one attempt.
type Occasion struct {
	// Slot names the occasion, the same on all agents: repository.DemandSlot.
	Slot string
	// Seen is when the repository was listed that shows it. What was listed before a run
	// of the job ended is not a reason for another one.
	Seen time.Time
	Arg  any  // for Task.Arg
	Here bool // as Entry.Here
}

// Options say how an agent takes part.
type Options struct {
	// Agent is the agent's name: the same after a restart, and no other agent's.
	Agent string
	// Prefer reports whether this agent should do the jobs rather than another one: if
	// not, it leaves each slot to others for a while. nil: always.
	Prefer func() bool
	// About describes the agent in its records; may be nil.
	About  func() *repository.Agent
	Logger *slog.Logger // nil: nothing is logged
}

// Runner runs the jobs of one agent: one goroutine for each.
type Runner struct {
	Options
	*history
	now   func() time.Time // the wall clock
	loops []*loop
	// open is closed when Run has set the history's repository and the timetables.
	open chan struct{}
}

// NewRunner makes a Runner for entries. It makes no request.
func NewRunner(o Options, entries []Entry) (*Runner, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Runner{Options: o, now: time.Now, open: make(chan struct{})}
	r.history = &history{agent: o.Agent, process: newProcess(), now: func() time.Time { return r.now() }, known: map[string]*jobHistory{}}
	var errs []error
	if o.Agent == "" {
		errs = append(errs, errors.New("an agent needs a name of its own to share jobs: set the key name"))
	}
	for _, e := range entries {
		_, err := e.Timetable("")
		switch {
		case err != nil:
			errs = append(errs, err)
		case r.loop(e.Name) != nil:
			errs = append(errs, fmt.Errorf("job %s is there twice", e.Name))
		case e.Do == nil && e.Off == "":
			errs = append(errs, fmt.Errorf("job %s has nothing to do, and nothing says why", e.Name))
		}
		r.loops = append(r.loops, &loop{Runner: r, Entry: e, log: o.Logger.With("job", e.Name), poke: make(chan struct{}, 1), busy: make(chan struct{}, 1)})
	}
	return r, errors.Join(errs...)
}

func (r *Runner) loop(job string) *loop {
	if i := slices.IndexFunc(r.loops, func(l *loop) bool { return l.Name == job }); i >= 0 {
		return r.loops[i]
	}
	return nil
}

// Run runs the jobs of a repository until ctx ends. It stops what is under way then, records
// that within Grace, so that another agent continues at once, and returns when it has ended.
// It reads what others did at its beginning only: later, History does. It may be called once.
func (r *Runner) Run(ctx context.Context, repo *repository.Repository) {
	r.repo, r.started = repo, r.now()
	for _, l := range r.loops {
		l.times, _ = l.Timetable(repo.ID()) // NewRunner made it as well
	}
	close(r.open)
	var running sync.WaitGroup
	for _, l := range r.loops {
		running.Go(func() { l.run(ctx) })
	}
	if err := r.read(ctx); err != nil && ctx.Err() == nil {
		r.Logger.Warn("results of jobs cannot be read", "error", err)
	}
	running.Wait()
}

// isOpen reports whether Run was called: the repository was reached.
func (r *Runner) isOpen() bool {
	select {
	case <-r.open:
		return true
	default:
		return false
	}
}

// History reads how runs of other agents ended since it was last called: one request, as a
// rule. With an error, what was known before stays.
func (r *Runner) History(ctx context.Context) error {
	if !r.isOpen() {
		return nil
	}
	return r.read(ctx)
}

// Wake evaluates the conditions now, because something changed.
func (r *Runner) Wake() {
	for _, l := range r.loops {
		select {
		case l.poke <- struct{}{}:
		default:
		}
	}
}

// errNotOpen is why nothing runs before Run was called.
var errNotOpen = errors.New("the repository was not reached yet")

// RunNow runs a job here once, as soon as no other run of it is under way here. It
// returns why that failed.
func (r *Runner) RunNow(ctx context.Context, job string, arg any) error {
	l := r.loop(job)
	switch {
	case l.Off != "":
		return fmt.Errorf("job %s does not run here: %s", job, l.Off)
	case !r.isOpen():
		return errNotOpen
	}
	select {
	case l.busy <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer l.Wake() // for a slot that came due during this run
	defer l.free()
	_, err := l.attempt(ctx, (&pursuit{}).of(repository.NewDemandSlot(r.now()), l.log), Occasion{Arg: arg, Here: true}, 1)
	return err
}

// Status is the jobs as they are, in the order of the entries. It makes no request.
func (r *Runner) Status() []Status {
	all := make([]Status, 0, len(r.loops))
	for _, l := range r.loops {
		all = append(all, l.show())
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
	busy  chan struct{} // of 1: a run is being begun, or under way

	mu      sync.Mutex
	task    *Task
	waiting string

	// Under busy.
	ended            time.Time // when the last run ended
	scheduled, other pursuit
	slots            span
}

// pursuit is what came of the attempts at a slot here.
type pursuit struct {
	slot     string
	done     bool
	from     time.Time       // not to be tried before, by the monotonic clock
	failures int             // of the repository, in a row
	begun    time.Time       // when this agent first saw that it is due
	watched  map[string]sign // runs without a result, by slot
}

// sign is the newest sign of a run, and since when it is seen.
type sign struct {
	attempt, beats int
	holder         string
	since          time.Time
}

// of is the pursuit of a slot: another slot begins anew.
func (p *pursuit) of(slot string, log *slog.Logger) *pursuit {
	if p.slot != slot {
		if p.failures > 0 && !p.done {
			log.Warn("a slot was skipped because the repository was unreachable", "slot", p.slot, "next", slot)
		}
		*p = pursuit{slot: slot, begun: time.Now(), watched: map[string]sign{}}
	}
	return p
}

// span is between two slots: it spares working them out each time.
type span struct{ due, next time.Time }

// around is the newest slot at or before a time, and the one after it.
func (s *span) around(at time.Time, times *Timetable) (due, next time.Time) {
	if s.next.IsZero() || at.Before(s.due) || !at.Before(s.next) {
		*s = span{times.Previous(at), times.Next(at)}
	}
	return s.due, s.next
}

func (l *loop) free() { <-l.busy }

func (l *loop) show() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	job := Status{Name: l.Name, Schedule: l.Schedule, Off: l.Off, Waiting: l.waiting}
	job.LastSuccess, job.LastFailure = l.newest(l.Name)
	job.Last = job.LastSuccess
	if job.Last == nil || job.LastFailure != nil && job.LastFailure.Slot > job.Last.Slot {
		job.Last = job.LastFailure
	}
	switch {
	case job.Off != "":
	case !l.isOpen():
		job.Waiting = errNotOpen.Error()
	default:
		job.Next = l.times.Next(l.now())
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

// step does what is due, and returns how long nothing will be.
func (l *loop) step(ctx context.Context) time.Duration {
	if l.Off != "" {
		return clockEvery
	}
	select {
	case l.busy <- struct{}{}:
		defer l.free()
	default:
		return clockEvery // RunNow wakes this loop at its end
	}
	now := l.now()
	if l.Due != nil {
		if o := l.Due(now); o != nil && o.Seen.After(l.ended) {
			if p := l.other.of(o.Slot, l.log); !p.done {
				return l.try(ctx, p, *o, 1)
			}
		}
	}
	due, next := l.slots.around(now, l.times)
	wait := clockEvery
	if !next.IsZero() {
		wait = min(wait, next.Sub(now))
	}
	// What was due before there was a repository was not missed.
	if due.IsZero() || due.Before(l.repo.Created()) || l.isDoneSince(l.Name, due) {
		l.wait("")
		return wait
	}
	p := l.scheduled.of(repository.SlotName(due), l.log)
	if p.done {
		l.wait("")
		return wait
	}
	return l.try(ctx, p, Occasion{}, MaxAttempts)
}

// try makes one attempt at a slot, and returns how soon to evaluate the conditions again.
func (l *loop) try(ctx context.Context, p *pursuit, o Occasion, limit int) time.Duration {
	from := p.from
	if !o.Here && !l.Here && l.Prefer != nil && !l.Prefer() {
		from = later(from, p.begun.Add(preferredWait))
	}
	if wait := time.Until(from); wait > 0 {
		return min(wait, clockEvery)
	}
	begun := l.ended
	why, err := l.attempt(ctx, p, o, limit)
	switch {
	case p.done || l.ended != begun: // it ran
		return 0
	case err == nil:
		p.failures = 0
		l.wait(why)
		p.from = time.Now().Add(Heartbeat)
		return clockEvery
	}
	if p.failures++; p.failures == 1 && ctx.Err() == nil {
		l.log.Warn("a slot cannot be begun; it is tried again", "slot", p.slot, "error", err)
	}
	l.wait("the slot cannot be begun: " + err.Error())
	pause := min(firstRetry<<min(p.failures-1, 10), lastRetry)
	p.from = time.Now().Add(pause)
	return min(pause, clockEvery)
}

func (l *loop) wait(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = why
}

// isUnderWay reports whether another agent's run may be under way: its holder has shown
// that, by a sign that this agent saw for the first time within lostAfter. No clocks of two
// hosts are compared.
func (l *loop) isUnderWay(ctx context.Context, p *pursuit, state repository.SlotState) (bool, error) {
	if state.Newest == 0 || state.Ended {
		return false, nil
	}
	seen := p.watched[state.Slot]
	if seen.attempt != state.Newest {
		newest, err := l.repo.ReadJob(ctx, repository.JobName{Job: l.Name, Slot: state.Slot, Kind: repository.JobBegun, Attempt: state.Newest})
		switch {
		case errors.Is(err, repository.ErrAltered):
			newest.Holder = "an agent whose record cannot be read"
		case err != nil:
			return false, err
		}
		l.noteProcess(newest)
		seen = sign{attempt: state.Newest, holder: newest.Holder, since: time.Now()}
	}
	if seen.beats != state.Beats {
		seen.beats, seen.since = state.Beats, time.Now()
	}
	p.watched[state.Slot] = seen
	// This agent's own is of its process before: here no run is under way.
	return seen.holder != l.Agent && time.Since(seen.since) < lostAfter, nil
}

// beat shows until ctx ends that a run is under way: from a time on at which it was last
// shown. It ends the run half a minute before another agent may take it for dead.
func (l *loop) beat(ctx context.Context, lost context.CancelCauseFunc, name repository.JobName, record repository.JobRecord, shown time.Time) {
	var mu sync.Mutex
	go every(ctx, time.Second, func() {
		mu.Lock()
		defer mu.Unlock()
		// The wall clock as well: while a host is suspended the monotonic one stands still.
		if max(time.Since(shown), time.Now().Round(0).Sub(shown.Round(0))) >= lostAfter-margin {
			lost(ErrLost)
		}
	})
	name.Kind, name.Beat = repository.JobBeat, 1
	for pause := Heartbeat; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		began := time.Now()
		pause = beatRetry
		if err := l.repo.WriteJob(ctx, name, record); err == nil || errors.Is(err, sinks.ErrExists) { // by a put whose answer was lost
			mu.Lock()
			shown = began
			mu.Unlock()
			name.Beat++
			pause = Heartbeat
		}
	}
}

func every(ctx context.Context, interval time.Duration, do func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do()
		}
	}
}
