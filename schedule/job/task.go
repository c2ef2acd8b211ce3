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
	// Arg is the occasion's; nil for a slot of the schedule.
	Arg any

	agent   string
	started time.Time

	mu          sync.Mutex
	phase       string
	done, total int64
}

// BackupID is the ID of the full snapshot that follows from job and slot.
func (t *Task) BackupID() string {
	id, _ := repository.SlotBackupID(t.Job, t.Slot) // the slot was parsed when it was begun
	return id
}

// Progress reports how far the work is; total is 0 if that is not known. It is
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

// Result is what a run has to report at its end.
type Result struct {
	Text   string          `json:"text,omitempty"`   // what was done, in a sentence
	Backup string          `json:"backup,omitempty"` // the ID of the full snapshot that was made
	Bytes  int64           `json:"bytes,omitempty"`  // stored or read
	Detail json.RawMessage `json:"detail,omitempty"` // in a form of the job's own
	// Damaged reports that the run failed because it found damage in the repository.
	Damaged bool `json:"damaged,omitempty"`
	// Final reports that another attempt would only fail again, as with damage: the slot
	// ends with this one.
	Final bool `json:"-"`
}

// attempt makes an attempt at the pursuit's slot, and notes there what came of it. If it
// makes none, it returns whom it leaves the slot to.
func (l *loop) attempt(ctx context.Context, p *pursuit, o Occasion, limit int) (why string, err error) {
	at, _, err := repository.ParseSlot(p.slot)
	if err != nil {
		return "", err
	}
	// Runs of older slots matter to one of the schedule: they answer it if they are under way still.
	from := p.slot
	scheduled := limit == MaxAttempts
	if scheduled {
		from = repository.SlotName(at.Add(-cmp.Or(l.Timeout, 24*time.Hour) - 2*lostAfter))
	}
	all, err := l.repo.ReadSlots(ctx, l.Name, from, p.slot)
	if err != nil {
		return "", err
	}
	for _, s := range all {
		if _, occasion, _ := repository.ParseSlot(s.Slot); s.Slot != p.slot && (occasion || !scheduled) {
			continue
		}
		if s.Done {
			l.learn(ctx, s.Slot, s.OK)
			p.done = p.done || s.Slot == p.slot
			continue
		}
		underWay, err := l.isUnderWay(ctx, p, s)
		switch {
		case err != nil:
			return "", err
		case underWay:
			return fmt.Sprintf("%s is at it (attempt %d)", p.watched[s.Slot].holder, s.Newest), nil
		}
	}
	state := all[len(all)-1]
	if p.done = p.done || scheduled && l.isDoneSince(l.Name, at); p.done {
		return "", nil
	}
	name := repository.JobName{Job: l.Name, Slot: p.slot, Kind: repository.JobBegun, Attempt: state.Next}
	began := time.Now()
	task := &Task{Job: l.Name, Slot: p.slot, SlotTime: at, Attempt: state.Next, Arg: o.Arg, agent: l.Agent, started: l.now()}
	record := repository.JobRecord{Job: l.Name, Slot: p.slot, Attempt: state.Next, Holder: l.Agent, Process: l.process, Started: task.started.UTC()}
	if l.About != nil {
		record.Agent = l.About()
	}
	if state.Attempts >= limit {
		record.Attempt, record.Holder, record.Finished = state.Newest, p.watched[p.slot].holder, record.Started
		record.Text = fmt.Sprintf("the agent was ended in the middle of it: attempt %d by %s ended without a result, as seen by %s. Was the process killed, or out of memory?", record.Attempt, record.Holder, l.Agent)
		p.done = true
		return "", l.end(ctx, ctx, repository.JobName{Job: l.Name, Slot: p.slot, Kind: repository.JobFailed}, record)
	}
	err = l.repo.WriteJob(ctx, name, record)
	if errors.Is(err, sinks.ErrExists) {
		return "another agent was faster", nil
	}
	if err != nil {
		return "", err
	}
	work, lost := context.WithCancelCause(ctx)
	defer lost(context.Canceled)
	beating, stop := context.WithCancel(ctx)
	var beats sync.WaitGroup
	defer beats.Wait()
	defer stop()
	beats.Go(func() { l.beat(beating, lost, name, record, began) })
	if l.Timeout > 0 {
		var stop context.CancelFunc
		work, stop = context.WithTimeoutCause(work, l.Timeout, fmt.Errorf("it took longer than %s (jobs.%s.timeout)", l.Timeout, l.Name))
		defer stop()
	}
	return "", l.work(ctx, work, p, task, record, state.Attempts+1 >= limit)
}

// learn takes the result of a slot into the history, and reports whether it could.
func (l *loop) learn(ctx context.Context, slot string, success bool) bool {
	n := repository.JobName{Job: l.Name, Slot: slot, Kind: repository.JobFailed}
	if success {
		n.Kind = repository.JobDone
	}
	if l.wanted(n) {
		if err := l.readOne(ctx, n); err != nil {
			l.log.Warn("the result of a slot cannot be read", "slot", slot, "error", err)
		}
	}
	known, failure := l.newest(l.Name)
	if !success {
		known = failure
	}
	return known != nil && known.Slot >= slot
}

// work runs a task to its end, and records how it ended. Its error is why the run failed, or
// could not be recorded.
func (l *loop) work(ctx, work context.Context, p *pursuit, task *Task, record repository.JobRecord, last bool) error {
	l.mu.Lock()
	l.task, l.waiting = task, ""
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.task = nil
		l.mu.Unlock()
		l.ended, p.failures = time.Now(), 0
	}()
	log := l.log.With("slot", task.Slot, "attempt", task.Attempt)
	log.Info("begun")
	began := time.Now()
	r, err := l.Do(work, task)
	took := time.Since(began).Round(time.Millisecond)
	if cause := context.Cause(work); err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	record.OK, record.Text, record.Backup, record.Bytes, record.Damaged, record.Detail = err == nil, r.Text, r.Backup, r.Bytes, r.Damaged, r.Detail
	record.Finished = l.now().UTC()
	name := repository.JobName{Job: l.Name, Slot: p.slot, Kind: repository.JobDone}
	switch {
	case err == nil:
	case ctx.Err() != nil: // no fault of the job's: another attempt follows, and this one does not count
		name.Kind, name.Attempt, record.Text = repository.JobStopped, task.Attempt, fmt.Sprintf("%s was stopped in the middle of it", l.Agent)
	case !last && !r.Final: // another agent makes the next attempt, if there is one
		name.Kind, name.Attempt, record.Text = repository.JobFailed, task.Attempt, err.Error()
		p.from = time.Now().Add(max(time.Duration(task.Attempt)*afterFailure, preferredWait))
		l.wait(fmt.Sprintf("attempt %d failed: %v", task.Attempt, err))
	default:
		name.Kind, record.Text = repository.JobFailed, err.Error()
	}
	record.Text = shorten(record.Text)
	written := l.end(ctx, work, name, record)
	p.done = written == nil && name.Final()
	switch {
	case written != nil:
		log.Warn("the run may not count: its end could not be recorded", "reason", written, "failure", err, "took", took)
	case err != nil:
		log.Error("failed", "error", err, "took", took)
	default:
		log.Info("done", "text", r.Text, "bytes", r.Bytes, "took", took)
	}
	if err != nil {
		return err
	}
	return written
}

// end records the end of a run. It repeats that while the repository is unreachable, unless
// another agent may have taken over; after ctx ended for Grace only. A record that exists is
// as good: the slot has its end.
func (l *loop) end(ctx, work context.Context, name repository.JobName, record repository.JobRecord) error {
	write := func(ctx context.Context) error {
		if errors.Is(context.Cause(work), ErrLost) {
			return ErrLost
		}
		err := l.repo.WriteJob(ctx, name, record)
		exists := errors.Is(err, sinks.ErrExists)
		switch {
		case err != nil && !exists:
			return err
		case !name.Final():
		case !exists || !l.learn(ctx, record.Slot, record.OK):
			// One that exists and cannot be read leaves this one known here only.
			l.note(record)
		}
		return nil
	}
	for pause := firstRetry; ctx.Err() == nil; pause = min(2*pause, lastRetry) {
		err := write(ctx)
		if err == nil || errors.Is(err, ErrLost) {
			return err
		}
		if ctx.Err() == nil {
			l.log.Warn("the end of a run cannot be recorded; it is tried again", "slot", record.Slot, "error", err)
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

// maxText is how much of a sentence a record keeps, in bytes: a document is bounded.
const maxText = 8 << 10

func shorten(s string) string {
	if len(s) > maxText {
		return strings.ToValidUTF8(s[:maxText], "") + "…"
	}
	return s
}
