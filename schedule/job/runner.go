package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/requorum/requorum/schedule/status"
	"github.com/requorum/requorum/sinks/repository"
)

const (
	// HistoryEvery is how often results are listed that other agents wrote.
	HistoryEvery = 10 * time.Minute
	// Grace is how long a run that was stopped may take to write that down.
	Grace = 5 * time.Second
	// demandsWaiting is how many runs of one job may wait to be begun.
	demandsWaiting = 8
)

// Entry is a job as it is to be run here.
type Entry struct {
	Spec
	// Off says why the job does not run here, in words; empty where it does. Its
	// history is shown all the same.
	Off string
	// Do does the job once. It ends soon after ctx; its error is why it failed.
	// With an error, what the Result says of a backup, bytes and a verdict counts
	// all the same.
	Do func(ctx context.Context, t *Task) (Result, error)
	// Hold, where it is there, is asked once a slot how long others may go first,
	// and why. It does not block.
	Hold func() (wait time.Duration, why string)
}

// Runner runs the jobs of one agent: one goroutine for each.
type Runner struct {
	board *Board
	log   *slog.Logger

	mu      sync.Mutex
	loops   map[string]*loop
	order   []string // of the entries, for Status
	ctx     context.Context
	running sync.WaitGroup
	read    chan struct{} // closed once the history was read, or could not be
}

// NewRunner makes a Runner for entries. A nil logger logs nothing.
func NewRunner(board *Board, entries []Entry, logger *slog.Logger) (*Runner, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	r := &Runner{board: board, log: logger, loops: map[string]*loop{}, read: make(chan struct{})}
	return r, r.Reload(entries)
}

// Run runs the jobs until ctx ends. What is under way then is stopped, recorded
// as such within Grace, so that another agent goes on at once, and has ended when
// Run returns. It may be called once.
func (r *Runner) Run(ctx context.Context) error {
	r.mu.Lock()
	if r.ctx != nil {
		r.mu.Unlock()
		return errors.New("the jobs are running already")
	}
	r.ctx = ctx
	for _, l := range r.loops {
		r.start(l)
	}
	r.mu.Unlock()
	r.running.Go(func() { r.keepDemands(ctx) })
	r.keepHistory(ctx)
	r.running.Wait()
	return nil
}

func (r *Runner) start(l *loop) {
	if r.ctx != nil {
		r.running.Go(func() { l.run(r.ctx) })
	}
}

// keepHistory reads what others did, until ctx ends.
func (r *Runner) keepHistory(ctx context.Context) {
	said := ""
	for first := true; ; first = false {
		text := ""
		if _, err := r.board.History(ctx); err != nil && ctx.Err() == nil {
			text = err.Error()
		}
		if text != "" && text != said {
			r.log.Warn("results of jobs cannot be read", "error", text)
		}
		said = text
		if first {
			close(r.read)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(HistoryEvery):
		}
	}
}

// Reload replaces the entries, all or none. Runs under way go on as they were
// begun. A schedule that changed starts with its next slot; a job that is new here
// makes up its newest one, where nobody has.
func (r *Runner) Reload(entries []Entry) error {
	tables := map[string]*Timetable{}
	var order []string
	var errs []error
	for _, e := range entries {
		table, err := e.Timetable(r.board.repo.ID())
		switch {
		case err != nil:
			errs = append(errs, err)
		case tables[e.Name] != nil:
			errs = append(errs, fmt.Errorf("job %s is there twice", e.Name))
		case e.Do == nil && e.Off == "":
			errs = append(errs, fmt.Errorf("job %s has nothing to do, and nothing says why", e.Name))
		}
		tables[e.Name] = table
		order = append(order, e.Name)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.order = order
	for name, l := range r.loops {
		if tables[name] == nil {
			l.set(nil, nil)
		}
	}
	for _, e := range entries {
		l := r.loops[e.Name]
		if l == nil {
			l = &loop{runner: r, board: r.board, log: r.log.With("job", e.Name), name: e.Name, poke: make(chan struct{}, 1)}
			l.set(&e, tables[e.Name])
			r.loops[e.Name] = l
			r.start(l)
			continue
		}
		l.set(&e, tables[e.Name])
	}
	return nil
}

// Demand asks for a run as soon as no other of that job is under way here. It
// returns the run's slot. Arg is given to it as it is; nil for none. A demand lives
// in this process only, and has one attempt.
func (r *Runner) Demand(ctx context.Context, job string, arg json.RawMessage) (slot string, err error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if arg != nil && !json.Valid(arg) {
		return "", fmt.Errorf("job %s: the argument is not JSON", job)
	}
	if why := r.board.Waiting(); why != "" {
		return "", fmt.Errorf("job %s cannot be run here: %s", job, why)
	}
	r.mu.Lock()
	l, names := r.loops[job], slices.Clone(r.order)
	r.mu.Unlock()
	if l == nil {
		return "", fmt.Errorf("there is no job %q: there are %s", job, strings.Join(names, ", "))
	}
	return l.demand(arg)
}

// Find tells how a run stands or ended: under way here, waiting here (without a
// start), from the repository, or, where it was asked for, under way with another
// agent (without a start, too); false where nothing is known of it.
func (r *Runner) Find(ctx context.Context, job, slot string) (status.Run, bool, error) {
	if err := repository.ValidJob(job); err != nil {
		return status.Run{}, false, err
	}
	if _, _, err := repository.ParseSlot(slot); err != nil {
		return status.Run{}, false, err
	}
	r.mu.Lock()
	l := r.loops[job]
	r.mu.Unlock()
	if l != nil {
		if run, ok := l.find(slot); ok {
			return run, true, nil
		}
	}
	run, there, err := r.board.Find(ctx, job, slot)
	if _, demand, _ := repository.ParseSlot(slot); !there && err == nil && demand {
		return r.board.underWay(ctx, job, slot)
	}
	return run, there, err
}

// Status is the jobs as they stand, in the order of the entries. It asks nobody.
func (r *Runner) Status() []status.Job {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.board.Known()
	all := make([]status.Job, 0, len(r.order))
	for _, name := range r.order {
		if job, ok := r.loops[name].status(); ok {
			h := known[name]
			job.Last, job.LastSuccess, job.LastFailure = h.Last, h.LastSuccess, h.LastFailure
			all = append(all, job)
		}
	}
	return all
}
