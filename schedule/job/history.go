package job

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
)

// history is how the newest runs of each job ended, by any agent, as far as it was read. It
// may be used concurrently.
type history struct {
	repo           *repository.Repository
	agent, process string
	now            func() time.Time // the wall clock
	started        time.Time        // by that

	mu    sync.Mutex
	known map[string]*jobHistory
	twin  time.Time // when a run by another process of this agent's name was seen
}

// newProcess distinguishes this start of an agent from others.
func newProcess() string {
	var random [6]byte
	rand.Read(random[:]) // never fails, by its documentation
	return hex.EncodeToString(random[:])
}

// noteProcess finds out that another agent has this one's name: it runs a job for a slot that
// came due after this process began.
func (h *history) noteProcess(r repository.JobRecord) {
	at, _, err := repository.ParseSlot(r.Slot)
	if err == nil && r.Holder == h.agent && r.Process != h.process && at.After(h.started) && !h.ahead(r.Slot) {
		h.mu.Lock()
		h.twin = time.Now()
		h.mu.Unlock()
	}
}

// DuplicateName reports whether another agent ran jobs under this one's name, as far as that
// was seen within a day.
func (h *history) DuplicateName() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.twin.IsZero() && time.Since(h.twin) < noticed
}

type jobHistory struct {
	success, failure *Run
	damaged          map[repository.JobName]bool // records that cannot be read, each reported once
}

const (
	// late is how long after a newer slot's an older one's result may come.
	late = 48 * time.Hour
	// page is how many names one request lists, at the usual places.
	page = 1000
)

// read reads the results that came since it was last called: one listing, as a rule, and
// those that are newer than the known ones: names show how a run ended. With an error, what
// was known before stays.
func (h *history) read(ctx context.Context) error {
	all, err := h.list(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, n := range slices.Backward(all) { // of each job the newest first
		if !h.wanted(n) {
			continue
		}
		if err := h.readOne(ctx, n); err != nil {
			errs = append(errs, err)
			if !errors.Is(err, repository.ErrAltered) {
				break
			}
		}
	}
	return errors.Join(errs...)
}

// list lists the results that may be new, by job and slot. It skips old ones: if they are
// more than a page, by listing again behind them.
func (h *history) list(ctx context.Context) (all []repository.JobName, err error) {
	floor := "" // of the job whose names are coming
	passed := 0
	for after, again := "", true; again; {
		again = false
		for obj, err := range h.repo.Sink().List(ctx, "jobs/", after) {
			if err != nil {
				return nil, fmt.Errorf("list the results of jobs in %s: %w", h.repo, err)
			}
			if folder := obj.Name[:strings.LastIndexByte(obj.Name, '/')+1]; !strings.HasPrefix(floor, folder) {
				floor, passed = h.floor(folder), 0
			}
			if obj.Name < floor {
				if passed++; passed > page {
					after, again = floor, true
					break
				}
				continue
			}
			if n, err := repository.ParseJobName(obj.Name); err == nil && n.Final() {
				all = append(all, n)
			}
		}
	}
	return all, nil
}

// floor is the name in a job's folder that no unknown result is before.
func (h *history) floor(folder string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	j := h.of(strings.TrimSuffix(strings.TrimPrefix(folder, "jobs/"), "/"))
	newest := time.Time{}
	for _, r := range []*Run{j.success, j.failure} {
		if r != nil && !h.ahead(r.Slot) {
			at, _, _ := repository.ParseSlot(r.Slot)
			newest = later(newest, at)
		}
	}
	if newest.IsZero() {
		return folder
	}
	return folder + repository.SlotName(newest.Add(-late))
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// of is what is known of a job. The caller has the lock.
func (h *history) of(job string) *jobHistory {
	j := h.known[job]
	if j == nil {
		j = &jobHistory{damaged: map[repository.JobName]bool{}}
		h.known[job] = j
	}
	return j
}

// newest returns the newest success and the newest failure of a job; nil for none.
func (h *history) newest(job string) (success, failure *Run) {
	h.mu.Lock()
	defer h.mu.Unlock()
	j := h.of(job)
	return j.success, j.failure
}

// isDoneSince reports whether a run of a job answered a slot of its schedule: it was for this
// slot or a newer one, or for an older one and was under way when this one came due.
func (h *history) isDoneSince(job string, slot time.Time) bool {
	success, failure := h.newest(job)
	return slices.ContainsFunc([]*Run{success, failure}, func(r *Run) bool {
		if r == nil || h.ahead(r.Slot) {
			return false
		}
		at, occasion, err := repository.ParseSlot(r.Slot)
		return err == nil && (!at.Before(slot) || !occasion && !r.Finished.Before(slot) && r.Finished.Before(h.now().Add(time.Hour)))
	})
}

// ahead reports whether a slot is in the future: the clock of the agent that ran it was wrong.
func (h *history) ahead(slot string) bool {
	return slot > repository.SlotName(h.now().Add(time.Hour))
}

// wanted reports whether a result is newer than the known one.
func (h *history) wanted(n repository.JobName) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	j := h.of(n.Job)
	return !j.damaged[n] && h.newer(n.Slot, *j.kind(n.Kind == repository.JobDone))
}

func (j *jobHistory) kind(success bool) **Run {
	if success {
		return &j.success
	}
	return &j.failure
}

func (h *history) newer(slot string, known *Run) bool {
	return !h.ahead(slot) && (known == nil || known.Slot < slot || h.ahead(known.Slot))
}

// readOne reads one result. An unsigned one does not count; one that cannot be read is an
// error once.
func (h *history) readOne(ctx context.Context, n repository.JobName) error {
	record, err := h.repo.ReadJob(ctx, n)
	switch {
	case errors.Is(err, sinks.ErrNotFound):
		return nil // deleted since
	case errors.Is(err, repository.ErrAltered):
		h.mu.Lock()
		h.of(n.Job).damaged[n] = true
		h.mu.Unlock()
		if !h.repo.Doubtful(err) {
			return nil
		}
		return err
	case err != nil:
		return err
	}
	h.noteProcess(record)
	h.note(record)
	return nil
}

// note takes a result into the history.
func (h *history) note(r repository.JobRecord) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if known := h.of(r.Job).kind(r.OK); h.newer(r.Slot, *known) {
		*known = &Run{
			Slot: r.Slot, Agent: r.Holder, Attempt: r.Attempt, Started: r.Started, Finished: r.Finished,
			OK: r.OK, Text: r.Text, Backup: r.Backup, Bytes: r.Bytes, Damaged: r.Damaged, Detail: r.Detail, About: r.Agent,
		}
	}
}
