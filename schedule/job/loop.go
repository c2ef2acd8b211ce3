package job

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/requorum/requorum/schedule/status"
	"github.com/requorum/requorum/sinks/repository"
)

const (
	// glance is how often the wall clock is looked at: timers stand still while a
	// host is suspended, and know nothing of a clock that was set.
	glance = 30 * time.Second
	// firstRetry and lastRetry are between tries while the repository is away.
	firstRetry, lastRetry = 5 * time.Second, time.Minute
	// demandTries is how often a run that was asked for is tried to be claimed, for
	// about ten minutes: slots of the schedule wait behind it.
	demandTries = 14
	// afterFailure is how long this agent leaves the next attempt to others, times
	// the attempt that failed here.
	afterFailure = time.Minute
)

// loop is one job of a Runner.
type loop struct {
	runner *Runner
	board  *Board
	log    *slog.Logger
	name   string
	poke   chan struct{} // something changed: of 1, so that it never blocks

	mu      sync.Mutex
	entry   *Entry // nil: not configured now
	times   *Timetable
	demands []demand
	task    *Task
	waiting string
	anew    bool // the schedule changed: what is past is not its business

	// Of the goroutine alone.
	settled time.Time // the newest slot that needs nothing more
	tried   trial
	now     span
}

// span is between two slots: it spares working them out at each glance.
type span struct {
	of        *Timetable
	due, next time.Time
}

// around is the newest slot at or before a time, and the one after it.
func (s *span) around(at time.Time, times *Timetable) (due, next time.Time) {
	if s.of != times || s.next.IsZero() || at.Before(s.due) || !at.Before(s.next) {
		*s = span{times, times.Previous(at), times.Next(at)}
	}
	return s.due, s.next
}

// demand is a run that was asked for.
type demand struct {
	slot string
	arg  json.RawMessage
}

// trial is what came of trying a slot.
type trial struct {
	slot     string
	from     time.Time // not to be tried before, by the monotonic clock
	held     bool      // others had their time to go first
	failures int       // of the repository, in a row
	follow   bool      // another agent was at it
}

// set replaces the entry; nil: the job is not configured any more.
func (l *loop) set(e *Entry, times *Timetable) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.anew = l.anew || l.entry != nil && e != nil && !e.equal(l.entry.Spec)
	l.entry = e
	if times != nil {
		l.times = times
	}
	l.wake()
}

func (l *loop) wake() {
	select {
	case l.poke <- struct{}{}:
	default:
	}
}

func (l *loop) demand(arg json.RawMessage) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.entry == nil:
		return "", fmt.Errorf("job %s is not configured any more", l.name)
	case l.entry.Off != "":
		return "", fmt.Errorf("job %s does not run here: %s", l.name, l.entry.Off)
	case len(l.demands) >= demandsWaiting:
		return "", fmt.Errorf("job %s: %d runs are waiting already: wait for them", l.name, len(l.demands))
	}
	d := demand{repository.NewDemandSlot(l.board.now()), slices.Clone(arg)}
	l.demands = append(l.demands, d)
	l.wake()
	return d.slot, nil
}

// find is a run that is under way or waits.
func (l *loop) find(slot string) (status.Run, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.task != nil && l.task.Slot == slot {
		return *l.task.Run(), true
	}
	for _, d := range l.demands {
		if d.slot == slot {
			return status.Run{Slot: slot, Agent: l.board.agent, Phase: "waiting"}, true
		}
	}
	return status.Run{}, false
}

func (l *loop) status() (status.Job, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entry == nil {
		return status.Job{}, false
	}
	job := status.Job{Name: l.name, Schedule: l.entry.Schedule, Off: l.entry.Off, Waiting: l.waiting}
	if job.Off == "" {
		job.Off = l.board.Waiting()
	}
	if l.entry.Off == "" {
		job.Next = l.times.Next(l.board.now())
	}
	if l.task != nil {
		job.Running = l.task.Run()
	}
	return job, true
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

// step does what is due, and tells how long nothing will be.
func (l *loop) step(ctx context.Context) time.Duration {
	l.mu.Lock()
	entry, times, anew := l.entry, l.times, l.anew
	l.anew = false
	var asked *demand
	if len(l.demands) > 0 {
		asked = &l.demands[0]
	}
	l.mu.Unlock()
	if anew {
		l.settled, l.tried = times.Previous(l.board.now()), trial{}
	}
	if entry == nil || entry.Off != "" || l.board.Waiting() != "" {
		return glance
	}
	if asked != nil {
		return l.try(ctx, entry, asked.slot, asked.arg)
	}
	now := l.board.now()
	due, next := l.now.around(now, times)
	// What was due before there was a repository, nobody has missed.
	if due.IsZero() || due.Equal(l.settled) || due.Before(l.board.repo.Created()) {
		l.wait("")
		if !next.IsZero() {
			return min(glance, next.Sub(now))
		}
		return glance
	}
	slot := repository.SlotName(due)
	if l.tried.follow && l.tried.slot != slot {
		// The one before is under way elsewhere: this one is skipped by its holder,
		// unless that one is dead.
		if s, err := l.board.look(ctx, l.name, l.tried.slot); err == nil && s.busy != "" {
			return l.board.lookEvery()
		}
		l.tried = trial{}
	}
	return l.try(ctx, entry, slot, nil)
}

// try goes for a slot once.
func (l *loop) try(ctx context.Context, entry *Entry, slot string, arg json.RawMessage) time.Duration {
	if l.tried.slot != slot {
		if l.tried.slot != "" && l.tried.failures > 0 {
			l.log.Warn("a slot was passed over while the repository was away", "slot", l.tried.slot, "next", slot)
		}
		l.tried = trial{slot: slot}
	}
	if wait := time.Until(l.tried.from); wait > 0 {
		return min(wait, glance)
	}
	_, demanded, _ := repository.ParseSlot(slot)
	if !demanded && !l.tried.held && entry.Hold != nil {
		l.tried.held = true
		if wait, why := entry.Hold(); wait > 0 {
			l.wait(fmt.Sprintf("for %v: %s", wait, why))
			l.tried.from = time.Now().Add(wait)
			return min(wait, glance)
		}
	}
	task, s, err := l.board.claim(ctx, l.name, slot)
	switch {
	case task != nil:
		task.Arg = arg
		l.work(ctx, entry, task)
		return 0
	case s.done:
		if err != nil {
			l.log.Warn("the result of a slot cannot be read", "slot", slot, "error", err)
		}
		l.settle(slot)
		return 0
	case err != nil:
		if l.tried.failures++; l.tried.failures == 1 && ctx.Err() == nil {
			l.log.Warn("a slot cannot be claimed; it is tried again", "slot", slot, "error", err)
		}
		if demanded && l.tried.failures >= demandTries {
			l.log.Error("a run that was asked for is given up: it cannot be claimed", "slot", slot, "error", err)
			l.settle(slot)
			return 0
		}
		l.wait("the slot cannot be claimed: " + err.Error())
		pause := min(firstRetry<<min(l.tried.failures-1, 10), lastRetry)
		l.tried.from = time.Now().Add(pause)
		return min(pause, glance)
	}
	l.tried.failures, l.tried.follow = 0, true
	l.wait(s.busy)
	return l.board.lookEvery()
}

func (l *loop) wait(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = why
}

// settle says that a slot needs nothing more here.
func (l *loop) settle(slot string) {
	at, demanded, err := repository.ParseSlot(slot)
	l.tried = trial{}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = ""
	if err == nil && !demanded {
		l.settled = at
	}
	l.demands = slices.DeleteFunc(l.demands, func(d demand) bool { return d.slot == slot })
}
