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

// MinimumKeep is the shortest time for which results stay: within it one may
// still come for a slot that another was faster with.
const MinimumKeep = late

// Sweep deletes heartbeats of the lease that are two days old, and the claims and results of slots of which nothing was
// written for the time keep, at least MinimumKeep, by the repository's own clock.
// Of each job the newest success, the newest failure and the result of the newest
// slot of its schedule stay, whatever their age. What is locked stays for a later
// sweep; a missing right is an error, sinks.ErrDenied.
func (b *history) Sweep(ctx context.Context, keep time.Duration) error {
	if keep < MinimumKeep {
		return fmt.Errorf("results of jobs are kept for %v at least, not %v", MinimumKeep, keep)
	}
	if err := b.sweepLease(ctx); err != nil {
		return err
	}
	if err := b.History(ctx); err != nil && !errors.Is(err, repository.ErrAltered) {
		return err
	}
	claims, newestClaim, err := b.listSlots(ctx, "claims/", claimedSlot)
	if err != nil {
		return err
	}
	results, newestResult, err := b.listSlots(ctx, "jobs/", resultSlot)
	if err != nil {
		return err
	}
	now := newestClaim
	if newestResult.After(now) {
		now = newestResult
	}
	// Claims first: a holder that wakes up late finds its own gone, and has lost
	// even where the result that says so goes as well.
	for _, s := range claims {
		if now.Sub(s.newest) > keep {
			if err := b.remove(ctx, s.names); err != nil {
				return err
			}
		}
	}
	stays := b.staying(results)
	for key, s := range results {
		if now.Sub(s.newest) > keep && !stays[key] {
			if err := b.remove(ctx, s.names); err != nil {
				return err
			}
		}
	}
	return nil
}

// slotObjects are the objects of one slot.
type slotObjects struct {
	job, slot string
	names     []string
	newest    time.Time // by the repository's clock
}

// claimedSlot is the slot that a claim belongs to. The claims of others
// than agents have slots of other forms.
func claimedSlot(name string) (job, slot string, ok bool) {
	parts := strings.Split(name, "/")
	if len(parts) != 4 {
		return "", "", false
	}
	_, _, err := repository.ParseSlot(parts[2])
	return parts[1], parts[2], err == nil
}

func resultSlot(name string) (job, slot string, ok bool) {
	job, slot, _, err := repository.ParseJobName(name)
	return job, slot, err == nil
}

// listSlots lists what is under prefix by job and slot, and the time of the newest.
func (b *history) listSlots(ctx context.Context, prefix string, parse func(string) (string, string, bool)) (map[string]*slotObjects, time.Time, error) {
	all := map[string]*slotObjects{}
	var newest time.Time
	for obj, err := range b.repo.Sink().List(ctx, prefix, "") {
		if err != nil {
			return nil, newest, fmt.Errorf("list %s in %s: %w", prefix, b.repo, err)
		}
		job, slot, ok := parse(obj.Name)
		if !ok {
			continue
		}
		s := all[job+"/"+slot]
		if s == nil {
			s = &slotObjects{job: job, slot: slot}
			all[job+"/"+slot] = s
		}
		s.names = append(s.names, obj.Name)
		if obj.ModTime.After(s.newest) {
			s.newest = obj.ModTime
		}
		if obj.ModTime.After(newest) {
			newest = obj.ModTime
		}
	}
	return all, newest, nil
}

// staying are the slots whose results stay whatever their age, by job and slot.
func (b *history) staying(results map[string]*slotObjects) map[string]bool {
	stays := map[string]bool{}
	for job, h := range b.Known() {
		if h.LastSuccess != nil {
			stays[job+"/"+h.LastSuccess.Slot] = true
		}
		if h.LastFailure != nil {
			stays[job+"/"+h.LastFailure.Slot] = true
		}
	}
	newest := map[string]string{} // or it would be made up as a missed one
	for _, s := range results {
		if _, triggered, err := repository.ParseSlot(s.slot); err == nil && !triggered && !b.ahead(s.slot) {
			newest[s.job] = max(newest[s.job], s.slot)
		}
	}
	for job, slot := range newest {
		stays[job+"/"+slot] = true
	}
	return stays
}

func (b *history) remove(ctx context.Context, names []string) error {
	for _, name := range names {
		err := b.repo.Sink().Delete(ctx, name)
		if err != nil && !errors.Is(err, sinks.ErrLocked) {
			return fmt.Errorf("remove what is left of an old slot: %w", err)
		}
	}
	return nil
}

// leaseKept is how long heartbeats of the lease stay: longer than any process that
// knows an old one may have been asleep.
const leaseKept = 48 * time.Hour

func (b *history) sweepLease(ctx context.Context) error {
	var old []sinks.Object
	for obj, err := range b.repo.Sink().List(ctx, "runner/", "") {
		if err != nil {
			return fmt.Errorf("list the heartbeats of the lease in %s: %w", b.repo, err)
		}
		if _, err := repository.ParseLeaseName(obj.Name); err == nil {
			old = append(old, obj)
		}
	}
	var names []string
	for i, obj := range old {
		if i < len(old)-1 && old[len(old)-1].ModTime.Sub(obj.ModTime) > leaseKept {
			names = append(names, obj.Name)
		}
	}
	return b.remove(ctx, names)
}
