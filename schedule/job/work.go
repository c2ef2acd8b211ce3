package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/requorum/requorum/sinks/repository"
)

// work runs a task to its end, whichever it is.
func (l *loop) work(ctx context.Context, entry *Entry, task *Task) {
	defer task.Abandon()
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
	result, err := entry.Do(task.Context(), task)
	took := time.Since(task.started).Round(time.Millisecond)

	lost := errors.Is(context.Cause(task.Context()), ErrLost)
	var written error
	switch {
	case err == nil:
		written = l.finish(ctx, task, result)
	case lost:
		written = context.Cause(task.Context())
	case ctx.Err() != nil:
		written = l.untilWritten(ctx, task, func(ctx context.Context) error { return task.Interrupted(ctx) })
	default:
		written = l.untilWritten(ctx, task, func(ctx context.Context) error { return task.Fail(ctx, result, err) })
	}
	switch {
	case errors.Is(written, ErrLost):
		log.Warn("another agent took over; what was done here does not count", "reason", written, "took", took)
	case written != nil:
		log.Warn("how it ended could not be written down", "error", written, "failure", err, "took", took)
	case err != nil:
		log.Error("failed", "error", err, "took", took)
	default:
		log.Info("done", "text", result.Text, "bytes", result.Bytes, "took", took)
	}
	// What the slot needs now the next look tells; others first, where it failed.
	l.tried = trial{slot: task.Slot, held: true}
	if err != nil && written == nil && ctx.Err() == nil {
		l.tried.from = time.Now().Add(time.Duration(task.Attempt) * afterFailure)
		l.wait(fmt.Sprintf("attempt %d failed: %v", task.Attempt, err))
	}
	if written == nil && (err == nil || ctx.Err() == nil && task.last(err)) {
		l.settle(task.Slot)
	}
}

// finish writes the result of a run that succeeded. Where the next slot came due
// meanwhile it is claimed first, so that nobody else sets out, and skipped.
func (l *loop) finish(ctx context.Context, task *Task, result Result) error {
	var next *Task
	l.mu.Lock()
	due := l.times.Previous(l.board.now())
	l.mu.Unlock()
	_, demanded, _ := repository.ParseSlot(task.Slot)
	if !demanded && due.After(task.SlotTime) {
		// Where it cannot be had now, it is not skipped: somebody does it.
		next, _, _ = l.board.claim(ctx, l.name, repository.SlotName(due))
	}
	err := l.untilWritten(ctx, task, func(ctx context.Context) error { return task.Finish(ctx, result) })
	if next == nil {
		return err
	}
	defer next.Abandon()
	if err != nil {
		return errors.Join(err, l.untilWritten(ctx, next, next.Interrupted))
	}
	why := fmt.Sprintf("skipped: the run of slot %s lasted until %s", task.Slot, l.board.now().UTC().Format(time.RFC3339))
	errSkip := l.untilWritten(ctx, next, func(ctx context.Context) error { return next.skip(ctx, why) })
	l.log.Warn("a slot is skipped: the run before it lasted too long", "slot", next.Slot, "before", task.Slot, "error", errSkip)
	return nil
}

// untilWritten repeats write while the repository is away, until the task is
// lost; after ctx ended for Grace only.
func (l *loop) untilWritten(ctx context.Context, task *Task, write func(context.Context) error) error {
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		err := write(ctx)
		if err == nil || errors.Is(err, ErrLost) {
			return err
		}
		if ctx.Err() == nil {
			l.log.Warn("how it ended cannot be written down; it is tried again", "slot", task.Slot, "error", err)
		}
		select {
		case <-time.After(pause):
			continue
		case <-ctx.Done():
		}
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), Grace)
		defer cancel()
		return write(last)
	}
}
