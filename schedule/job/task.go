package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/requorum/requorum/schedule/status"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
)

// ErrLost says that the slot is another's: it has its result, or a newer attempt
// was made. What was done for it does not count.
var ErrLost = errors.New("another agent has taken over this slot")

// Task is an attempt at a slot, under way in this process.
type Task struct {
	Job      string
	Slot     string
	SlotTime time.Time // UTC
	Attempt  int       // from 1
	// Arg is what an on-demand run was asked with; nil where nothing.
	Arg json.RawMessage

	board   *Board
	ctx     context.Context
	cancel  context.CancelCauseFunc
	beaten  chan struct{} // closed when no beat follows
	started time.Time

	mu          sync.Mutex
	phase       string
	done, total int64
}

// begin starts an attempt that was claimed.
func (b *Board) begin(ctx context.Context, job, slot string, at time.Time, attempt int) *Task {
	t := &Task{
		Job: job, Slot: slot, SlotTime: at, Attempt: attempt,
		board: b, beaten: make(chan struct{}), started: time.Now(),
	}
	t.ctx, t.cancel = context.WithCancelCause(ctx)
	b.mu.Lock()
	b.begun[slotKey(job, slot)] = begun{attempt, t.started}
	b.mu.Unlock()
	go t.beat()
	return t
}

// Context ends when the one that the slot was claimed with does, and when the
// attempt is superseded or can no longer show that it gets on; context.Cause then
// is ErrLost. The work ends with it.
func (t *Task) Context() context.Context { return t.ctx }

// BackupID is the ID of the full snapshot that follows from job and slot.
func (t *Task) BackupID() string {
	id, _ := repository.SlotBackupID(t.Job, t.Slot) // the slot was parsed when it was claimed
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
func (t *Task) Run() *status.Run {
	t.mu.Lock()
	defer t.mu.Unlock()
	return &status.Run{
		Slot: t.Slot, Agent: t.board.agent, Attempt: t.Attempt, Started: t.started,
		Phase: t.phase, Done: t.done, Total: t.total,
	}
}

// Abandon ends the task without a word: others take over when they lose patience.
// After Finish or Fail it does nothing.
func (t *Task) Abandon() {
	t.cancel(context.Canceled)
	<-t.beaten
}

// beat shows that the holder is there, from the first interval on, and finds out
// whether the attempt was superseded. A holder that can show nothing for as long
// as others wait has to reckon with having been taken for dead.
func (t *Task) beat() {
	defer close(t.beaten)
	o := t.board.o
	ticker := time.NewTicker(o.BeatEvery)
	defer ticker.Stop()
	shown := time.Now()
	for n := 1; ; n++ { // a number whose answer was lost may be taken
		select {
		case <-t.ctx.Done():
			return
		case <-ticker.C:
		}
		now := time.Now()
		newer, err := t.show(n)
		switch {
		case newer:
			t.cancel(fmt.Errorf("%w: there is a newer attempt than %d", ErrLost, t.Attempt))
			return
		case err == nil:
			shown = now
		case time.Since(shown)+o.BeatEvery > o.Patience: // the next beat is too late
			t.cancel(fmt.Errorf("%w, or may have: no progress could be shown for %v: %w", ErrLost, time.Since(shown).Round(time.Second), err))
			return
		}
	}
}

// show writes a beat, and tells whether there is a newer attempt.
func (t *Task) show(n int) (newer bool, err error) {
	ctx, cancel := context.WithTimeout(t.ctx, t.board.o.BeatEvery)
	defer cancel()
	t.mu.Lock()
	beat := repository.Beat{Job: t.Job, Slot: t.Slot, Attempt: t.Attempt, Number: n, Phase: t.phase, Done: t.done, Total: t.total, Created: time.Now().UTC()}
	t.mu.Unlock()
	err = t.board.repo.WriteBeat(ctx, beat)
	if errors.Is(err, sinks.ErrExists) {
		err = nil // an earlier one whose answer was lost
	}
	_, errNewer := t.board.repo.Sink().Stat(ctx, repository.ClaimName(t.Job, t.Slot, t.Attempt+1))
	switch {
	case errNewer == nil:
		return true, nil
	case !errors.Is(errNewer, sinks.ErrNotFound):
		return false, errors.Join(err, errNewer)
	}
	return false, err
}
