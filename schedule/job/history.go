package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// history is what is known of results, by job. It may be used concurrently.
type history struct {
	repo *repository.Repository
	now  func() time.Time // the wall clock

	mu    sync.Mutex
	known map[string]*jobHistory
}

type jobHistory struct {
	success, failure *repository.JobResult
	seen             map[string]bool // results that are dealt with, within late
	newest           time.Time       // slot that has a result
}

const (
	// late is how long after a newer slot's an older one's result may come.
	late = 48 * time.Hour
	// page is how many names one request lists, at the usual places.
	page = 1000
)

// found are names of one job, as a listing gave them.
type found struct {
	slots  []string
	failed map[string]bool // slots with a failed attempt
}

// History reads what may have come since it was last called: one request, as a rule.
// With an error, what was known before stays.
func (b *history) History(ctx context.Context) error {
	all, err := b.listResults(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for job, f := range all {
		errs = append(errs, b.readNewest(ctx, job, f))
	}
	return errors.Join(errs...)
}

// Known is how the newest runs ended, as far as History read that. It asks nobody.
func (b *history) Known() map[string]History {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string]History{}
	for job, j := range b.known {
		h := History{LastSuccess: runOf(j.success), LastFailure: runOf(j.failure)}
		h.Last = h.LastSuccess
		if h.Last == nil || h.LastFailure != nil && h.LastFailure.Slot > h.Last.Slot {
			h.Last = h.LastFailure
		}
		if j.success != nil {
			h.Detail = j.success.Detail
		}
		all[job] = h
	}
	return all
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

// listResults lists the results that are not dealt with. Old ones it passes over,
// by asking anew behind them where they are more than a page.
func (b *history) listResults(ctx context.Context) (map[string]*found, error) {
	all := map[string]*found{}
	floor := "" // of the job whose names are coming
	passed := 0
	for after, again := "", true; again; {
		again = false
		for obj, err := range b.repo.Sink().List(ctx, "jobs/", after) {
			if err != nil {
				return nil, fmt.Errorf("list the results of jobs in %s: %w", b.repo, err)
			}
			if folder := obj.Name[:strings.LastIndexByte(obj.Name, '/')+1]; !strings.HasPrefix(floor, folder) {
				floor, passed = b.floor(folder), 0
			}
			if obj.Name < floor {
				if passed++; passed > page {
					after, again = floor, true
					break
				}
				continue
			}
			job, slot, failed, err := repository.ParseJobName(obj.Name)
			if err != nil || b.isDealt(job, slot) {
				continue
			}
			f := all[job]
			if f == nil {
				f = &found{failed: map[string]bool{}}
				all[job] = f
			}
			if failed > 0 {
				f.failed[slot] = true
			} else {
				f.slots = append(f.slots, slot)
			}
		}
	}
	return all, nil
}

// floor is the name in a job's folder that no unknown result is before.
func (b *history) floor(folder string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	j := b.known[strings.TrimSuffix(strings.TrimPrefix(folder, "jobs/"), "/")]
	if j == nil || j.newest.IsZero() {
		return folder
	}
	return folder + repository.SlotName(j.newest.Add(-late))
}

func (b *history) isDealt(job, slot string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	j := b.known[job]
	return j != nil && j.seen[slot]
}

// readNewest reads the results that may be the newest success or failure, the
// newest first. One without a failed attempt is hardly a failure, so of a long
// history few are read.
func (b *history) readNewest(ctx context.Context, job string, f *found) error {
	slices.SortFunc(f.slots, func(x, y string) int { return strings.Compare(y, x) })
	var errs []error
	for _, slot := range f.slots {
		if !b.wanted(job, slot, f.failed[slot]) {
			b.dealt(job, slot)
			continue
		}
		switch err := b.learn(ctx, job, slot); {
		case errors.Is(err, repository.ErrAltered):
			b.dealt(job, slot) // said once
			errs = append(errs, err)
		case err != nil:
			return errors.Join(append(errs, err)...)
		}
	}
	return errors.Join(errs...)
}

func (b *history) wanted(job, slot string, failed bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	j := b.known[job]
	return j == nil || b.newer(slot, j.success) || failed && b.newer(slot, j.failure)
}

// newer says that a slot is to be shown rather than a result that is known. Slots
// of the future are not: somebody's clock was wrong when they were done.
func (b *history) newer(slot string, known *repository.JobResult) bool {
	return !b.ahead(slot) && (known == nil || known.Slot < slot || b.ahead(known.Slot))
}

func (b *history) ahead(slot string) bool {
	return slot > repository.SlotName(b.now().Add(time.Hour))
}

// learn reads the result of one slot. One that is gone again is no error.
func (b *history) learn(ctx context.Context, job, slot string) error {
	if b.isDealt(job, slot) {
		return nil
	}
	result, err := b.repo.ReadJobResult(ctx, repository.JobResultName(job, slot))
	switch {
	case errors.Is(err, sinks.ErrNotFound):
		return nil
	case errors.Is(err, repository.ErrAltered) && !b.repo.Doubtful(err):
		return nil // nobody's who is trusted: the slot is not done for it
	case errors.Is(err, repository.ErrAltered):
		b.dealt(job, slot)
		return err
	case err != nil:
		return err
	}
	b.note(result)
	return nil
}

// note takes a result into the history.
func (b *history) note(r repository.JobResult) {
	b.dealt(r.Job, r.Slot)
	b.mu.Lock()
	defer b.mu.Unlock()
	j := b.known[r.Job]
	newest := &j.failure
	switch {
	case r.Skipped:
		return
	case r.OK:
		newest = &j.success
	}
	if b.newer(r.Slot, *newest) {
		*newest = &r
	}
}

// dealt says that a result needs no more reading.
func (b *history) dealt(job, slot string) {
	at, _, err := repository.ParseSlot(slot)
	if err != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	j := b.known[job]
	if j == nil {
		j = &jobHistory{seen: map[string]bool{}}
		b.known[job] = j
	}
	j.seen[slot] = true
	if !b.ahead(slot) && (at.After(j.newest) || b.ahead(repository.SlotName(j.newest))) {
		j.newest = at
	}
	// Below the floor nothing is asked for; keep a little more than that.
	floor := repository.SlotName(j.newest.Add(-late - time.Hour))
	for s := range j.seen {
		if s < floor {
			delete(j.seen, s)
		}
	}
}
