package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/requorum/requorum/schedule/api"
	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/schedule/status"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify"
)

// The names of the jobs, as they stand in the configuration and in the repository.
const (
	jobFull       = "full"
	jobSynthetic  = "synthetic"
	jobChecksum   = "checksum"
	jobStructure  = "structure"
	jobReplay     = "replay"
	jobDrill      = "drill"
	jobPrune      = "prune"
	jobMerge      = "merge"
	jobDivergence = "divergence"
)

// entries are all jobs as the configuration has them.
func (t *term) entries() []job.Entry {
	work := map[string]func(context.Context, *job.Task) (job.Result, error){
		jobFull:       t.full,
		jobSynthetic:  t.synthetic,
		jobChecksum:   t.checksum,
		jobStructure:  t.structure,
		jobReplay:     t.replay,
		jobDrill:      t.drill,
		jobPrune:      t.prune,
		jobMerge:      t.merge,
		jobDivergence: t.divergence,
	}
	var all []job.Entry
	for _, j := range t.cfg.Jobs.All() {
		e := job.Entry{
			Spec: job.Spec{Name: j.Name, Schedule: j.Timing.Schedule, Zone: t.cfg.Zone(), Jitter: j.Timing.Jitter.Std()},
			Do:   t.bounded(j.Timing.Timeout.Std(), work[j.Name]),
		}
		if !j.Timing.Enabled {
			e.Off = fmt.Sprintf("jobs.%s.enabled is false in this agent's configuration", j.Name)
		}
		if j.Name == jobFull {
			e.Hold = t.hold
		}
		all = append(all, e)
	}
	return all
}

// bounded ends a run that takes too long, and has the repository looked at for
// what it left.
func (t *term) bounded(limit time.Duration, work func(context.Context, *job.Task) (job.Result, error)) func(context.Context, *job.Task) (job.Result, error) {
	return func(ctx context.Context, task *job.Task) (job.Result, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took longer than %s (jobs.%s.timeout)", limit, task.Job))
		defer cancel()
		defer t.lookSoon()
		result, err := work(ctx, task)
		if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return result, err
	}
}

// doJobs runs the jobs until ctx ends.
func (t *term) doJobs(ctx context.Context) {
	if err := t.newRunner(); err != nil {
		t.mu.Lock()
		t.failures["jobs"] = err
		t.mu.Unlock()
		t.Logger.Error("no jobs run here", "err", err)
		return
	}
	if err := t.runner.Run(ctx); err != nil && ctx.Err() == nil {
		t.Logger.Error("jobs ended", "err", err)
	}
}

func (t *term) newRunner() error {
	_, repo, _ := t.opened()
	board, err := job.NewBoard(repo, t.cfg.Name, job.BoardOptions{Exclusive: t.exclusive, Writer: t.cfg.Repository.Writer})
	if err != nil {
		return err
	}
	runner, err := job.NewRunner(board, t.entries(), t.Logger)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.board, t.runner = board, runner
	return nil
}

// demand is as Agent.Demand.
func (t *term) demand(ctx context.Context, name string, args json.RawMessage) (string, error) {
	t.mu.Lock()
	runner, waiting, ended, failed := t.runner, t.waiting, t.ended, t.failures["jobs"]
	t.mu.Unlock()
	off, known := t.off(name)
	switch {
	case !known:
		return "", fmt.Errorf("%w as %q: there are %s", api.ErrUnknownJob, name, strings.Join(t.names(), ", "))
	case off != "":
		return "", fmt.Errorf("%w: %s", api.ErrRefused, off)
	case waiting != "":
		return "", fmt.Errorf("%w: %s", api.ErrRefused, waiting)
	case ended:
		return "", fmt.Errorf("%w: the agent ends, or takes up another configuration: ask again in a moment", api.ErrRefused)
	case failed != nil:
		return "", fmt.Errorf("%w: no jobs run here: %w", api.ErrRefused, failed)
	case runner == nil:
		return "", fmt.Errorf("%w: the repository was not reached yet", api.ErrRefused)
	}
	if _, err := parseArguments(name, args); err != nil {
		return "", err
	}
	if len(args) == 0 {
		args = nil
	}
	slot, err := runner.Demand(ctx, name, args)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", api.ErrRefused, err)
	}
	return slot, err
}

// known refuses to verify a backup that is not there: a run that fails for such a
// reason would be taken for a bad sign.
func (t *term) known(name string, args json.RawMessage) error {
	a, err := parseArguments(name, args)
	if err != nil || a.Backup == "" || a.Backup == verify.Latest || a.Backup == verify.All {
		return err
	}
	t.mu.Lock()
	r := t.seen.repository
	t.mu.Unlock()
	if r.Listed.IsZero() || slices.ContainsFunc(r.Backups, func(b status.Backup) bool { return strings.HasPrefix(b.ID, a.Backup) }) {
		return nil
	}
	t.lookSoon() // another agent may just have taken it
	return fmt.Errorf("%w for %s: there was no backup %q when the repository was listed at %s; it is listed again now", api.ErrArguments, name, a.Backup, r.Listed.UTC().Format(time.RFC3339))
}

// find is a run of a job, however it stands; nil where none of that slot is known.
func (t *term) find(ctx context.Context, name, slot string) (*status.Run, error) {
	t.mu.Lock()
	runner, ended := t.runner, t.ended
	t.mu.Unlock()
	if ended {
		return nil, fmt.Errorf("%w: the agent ends, or takes up another configuration: ask again in a moment", api.ErrRefused)
	}
	if _, known := t.off(name); runner == nil || !known {
		return nil, nil
	}
	if _, _, err := repository.ParseSlot(slot); err != nil {
		return nil, nil //nolint:nilerr // there is no run of such a slot
	}
	run, found, err := runner.Find(ctx, name, slot)
	if err != nil || !found {
		return nil, err
	}
	return &run, nil
}

// off tells why a job does not run here; known is false where there is none of
// that name.
func (t *term) off(name string) (why string, known bool) {
	for _, j := range t.cfg.Jobs.All() {
		if j.Name != name {
			continue
		}
		if !j.Timing.Enabled {
			return fmt.Sprintf("jobs.%s.enabled is false in this agent's configuration", name), true
		}
		return "", true
	}
	return "", false
}

func (t *term) names() []string {
	var all []string
	for _, j := range t.cfg.Jobs.All() {
		all = append(all, j.Name)
	}
	return all
}

// arguments are what a job can be asked with.
type arguments struct {
	// Timeline is where a full snapshot belongs.
	Timeline repository.TimelineID `json:"timeline,omitzero"`
	// Backup is the one to verify: an ID, latest or all.
	Backup string `json:"backup,omitempty"`
	// Reason is kept with a full snapshot, as a label.
	Reason string `json:"reason,omitempty"`
}

// parseArguments refuses what a job does not know.
func parseArguments(name string, args json.RawMessage) (arguments, error) {
	var a arguments
	if len(args) == 0 {
		return a, nil
	}
	decoder := json.NewDecoder(strings.NewReader(string(args)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&a); err != nil {
		return a, fmt.Errorf("%w for %s: %w", api.ErrArguments, name, err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return a, fmt.Errorf("%w for %s: something follows the JSON object", api.ErrArguments, name)
	}
	verifies := name == jobChecksum || name == jobStructure || name == jobReplay || name == jobDrill
	switch {
	case a.Backup != "" && !verifies:
		return a, fmt.Errorf("%w: backup is for checksum, structure, replay and drill, not for %s", api.ErrArguments, name)
	case a.Timeline != (repository.TimelineID{}) && name != jobFull:
		return a, fmt.Errorf("%w: timeline is for %s, not for %s", api.ErrArguments, jobFull, name)
	case a.Reason != "" && name != jobFull:
		return a, fmt.Errorf("%w: reason is for %s, not for %s", api.ErrArguments, jobFull, name)
	}
	return a, nil
}
