package job

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
)

// Task is an attempt at a slot, under way in this process.
type Task struct {
	Job      string
	Slot     string
	SlotTime time.Time // UTC
	Attempt  int       // from 1
	// Arg is the demand's; nil for a slot of the schedule.
	Arg any

	agent   string
	demand  *Demand // nil for a slot of the schedule
	started time.Time
	ctx     context.Context
	end     context.CancelFunc

	mu          sync.Mutex
	phase       string
	done, total int64
}

// BackupID is the ID of the full snapshot that follows from job and slot.
func (t *Task) BackupID() string {
	id, _ := repository.SlotBackupID(t.Job, t.Slot) // the slot was parsed when it was begun
	return id
}

// Progress says how far the work is; total 0 where that is not known. It is
// cheap, and may be called concurrently and often.
func (t *Task) Progress(phase string, done, total int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.phase, t.done, t.total = phase, done, total
}

// Run is the task as the status shows it.
func (t *Task) Run() *Run {
	t.mu.Lock()
	defer t.mu.Unlock()
	return &Run{
		Slot: t.Slot, Agent: t.agent, Attempt: t.Attempt, Started: t.started,
		Phase: t.phase, Done: t.done, Total: t.total,
	}
}

// Result is what a run has to say at its end.
type Result struct {
	Text   string          `json:"text,omitempty"`   // what was done, in a sentence
	Backup string          `json:"backup,omitempty"` // the ID of the full snapshot that was made
	Bytes  int64           `json:"bytes,omitempty"`  // stored or read
	Detail json.RawMessage `json:"detail,omitempty"` // in a form of the job's own
}

// finalError is an error that another attempt would find as well.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// Final marks an error of a run that another attempt would only find again, such
// as damage in what was verified: the slot ends with it.
func Final(err error) error { return finalError{err} }

// IsFinal says that Final marked the error.
func IsFinal(err error) bool {
	var final finalError
	return errors.As(err, &final)
}

// attempts is how many a slot may have.
func attempts(d *Demand) int {
	if d != nil {
		return 1 // its cause goes on, and demands again
	}
	return MaxAttempts
}

// done is why a slot is not begun that has its result.
const done = "done"

// begin records an attempt at a slot, which is then under way. Without a task and
// an error it says why: done, or who is at it.
func (l *loop) begin(ctx context.Context, slot string, d *Demand) (_ *Task, why string, err error) {
	at, _, err := repository.ParseSlot(slot)
	if err != nil {
		return nil, "", err
	}
	work, end, epoch := ctx, context.CancelFunc(func() {}), uint64(0)
	if d == nil && !l.Here && l.lease != nil {
		if work, end, epoch = l.lease.bind(ctx); epoch == 0 {
			end()
			return nil, "the lease was lost", nil
		}
	}
	number, why, err := l.claim(ctx, slot, d, epoch)
	if why != "" || err != nil {
		end()
		return nil, why, err
	}
	l.begun = attempt{slot, number}
	if l.Timeout > 0 {
		var stop context.CancelFunc
		outer := end
		work, stop = context.WithTimeoutCause(work, l.Timeout, fmt.Errorf("it took longer than %s (jobs.%s.timeout)", l.Timeout, l.Name))
		end = func() { stop(); outer() }
	}
	task := &Task{Job: l.Name, Slot: slot, SlotTime: at, Attempt: number, agent: l.Agent, demand: d, started: time.Now(), ctx: work, end: end}
	if d != nil {
		task.Arg = d.arg
	}
	return task, "", nil
}

// claim records an attempt, if the slot is to be had.
func (l *loop) claim(ctx context.Context, slot string, d *Demand, epoch uint64) (number int, why string, err error) {
	state, err := l.repo.ReadSlot(ctx, l.Name, slot)
	if err != nil {
		return 0, "", err
	}
	if state.Done {
		if err := l.learn(ctx, l.Name, slot); err != nil {
			l.log.Warn("the result of a slot cannot be read", "slot", slot, "error", err)
		}
		return 0, done, nil
	}
	if state.Attempt > 0 && !state.Failed {
		claim, err := l.repo.ReadClaim(ctx, l.Name, slot, state.Attempt)
		switch {
		case errors.Is(err, repository.ErrAltered):
			claim.Holder = "somebody whose claim cannot be read"
		case err != nil:
			return 0, "", err
		}
		at := attempt{slot, state.Attempt}
		switch {
		case claim.Process == l.process && l.begun != at:
			return state.Attempt, "", nil // written by a put whose answer was lost
		case !l.hasEnded(at, claim, epoch):
			return 0, fmt.Sprintf("%s is at it (attempt %d)", claim.Holder, state.Attempt), nil
		case state.Attempt >= attempts(d):
			return 0, done, l.conclude(ctx, slot, state.Attempt, claim.Holder)
		}
	}
	err = l.repo.WriteClaim(ctx, repository.Claim{
		Job: l.Name, Slot: slot, Attempt: state.Next, Holder: l.Agent, Process: l.process, Lease: epoch, Created: time.Now().UTC(),
	})
	if errors.Is(err, sinks.ErrExists) {
		return 0, "another agent was faster", nil
	}
	return state.Next, "", err
}

// hasEnded says that an attempt without a result is not under way any more: it is
// of a process of this agent, of one that held the lease before, or has been seen
// for longer than a run may take.
func (l *loop) hasEnded(at attempt, claim repository.Claim, epoch uint64) bool {
	if claim.Holder == l.Agent || 0 < claim.Lease && claim.Lease < epoch {
		return true
	}
	if l.seen != at {
		l.seen, l.since = at, time.Now()
	}
	return time.Since(l.since) > cmp.Or(l.Timeout, 24*time.Hour)+time.Minute
}

// conclude writes the result of a slot whose last attempt ended without a word.
func (l *loop) conclude(ctx context.Context, slot string, number int, holder string) error {
	now := time.Now().UTC()
	result := repository.JobResult{
		Job: l.Name, Slot: slot, Attempt: number, Holder: holder, Started: now, Finished: now,
		Text: fmt.Sprintf("the agent was ended in the middle of it: attempt %d by %s ended without a result, as seen by %s. Was the process killed, or out of memory?", number, holder, l.Agent),
	}
	return l.store(ctx, result)
}

// work runs a task to its end, whichever it is.
func (l *loop) work(ctx context.Context, task *Task) {
	defer task.end()
	l.mu.Lock()
	l.task, l.waiting = task, ""
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.task = nil
		l.mu.Unlock()
	}()
	log := l.log.With("slot", task.Slot, "attempt", task.Attempt)
	log.Info("begun")
	result, err := l.Do(task.ctx, task)
	took := time.Since(task.started).Round(time.Millisecond)
	if cause := context.Cause(task.ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	if written := l.finish(ctx, task, result, err); written != nil {
		log.Warn("what was done here may not count: how it ended could not be written", "reason", written, "failure", err, "took", took)
	} else if err != nil {
		log.Error("failed", "error", err, "took", took)
	} else {
		log.Info("done", "text", result.Text, "bytes", result.Bytes, "took", took)
	}
}

// finish writes how a run ended.
func (l *loop) finish(ctx context.Context, task *Task, r Result, err error) error {
	result := repository.JobResult{
		Job: task.Job, Slot: task.Slot, Attempt: task.Attempt, Holder: l.Agent,
		Started: task.started.UTC(), OK: err == nil, Text: r.Text, Backup: r.Backup, Bytes: r.Bytes, Detail: r.Detail,
	}
	last := err == nil || IsFinal(err) || task.Attempt >= attempts(task.demand)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		// Nobody's fault: another attempt follows, whichever this was. But a demand ends
		// with its process.
		result.Text, last = fmt.Sprintf("%s was stopped in the middle of it", l.Agent), task.demand != nil
	default:
		result.Text = err.Error()
	}
	result.Text, result.Finished = shorten(result.Text), time.Now().UTC()
	written := l.untilWritten(ctx, task, func(ctx context.Context) error {
		if errors.Is(context.Cause(task.ctx), ErrLost) {
			return fmt.Errorf("job %s, slot %s, attempt %d: %w", task.Job, task.Slot, task.Attempt, ErrLost)
		}
		if last {
			return l.store(ctx, result)
		}
		if err := l.repo.WriteJobFailed(ctx, result); !errors.Is(err, sinks.ErrExists) {
			return err
		}
		return nil
	})
	l.tried = slotState{slot: task.Slot}
	switch {
	case task.demand != nil: // it has its one attempt behind it
		l.settle(task.Slot, task.demand, cmp.Or(err, written))
	case written == nil && last:
		l.settle(task.Slot, nil, nil)
		l.skip(ctx, task)
	case err != nil && ctx.Err() == nil:
		l.tried.from = time.Now().Add(time.Duration(task.Attempt) * afterFailure)
		if l.lease != nil && !l.Here {
			l.lease.couldNot()
		}
		l.wait(fmt.Sprintf("attempt %d failed: %v", task.Attempt, err))
	}
	return written
}

// skip writes the result of a slot that came due during the run of the one before.
func (l *loop) skip(ctx context.Context, task *Task) {
	due := l.times.Previous(l.Runner.now())
	if !due.After(task.SlotTime) || ctx.Err() != nil {
		return
	}
	now := time.Now().UTC()
	slot := repository.SlotName(due)
	err := l.untilWritten(ctx, task, func(ctx context.Context) error {
		return l.store(ctx, repository.JobResult{
			Job: l.Name, Slot: slot, Attempt: 1, Holder: l.Agent, Started: now, Finished: now, Skipped: true,
			Text: fmt.Sprintf("skipped: the run of slot %s lasted until %s", task.Slot, now.Format(time.RFC3339)),
		})
	})
	l.log.Warn("a slot is skipped: the run before it lasted too long", "slot", slot, "before", task.Slot, "error", err)
	l.settle(slot, nil, nil)
}

// store writes the result of a slot. Another's that is there is ErrLost. An unsigned one
// that has its name keeps the result from being stored, and the slot from nothing: it is
// known here alone.
func (l *loop) store(ctx context.Context, result repository.JobResult) error {
	err := l.repo.WriteJobResult(ctx, result)
	if errors.Is(err, sinks.ErrExists) {
		there, err := l.repo.ReadJobResult(ctx, repository.JobResultName(result.Job, result.Slot))
		switch {
		case errors.Is(err, repository.ErrAltered) && !l.repo.Doubtful(err):
			l.log.Warn("how it ended is known to this agent alone: an object that nobody who is trusted signed has the name of the result", "slot", result.Slot, "error", err)
			l.note(result)
			return nil
		case errors.Is(err, repository.ErrAltered):
			return fmt.Errorf("job %s, slot %s: %w: its result cannot be read: %w", result.Job, result.Slot, ErrLost, err)
		case err != nil:
			return err
		}
		l.note(there)
		if there.Holder == result.Holder && there.Attempt == result.Attempt && there.Started.Equal(result.Started) {
			return nil // stored by a put whose answer was lost
		}
		return fmt.Errorf("job %s, slot %s, attempt %d: %w: %s wrote the result of attempt %d", result.Job, result.Slot, result.Attempt, ErrLost, there.Holder, there.Attempt)
	}
	if err != nil {
		return fmt.Errorf("write the result of slot %s of job %s: %w", result.Slot, result.Job, err)
	}
	l.note(result)
	if !result.OK && !result.Skipped {
		// So that names alone show where failures may be. Nothing depends on it.
		_ = l.repo.WriteJobFailed(ctx, result)
	}
	return nil
}

// untilWritten repeats write while the repository is away, until another one has the
// slot; after ctx ended for Grace only.
func (l *loop) untilWritten(ctx context.Context, task *Task, write func(context.Context) error) error {
	for pause := firstRetry; ctx.Err() == nil; pause = min(2*pause, lastRetry) {
		err := write(ctx)
		if err == nil || errors.Is(err, ErrLost) {
			return err
		}
		if ctx.Err() == nil {
			l.log.Warn("how it ended cannot be written down; it is tried again", "slot", task.Slot, "error", err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), Grace)
	defer cancel()
	return write(last)
}

// maxText is how much of a sentence a result keeps, in bytes: a document is bounded.
const maxText = 8 << 10

func shorten(s string) string {
	if len(s) > maxText {
		return strings.ToValidUTF8(s[:maxText], "") + "…"
	}
	return s
}
