package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
)

// unreadable is the holder of an attempt that nobody can read.
const unreadable = "somebody whose claim cannot be read"

// standing is where a slot stands, as a look showed it.
type standing struct {
	attempt int    // the newest; 0 without any
	done    bool   // the slot has its result
	busy    string // who is at it, in words; empty: the next attempt is anybody's
	dead    string // the newest attempt ended without a word: whose it was
	holder  string // whose the newest attempt is, where it was looked at
	mine    bool   // it is this process's, whose answer was lost, and not begun
}

// Claim takes a slot if it can be had: now won, or free again because the attempt
// before failed, or ended without a word. It is false where the slot is done, or
// another is at it. The task's context follows ctx; the caller ends the task with
// Finish, Fail or Abandon.
func (b *Board) Claim(ctx context.Context, job, slot string) (*Task, bool, error) {
	t, _, err := b.claim(ctx, job, slot)
	return t, t != nil, err
}

func (b *Board) claim(ctx context.Context, job, slot string) (*Task, standing, error) {
	if why := b.Waiting(); why != "" {
		return nil, standing{busy: why}, nil
	}
	at, demand, err := repository.ParseSlot(slot)
	if err := errors.Join(err, repository.ValidJob(job)); err != nil {
		return nil, standing{}, err
	}
	s, err := b.look(ctx, job, slot)
	if err != nil || s.done || s.busy != "" {
		return nil, s, err
	}
	attempt := s.attempt + 1
	switch {
	case s.mine:
		attempt = s.attempt
	case s.dead != "" && s.attempt >= b.attempts(demand):
		if err := b.conclude(ctx, job, slot, s); err != nil {
			return nil, standing{}, err
		}
		return nil, standing{done: true}, nil
	default:
		err := b.repo.WriteClaim(ctx, repository.Claim{Job: job, Slot: slot, Attempt: attempt, Holder: b.agent, Process: b.process, Created: time.Now().UTC()})
		if errors.Is(err, sinks.ErrExists) {
			return nil, standing{busy: "another agent was faster"}, nil
		}
		if err != nil {
			return nil, standing{}, err
		}
	}
	// What was seen may be of a while ago: with a result now, there is nothing to do.
	_, err = b.repo.Sink().Stat(ctx, repository.JobResultName(job, slot))
	if err == nil {
		return nil, standing{done: true}, b.learn(ctx, job, slot)
	}
	if !errors.Is(err, sinks.ErrNotFound) {
		return nil, standing{}, err // the next look finds the claim to be this process's
	}
	return b.begin(ctx, job, slot, at, attempt), standing{}, nil
}

// attempts is how many a slot may have.
func (b *Board) attempts(demand bool) int {
	if demand {
		return 1 // whoever asked sees why it failed, and asks again
	}
	return b.o.MaxAttempts
}

// look finds out where a slot stands, writing nothing.
func (b *Board) look(ctx context.Context, job, slot string) (standing, error) {
	state, err := b.repo.ReadSlot(ctx, job, slot)
	if err != nil {
		return standing{}, err
	}
	s := standing{attempt: state.Attempt}
	switch {
	case state.Done:
		s.done = true
		b.forget(job, slot)
		return s, b.learn(ctx, job, slot)
	case state.Attempt == 0 || state.Failed:
		return s, nil
	}
	key := slotKey(job, slot)
	b.mu.Lock()
	seen, known := b.seen[key]
	own := b.begun[key]
	b.mu.Unlock()
	now := time.Now()
	if !known || seen.attempt != state.Attempt {
		claim, err := b.repo.ReadClaim(ctx, job, slot, state.Attempt)
		if err == nil {
			b.meet(claim)
		}
		s.holder = claim.Holder
		before := !claim.Created.After(b.began) // this process
		switch {
		case errors.Is(err, repository.ErrAltered): // whose it is nobody can tell
		case err != nil:
			return standing{}, err
		case claim.Holder == b.agent && claim.Process == b.process && claim.Attempt > own.attempt:
			s.mine = true
			return s, nil
		case claim.Holder == b.agent && claim.Process == b.process, claim.Holder == b.agent && before && !known && own.attempt == 0:
			// It ended in this process, or with the one before. Who finds one of its
			// own name from later on has a namesake, and is as patient as with anybody.
			s.dead = claim.Holder
			return s, nil
		}
		seen = sighting{attempt: state.Attempt, holder: claim.Holder, beat: -1}
	}
	if seen.beat != state.Beat {
		seen.beat, seen.since = state.Beat, now
	}
	seen.looked = now
	b.mu.Lock()
	b.seen[key] = seen
	b.mu.Unlock()
	holder := seen.holder
	if holder == "" {
		holder = unreadable
	}
	s.holder = holder
	if now.Sub(seen.since) >= b.o.Patience {
		s.dead = holder
		return s, nil
	}
	s.busy = fmt.Sprintf("%s is at it (attempt %d)", holder, state.Attempt)
	return s, nil
}

// conclude writes the result of a slot whose last attempt ended without a word.
func (b *Board) conclude(ctx context.Context, job, slot string, s standing) error {
	now := time.Now().UTC()
	result := repository.JobResult{
		Job: job, Slot: slot, Attempt: s.attempt, Holder: s.dead, Started: now, Finished: now,
		Text: fmt.Sprintf("the agent was ended in the middle of it: attempt %d by %s ended without a result, as seen by %s. Was the process killed, or out of memory?", s.attempt, s.dead, b.agent),
	}
	err := b.repo.WriteJobResult(ctx, result)
	if errors.Is(err, sinks.ErrExists) {
		return b.learn(ctx, job, slot)
	}
	if err != nil {
		return fmt.Errorf("record that slot %s of job %s failed: %w", slot, job, err)
	}
	b.note(result)
	b.markFailed(ctx, result)
	b.forget(job, slot)
	return nil
}
