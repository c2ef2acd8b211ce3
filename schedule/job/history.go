package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
)

// History is how the newest runs of a job ended, by any agent. Skipped slots are
// no runs. What is nil is not known of.
type History struct {
	Last, LastSuccess, LastFailure *Run
	// Detail is what the newest success said beyond that (Result.Detail).
	Detail json.RawMessage
}

// history is what was read of results, by job. It may be used concurrently.
type history struct {
	repo *repository.Repository
	now  func() time.Time // the wall clock

	mu   sync.Mutex
	read map[string]jobResults
}

// jobResults are a job's by slot: the newest success and failure, and those above its floor.
// One that cannot be read is there as skipped, so that this is said once.
type jobResults map[string]repository.JobResult

const (
	// late is how long after a newer slot's an older one's result may come.
	late = 48 * time.Hour
	// page is how many names one request lists, at the usual places.
	page = 1000
)

// listed is a result that was not read, as a listing gave it.
type listed struct {
	slot   string
	failed bool // an attempt did
}

// History reads what may have come since it was last called: one request, as a rule.
// With an error, what was known before stays.
func (b *history) History(ctx context.Context) error {
	all, err := b.listResults(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for job, slots := range all {
		errs = append(errs, b.readNewest(ctx, job, slots))
	}
	return errors.Join(errs...)
}

// Known is how the newest runs ended, as far as History read that. It asks nobody.
func (b *history) Known() map[string]History {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string]History{}
	for job := range b.read {
		success, failure := b.newest(job, true), b.newest(job, false)
		h := History{LastSuccess: runOf(success), LastFailure: runOf(failure)}
		h.Last = h.LastSuccess
		if h.Last == nil || h.LastFailure != nil && h.LastFailure.Slot > h.Last.Slot {
			h.Last = h.LastFailure
		}
		if success != nil {
			h.Detail = success.Detail
		}
		all[job] = h
	}
	return all
}

// newest is the newest success or failure that was read of a job; nil for none. Slots of
// the future do not count: somebody's clock was wrong when they were done.
func (b *history) newest(job string, success bool) (newest *repository.JobResult) {
	for slot, r := range b.read[job] {
		if !r.Skipped && r.OK == success && !b.ahead(slot) && (newest == nil || newest.Slot < slot) {
			newest = &r
		}
	}
	return newest
}

func (b *history) ahead(slot string) bool {
	return slot > repository.SlotName(b.now().Add(time.Hour))
}

// Find reads how a slot ended; false where it has no result.
func (b *history) Find(ctx context.Context, job, slot string) (Run, bool, error) {
	result, err := b.repo.ReadJobResult(ctx, repository.JobResultName(job, slot))
	if errors.Is(err, sinks.ErrNotFound) {
		return Run{}, false, nil
	}
	if err != nil {
		return Run{}, false, err
	}
	return *runOf(&result), true, nil
}

func runOf(r *repository.JobResult) *Run {
	if r == nil {
		return nil
	}
	return &Run{
		Slot: r.Slot, Agent: r.Holder, Attempt: r.Attempt, Started: r.Started, Finished: r.Finished,
		OK: r.OK, Text: r.Text, Backup: r.Backup, Bytes: r.Bytes,
	}
}

// listResults lists the results that were not read, by job, the oldest slot first. Old
// ones it passes over, by asking anew behind them where they are more than a page.
func (b *history) listResults(ctx context.Context) (map[string][]listed, error) {
	all := map[string][]listed{}
	of, floor := "", "" // the job whose names are coming
	failed := listed{}  // its names are before that of the result
	passed := 0
	for after, again := "", true; again; {
		again = false
		for obj, err := range b.repo.Sink().List(ctx, "jobs/", after) {
			if err != nil {
				return nil, fmt.Errorf("list the results of jobs in %s: %w", b.repo, err)
			}
			job, slot, attempt, err := repository.ParseJobName(obj.Name)
			if err != nil {
				continue
			}
			if job != of {
				of, floor, failed, passed = job, b.floor(job), listed{}, 0
			}
			if slot < floor {
				if passed++; passed > page {
					after, again = "jobs/"+job+"/"+floor, true
					break
				}
				continue
			}
			switch {
			case attempt > 0:
				failed = listed{slot, true}
			case failed.slot == slot:
				all[job] = append(all[job], failed)
			default:
				all[job] = append(all[job], listed{slot, false})
			}
		}
	}
	return all, nil
}

// floor is the slot of a job that no unknown result is before.
func (b *history) floor(job string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.floorLocked(job)
}

func (b *history) floorLocked(job string) string {
	newest := ""
	for slot := range b.read[job] {
		if newest < slot && !b.ahead(slot) {
			newest = slot
		}
	}
	at, _, err := repository.ParseSlot(newest)
	if err != nil {
		return "" // there is none
	}
	return repository.SlotName(at.Add(-late))
}

// readNewest reads the results that may be the newest success or failure, the
// newest first. One without a failed attempt is hardly a failure, so of a long
// history few are read.
func (b *history) readNewest(ctx context.Context, job string, slots []listed) error {
	var errs []error
	for _, s := range slices.Backward(slots) {
		if !b.wanted(job, s) {
			continue
		}
		switch err := b.learn(ctx, job, s.slot); {
		case errors.Is(err, repository.ErrAltered):
			errs = append(errs, err)
		case err != nil:
			return errors.Join(append(errs, err)...)
		}
	}
	return errors.Join(errs...)
}

func (b *history) wanted(job string, s listed) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.read[job][s.slot]; known || b.ahead(s.slot) {
		return false
	}
	success, failure := b.newest(job, true), b.newest(job, false)
	return success == nil || success.Slot < s.slot || s.failed && (failure == nil || failure.Slot < s.slot)
}

// learn reads the result of one slot. One that is gone again, or that nobody who is
// trusted wrote, is no error: the slot is not done for it.
func (b *history) learn(ctx context.Context, job, slot string) error {
	result, err := b.repo.ReadJobResult(ctx, repository.JobResultName(job, slot))
	switch {
	case errors.Is(err, sinks.ErrNotFound), errors.Is(err, repository.ErrAltered) && !b.repo.Doubtful(err):
		return nil
	case errors.Is(err, repository.ErrAltered):
		result = repository.JobResult{Job: job, Slot: slot, Skipped: true}
	case err != nil:
		return err
	}
	b.note(result)
	return err
}

// note takes a result into the history, which keeps what it needs.
func (b *history) note(r repository.JobResult) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.read[r.Job] == nil {
		b.read[r.Job] = jobResults{}
	}
	b.read[r.Job][r.Slot] = r
	floor, success, failure := b.floorLocked(r.Job), b.newest(r.Job, true), b.newest(r.Job, false)
	maps.DeleteFunc(b.read[r.Job], func(slot string, _ repository.JobResult) bool {
		return slot < floor && (success == nil || slot != success.Slot) && (failure == nil || slot != failure.Slot)
	})
}
