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
//  7. A run that was asked for is done by the agent that was asked, lease or not, and
//     has one attempt. When its process is killed, the agent's next one says so.
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
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
)

const (
	// Grace is how long a run that was stopped may take to write that down.
	Grace = 5 * time.Second
	// MaxAttempts is after how many a failure is the slot's result.
	MaxAttempts = 3
	// triggeredWaiting is how many runs of one job may wait to be begun.
	triggeredWaiting = 8
	// clockEvery is how often the wall clock is looked at: timers stand still while a
	// host is suspended, and know nothing of a clock that was set.
	clockEvery = 30 * time.Second
	// firstRetry and lastRetry are between tries while the repository is away.
	firstRetry, lastRetry = 5 * time.Second, time.Minute
	// triggeredTries is how often a run that was asked for is tried to be begun, for
	// about ten minutes: slots of the schedule wait behind it.
	triggeredTries = 14
	// afterFailure is the time to the next attempt, times the one that failed.
	afterFailure = time.Minute
	// triggeredBack is how old a run may be that was asked of the process before.
	triggeredBack = 48 * time.Hour
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
	// Exclusive says that of two writers racing for one name exactly one wins
	// (sinks.Abilities). Without it only Writer does jobs.
	Exclusive bool
	// Writer is the one agent that does all jobs, without a lease; empty: the one
	// that holds the lease.
	Writer string
	// Prefer says that this agent should have the lease rather than another one:
	// where it is false, it leaves a free one to others for a while. nil: always.
	Prefer func() bool
	Logger *slog.Logger // nil: nothing is logged
}

// Runner runs the jobs of one agent: one goroutine for each.
type Runner struct {
	Options
	*history
	repo    *repository.Repository
	lease   *lease // nil: there is a Writer
	process string
	now     func() time.Time // the wall clock
	loops   []*loop
}

// NewRunner makes a Runner for entries. It asks nothing yet. Without exclusive
// creates, and without a writer's name, it refuses: two agents would do the same
// work.
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
	if !o.Exclusive && o.Writer == "" {
		errs = append(errs, fmt.Errorf("%s has no conditional puts, so agents cannot agree on who does a job: name the one that does with the key repository.writer", repo))
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
	if o.Writer == "" && leased {
		r.lease = newLease(repo, o.Agent, o.Prefer, o.Logger, func() {
			for _, l := range r.loops {
				l.wake()
			}
		})
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

func (r *Runner) names() (all []string) {
	for _, l := range r.loops {
		all = append(all, l.Name)
	}
	return all
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
	running.Go(func() { r.concludeTriggered(ctx) })
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

// concludeTriggered writes the results of runs that were asked of the process of this
// agent before this one, and did not end: whoever asked wants to know.
func (r *Runner) concludeTriggered(ctx context.Context) {
	for _, l := range r.loops {
		for err := l.concludeTriggered(ctx); err != nil && ctx.Err() == nil; err = l.concludeTriggered(ctx) {
			l.log.Warn("it cannot be found out which runs that were asked for have no result; it is tried again", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(clockEvery):
			}
		}
	}
}

// Waiting says why this agent does no jobs; empty where it may.
func (r *Runner) Waiting() string {
	switch {
	case r.Writer == "" || r.Writer == r.Agent:
		return ""
	case r.Exclusive:
		return fmt.Sprintf("the configuration names %s as the one agent that does jobs (repository.writer)", r.Writer)
	}
	return fmt.Sprintf("%s has no conditional puts: only %s does jobs (repository.writer)", r.repo, r.Writer)
}

// Runs reports whether this agent runs the slots of a job now.
func (r *Runner) Runs(job string) bool {
	l := r.loop(job)
	return l != nil && l.Off == "" && r.Waiting() == "" && (l.Here || r.lease == nil || r.lease.holds() != 0)
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

// Trigger asks for a run as soon as no other of that job is under way here, and
// returns its slot, which is a new one where none is given. Arg is given to it as it
// is; nil for none. A demand lives in this process only, and has one attempt.
func (r *Runner) Trigger(ctx context.Context, job, slot string, arg json.RawMessage) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if arg != nil && !json.Valid(arg) {
		return "", fmt.Errorf("job %s: the argument is not JSON", job)
	}
	if why := r.Waiting(); why != "" {
		return "", fmt.Errorf("job %s cannot be run here: %s", job, why)
	}
	l := r.loop(job)
	if l == nil {
		return "", fmt.Errorf("there is no job %q: there are %s", job, strings.Join(r.names(), ", "))
	}
	if slot == "" {
		slot = repository.NewDemandSlot(r.now())
	}
	if err := l.trigger(slot, arg); err != nil {
		return "", err
	}
	return slot, nil
}

// Find says how a run stands or ended: under way here, waiting here (without a
// start), from the repository, or, where it was asked of another agent and has no
// result, that; false where nothing is known of it.
func (r *Runner) Find(ctx context.Context, job, slot string) (Run, bool, error) {
	if err := repository.ValidJob(job); err != nil {
		return Run{}, false, err
	}
	_, triggered, err := repository.ParseSlot(slot)
	if err != nil {
		return Run{}, false, err
	}
	if l := r.loop(job); l != nil {
		if run, ok := l.find(slot); ok {
			return run, true, nil
		}
	}
	for _, run := range []*Run{r.Known()[job].LastSuccess, r.Known()[job].LastFailure} {
		if run != nil && run.Slot == slot {
			return *run, true, nil
		}
	}
	run, there, err := r.history.Find(ctx, job, slot)
	if there || err != nil || !triggered {
		return run, there, err
	}
	claim, err := r.repo.ReadClaim(ctx, job, slot, 1)
	if errors.Is(err, sinks.ErrNotFound) {
		return Run{}, false, nil
	}
	return Run{Slot: slot, Agent: claim.Holder, Attempt: 1, Started: claim.Created, Phase: "under way, or ended without a result"}, err == nil, err
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

	mu        sync.Mutex
	triggered []triggered
	task      *Task
	waiting   string

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

// triggered is a run that was asked for.
type triggered struct {
	slot string
	arg  json.RawMessage
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

func (l *loop) trigger(slot string, arg json.RawMessage) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.Off != "":
		return fmt.Errorf("job %s does not run here: %s", l.Name, l.Off)
	case len(l.triggered) >= triggeredWaiting:
		return fmt.Errorf("job %s: %d runs are waiting already: wait for them", l.Name, len(l.triggered))
	}
	l.triggered = append(l.triggered, triggered{slot, slices.Clone(arg)})
	l.wake()
	return nil
}

// find is a run that is under way or waits.
func (l *loop) find(slot string) (Run, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.task != nil && l.task.Slot == slot {
		return *l.task.Run(), true
	}
	if slices.ContainsFunc(l.triggered, func(d triggered) bool { return d.slot == slot }) {
		return Run{Slot: slot, Agent: l.Agent, Phase: "waiting"}, true
	}
	return Run{}, false
}

func (l *loop) status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	job := Status{Name: l.Name, Schedule: l.Schedule, Off: l.Off, Waiting: l.waiting}
	if job.Off == "" {
		job.Off = l.Waiting()
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
	if l.Off != "" || l.Waiting() != "" {
		return clockEvery
	}
	l.mu.Lock()
	waiting := l.triggered
	l.mu.Unlock()
	if len(waiting) > 0 {
		return l.try(ctx, waiting[0].slot, waiting[0].arg)
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

// try goes for a slot once.
func (l *loop) try(ctx context.Context, slot string, arg json.RawMessage) time.Duration {
	if l.tried.slot != slot {
		if l.tried.failures > 0 {
			l.log.Warn("a slot was passed over while the repository was away", "slot", l.tried.slot, "next", slot)
		}
		l.tried = slotState{slot: slot}
	}
	if wait := time.Until(l.tried.from); wait > 0 {
		return min(wait, clockEvery)
	}
	_, demanded, _ := repository.ParseSlot(slot)
	task, why, err := l.begin(ctx, slot, demanded)
	switch {
	case task != nil:
		task.Arg = arg
		l.work(ctx, task)
		return 0
	case err == nil && why == done:
		l.settle(slot)
		return 0
	case err == nil:
		l.tried.failures = 0
		l.wait(why)
		return clockEvery
	}
	if l.tried.failures++; l.tried.failures == 1 && ctx.Err() == nil {
		l.log.Warn("a slot cannot be begun; it is tried again", "slot", slot, "error", err)
	}
	if demanded && l.tried.failures >= triggeredTries {
		l.log.Error("a run that was asked for is given up: it cannot be begun", "slot", slot, "error", err)
		l.settle(slot)
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

// settle says that a slot needs nothing more here.
func (l *loop) settle(slot string) {
	at, demanded, err := repository.ParseSlot(slot)
	l.tried = slotState{}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = ""
	if err == nil && !demanded {
		l.settled = at
	}
	l.triggered = slices.DeleteFunc(l.triggered, func(d triggered) bool { return d.slot == slot })
}
