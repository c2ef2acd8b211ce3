package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/requorum/requorum/schedule/status"
	"github.com/requorum/requorum/sinks/repository"
)

// A run that was asked for lives in the process that was asked. Where that is
// killed, nobody does the run any more; but whoever asked wants to know. So agents
// look for claims on such slots that have no result: when they start, since the one
// that was killed may be themselves; now and then, for those that did not come back;
// and when somebody asks for the slot.

const (
	// orphansEvery is between two lists of what others may have left.
	orphansEvery = 6 * time.Hour
	// orphansBack is how old a run may be that is looked for.
	orphansBack = 48 * time.Hour
)

// orphan is a slot that was asked for and whose result is awaited.
type orphan struct{ job, slot string }

// keepDemands concludes the runs that were asked for and whose process has ended,
// until ctx ends.
func (r *Runner) keepDemands(ctx context.Context) {
	select { // what is in the history needs no looking at
	case <-r.read:
	case <-ctx.Done():
	}
	var listed time.Time
	for ctx.Err() == nil {
		if r.board.Waiting() == "" {
			if listed.IsZero() || time.Since(listed) >= orphansEvery {
				r.mu.Lock()
				names := append([]string(nil), r.order...)
				r.mu.Unlock()
				if err := r.board.findOrphans(ctx, names); err == nil {
					listed = time.Now()
				}
			}
			if err := r.board.concludeOrphans(ctx); err != nil && ctx.Err() == nil {
				r.log.Warn("a run that was asked for has no result, and how it ended cannot be found out; it is tried again", "error", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(r.board.lookEvery()):
		}
	}
}

// findOrphans lists the claims on slots that were asked for lately: one request for
// each job.
func (b *Board) findOrphans(ctx context.Context, jobs []string) error {
	for _, job := range jobs {
		prefix := "claims/" + job + "/"
		for obj, err := range b.repo.Sink().List(ctx, prefix, prefix+repository.SlotName(b.now().Add(-orphansBack))) {
			if err != nil {
				return fmt.Errorf("list the claims of job %s in %s: %w", job, b.repo, err)
			}
			_, slot, ok := claimedSlot(obj.Name)
			if _, demand, err := repository.ParseSlot(slot); ok && err == nil && demand && !b.isDealt(job, slot) {
				b.await(job, slot)
			}
		}
	}
	return nil
}

// await keeps a slot that was asked for in view until it has its result.
func (b *Board) await(job, slot string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.orphans[orphan{job, slot}] = true
}

func (b *Board) concludeOrphans(ctx context.Context) error {
	b.mu.Lock()
	all := make([]orphan, 0, len(b.orphans))
	for o := range b.orphans {
		all = append(all, o)
	}
	b.mu.Unlock()
	var errs []error
	for _, o := range all {
		done, err := b.concludeOrphan(ctx, o.job, o.slot)
		if done {
			b.mu.Lock()
			delete(b.orphans, o)
			b.mu.Unlock()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// concludeOrphan writes the result of a slot that was asked for where its process
// has ended. It is done where nothing more is to be awaited.
func (b *Board) concludeOrphan(ctx context.Context, job, slot string) (done bool, err error) {
	if b.isOwn(job, slot) {
		return true, nil // its loop ends it
	}
	s, err := b.look(ctx, job, slot)
	switch {
	case errors.Is(err, repository.ErrAltered):
		return true, nil // a result that nobody can read; the history says so
	case err != nil:
		return false, err
	case s.done, s.attempt == 0:
		return true, nil
	case s.mine, s.busy != "":
		return false, nil
	case b.isOwn(job, slot): // begun since
		return true, nil
	case s.dead == "": // the attempt is recorded as failed, and no other one will be made
		claim, err := b.repo.ReadClaim(ctx, job, slot, s.attempt)
		if err != nil && !errors.Is(err, repository.ErrAltered) {
			return false, err
		}
		s.dead = cmp.Or(claim.Holder, unreadable)
	}
	err = b.conclude(ctx, job, slot, s)
	return err == nil, err
}

// isOwn tells whether this process has begun an attempt at a slot.
func (b *Board) isOwn(job, slot string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.begun[slotKey(job, slot)].attempt > 0
}

// underWay tells of a slot that was asked for, of another process and without a
// result: false where there is no claim on it either. How it ends is awaited.
func (b *Board) underWay(ctx context.Context, job, slot string) (status.Run, bool, error) {
	s, err := b.look(ctx, job, slot)
	if err != nil || s.attempt == 0 {
		return status.Run{}, false, err
	}
	if s.done { // since
		return b.Find(ctx, job, slot)
	}
	b.await(job, slot)
	phase := "under way"
	if s.busy == "" {
		phase = "ended without a result"
	}
	return status.Run{Slot: slot, Agent: s.holder, Attempt: s.attempt, Phase: phase}, true, nil
}
