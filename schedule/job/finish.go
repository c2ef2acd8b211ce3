package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
)

// Result is what a run has to say at its end.
type Result struct {
	Text    string          // what was done, in a sentence
	Backup  string          // the ID of the full snapshot that was made
	Bytes   int64           // stored or read
	Verdict uint64          // the verdict's sequence; 0 without one
	Detail  json.RawMessage // in a form of the job's own
}

// finalError is an error that another attempt would find as well.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// Final marks an error of a run that another attempt would only find again, such
// as damage in what was verified: the slot ends with it.
func Final(err error) error { return finalError{err} }

// Finish writes the slot's result and ends the task. ErrLost where another agent
// has the slot; the task has ended then, too. With any other error it goes on, and
// Finish may be called again: whether the result is there already is found out.
func (t *Task) Finish(ctx context.Context, r Result) error {
	result := t.result(r)
	result.OK = true
	return t.settle(ctx, result)
}

// Fail says that the attempt failed. Another one may follow at once, unless it was
// the last one or the error is Final: then it is the slot's result. Errors are as
// those of Finish.
func (t *Task) Fail(ctx context.Context, r Result, cause error) error {
	result := t.result(r)
	result.Text = cause.Error()
	if t.last(cause) {
		return t.settle(ctx, result)
	}
	return t.giveUp(ctx, result)
}

// last tells that no attempt follows one that failed for this cause.
func (t *Task) last(cause error) bool {
	_, demand, _ := repository.ParseSlot(t.Slot) // was parsed when it was claimed
	var final finalError
	return errors.As(cause, &final) || t.Attempt >= t.board.attempts(demand)
}

// Interrupted says that the work was cut short by the end of this process, which
// is nobody's fault: another attempt follows, whichever this was. A run that was
// asked for has ended with it: nobody knows what it was asked with.
func (t *Task) Interrupted(ctx context.Context) error {
	result := t.result(Result{Text: fmt.Sprintf("%s was stopped in the middle of it", t.board.agent)})
	if _, demand, _ := repository.ParseSlot(t.Slot); demand {
		result.Text += ": ask for it again"
		return t.settle(ctx, result)
	}
	return t.giveUp(ctx, result)
}

// skip says that nothing is done at this slot.
func (t *Task) skip(ctx context.Context, why string) error {
	result := t.result(Result{Text: why})
	result.Skipped = true
	return t.settle(ctx, result)
}

func (t *Task) result(r Result) repository.JobResult {
	return repository.JobResult{
		Job: t.Job, Slot: t.Slot, Attempt: t.Attempt, Holder: t.board.agent,
		Started: t.started.UTC(), Finished: time.Now().UTC(),
		Text: r.Text, Backup: r.Backup, Bytes: r.Bytes, Verdict: r.Verdict, Detail: r.Detail,
	}
}

// giveUp records a failed attempt that another one may follow.
func (t *Task) giveUp(ctx context.Context, result repository.JobResult) error {
	err := t.board.repo.WriteJobFailed(ctx, result)
	if err != nil && !errors.Is(err, sinks.ErrExists) {
		return fmt.Errorf("record that attempt %d at slot %s of job %s failed: %w", t.Attempt, t.Slot, t.Job, err)
	}
	t.Abandon()
	return nil
}

// settle writes the slot's result, if it still is this attempt's to write.
func (t *Task) settle(ctx context.Context, result repository.JobResult) error {
	b := t.board
	state, err := b.repo.ReadSlot(ctx, t.Job, t.Slot)
	if err != nil {
		return err
	}
	if !state.Done {
		if state.Attempt != t.Attempt { // newer, or swept away long ago
			t.Abandon()
			return fmt.Errorf("job %s, slot %s, attempt %d: %w: attempt %d is the newest", t.Job, t.Slot, t.Attempt, ErrLost, state.Attempt)
		}
		err = b.repo.WriteJobResult(ctx, result)
	}
	if state.Done || errors.Is(err, sinks.ErrExists) {
		return t.whose(ctx)
	}
	if err != nil {
		return fmt.Errorf("write the result of slot %s of job %s: %w", t.Slot, t.Job, err)
	}
	t.Abandon()
	b.note(result)
	if !result.OK && !result.Skipped {
		b.markFailed(ctx, result)
	}
	b.forget(t.Job, t.Slot)
	return nil
}

// whose finds out whose result is there: it may be this attempt's own, stored by
// a put whose answer was lost.
func (t *Task) whose(ctx context.Context) error {
	there, err := t.board.repo.ReadJobResult(ctx, repository.JobResultName(t.Job, t.Slot))
	if err != nil && !errors.Is(err, repository.ErrAltered) {
		return err
	}
	t.Abandon()
	t.board.forget(t.Job, t.Slot)
	if err != nil {
		return fmt.Errorf("job %s, slot %s: %w: its result cannot be read: %w", t.Job, t.Slot, ErrLost, err)
	}
	t.board.note(there)
	if there.Holder == t.board.agent && there.Attempt == t.Attempt && there.Started.Equal(t.started) {
		return nil
	}
	return fmt.Errorf("job %s, slot %s, attempt %d: %w: %s wrote the result of attempt %d", t.Job, t.Slot, t.Attempt, ErrLost, there.Holder, there.Attempt)
}

// markFailed puts a failed attempt's record beside a result that is a failure, so
// that names alone tell readers where one may be. Nothing depends on it.
func (b *Board) markFailed(ctx context.Context, result repository.JobResult) {
	_ = b.repo.WriteJobFailed(ctx, result) // the result itself is there
}
