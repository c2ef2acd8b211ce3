package schedule

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/schedule/retention"
	"github.com/requorum/requorum/schedule/web"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/archive"
	"github.com/requorum/requorum/walreplay/segment"
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

// work is what each job does, by its name.
func (t *session) work() map[string]func(context.Context, *job.Task) (job.Result, error) {
	return map[string]func(context.Context, *job.Task) (job.Result, error){
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
}

// entries are all jobs as the configuration has them.
func (t *session) entries() []job.Entry {
	work := t.work()
	var all []job.Entry
	for _, j := range t.cfg.Jobs.All() {
		e := job.Entry{
			Spec: job.Spec{Name: j.Name, Schedule: j.Timing.Schedule, Zone: t.cfg.Zone(), Jitter: j.Timing.Jitter.Std()},
			Here: j.Timing.Run == config.RunHere, Timeout: j.Timing.Timeout.Std(),
			Do: func(ctx context.Context, task *job.Task) (job.Result, error) {
				defer t.lookSoon()
				return work[j.Name](ctx, task)
			},
		}
		if !j.Timing.Runs() {
			e.Off = fmt.Sprintf("jobs.%s.run is off in this agent's configuration", j.Name)
		}
		all = append(all, e)
	}
	return all
}

// doJobs runs the jobs until ctx ends.
func (t *session) doJobs(ctx context.Context) {
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

func (t *session) newRunner() error {
	_, repo, _ := t.opened()
	runner, err := job.NewRunner(repo, job.Options{
		Agent: t.cfg.Name, Exclusive: t.exclusive, Writer: t.cfg.Repository.Writer, Prefer: t.writes, Logger: t.Logger,
	}, t.entries())
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.runner = runner
	return nil
}

// writes says that no other agent is known to write the archive: the one that does
// should run the jobs as well, unless it does not reach the cluster.
func (t *session) writes() bool {
	if t.cfg.HasCluster() && !t.seesVoter() {
		return false
	}
	_, _, archiver := t.opened()
	return archiver == nil || archiver.State().Role != archive.Follower
}

// trigger is as Agent.Trigger, of a slot that may be given; nil is without arguments.
func (t *session) trigger(ctx context.Context, name, slot string, args *arguments) (string, error) {
	t.mu.Lock()
	runner, waiting, ended, failed := t.runner, t.waiting, t.ended, t.failures["jobs"]
	t.mu.Unlock()
	off, known := t.off(name)
	switch {
	case !known:
		return "", fmt.Errorf("%w as %q: there are %s", web.ErrUnknownJob, name, strings.Join(t.names(), ", "))
	case off != "":
		return "", fmt.Errorf("%w: %s", web.ErrRefused, off)
	case waiting != "":
		return "", fmt.Errorf("%w: %s", web.ErrRefused, waiting)
	case ended:
		return "", fmt.Errorf("%w: the agent ends, or takes up another configuration: ask again in a moment", web.ErrRefused)
	case failed != nil:
		return "", fmt.Errorf("%w: no jobs run here: %w", web.ErrRefused, failed)
	case runner == nil:
		return "", fmt.Errorf("%w: the repository was not reached yet", web.ErrRefused)
	}
	var raw json.RawMessage
	if args != nil {
		var err error
		if raw, err = json.Marshal(args); err != nil {
			return "", err
		}
	}
	slot, err := runner.Trigger(ctx, name, slot, raw)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", web.ErrRefused, err)
	}
	return slot, err
}

// known refuses to verify a backup that is not there: a run that fails for such a
// reason would be taken for a bad sign.
func (t *session) known(name string, a arguments) error {
	if a.Backup == "" || a.Backup == verify.Latest || a.Backup == verify.All {
		return nil
	}
	t.mu.Lock()
	r := t.seen.repository
	t.mu.Unlock()
	if r.Listed.IsZero() || slices.ContainsFunc(r.Backups, func(b web.Backup) bool { return strings.HasPrefix(b.ID, a.Backup) }) {
		return nil
	}
	t.lookSoon() // another agent may just have taken it
	return fmt.Errorf("%w for %s: there was no backup %q when the repository was listed at %s; it is listed again now", web.ErrArguments, name, a.Backup, r.Listed.UTC().Format(time.RFC3339))
}

// find is a run of a job, however it stands; nil where none of that slot is known.
func (t *session) find(ctx context.Context, name, slot string) (*job.Run, error) {
	t.mu.Lock()
	runner, ended := t.runner, t.ended
	t.mu.Unlock()
	if ended {
		return nil, fmt.Errorf("%w: the agent ends, or takes up another configuration: ask again in a moment", web.ErrRefused)
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

// off says why a job does not run here; known is false where there is none of
// that name.
func (t *session) off(name string) (why string, known bool) {
	entries := t.entries()
	i := slices.IndexFunc(entries, func(e job.Entry) bool { return e.Name == name })
	if i < 0 {
		return "", false
	}
	return entries[i].Off, true
}

func (t *session) names() []string {
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
		return a, fmt.Errorf("%w for %s: %w", web.ErrArguments, name, err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return a, fmt.Errorf("%w for %s: something follows the JSON object", web.ErrArguments, name)
	}
	switch {
	case a.Backup != "" && !slices.Contains(report.LevelNames(), name):
		return a, fmt.Errorf("%w: backup is for %s, not for %s", web.ErrArguments, strings.Join(report.LevelNames(), ", "), name)
	case a.Timeline != (repository.TimelineID{}) && name != jobFull:
		return a, fmt.Errorf("%w: timeline is for %s, not for %s", web.ErrArguments, jobFull, name)
	case a.Reason != "" && name != jobFull:
		return a, fmt.Errorf("%w: reason is for %s, not for %s", web.ErrArguments, jobFull, name)
	}
	return a, nil
}

// prune deletes what retention does not keep.
func (t *session) prune(ctx context.Context, _ *job.Task) (job.Result, error) {
	_, repo, _ := t.opened()
	now := time.Now()
	inventory, err := retention.Read(ctx, repo, now)
	if err != nil {
		return job.Result{}, err
	}
	plan := retention.NewPlan(inventory, t.cfg.Policy(), now)
	if plan.Refused != "" {
		return job.Result{}, fmt.Errorf("nothing was pruned: %s", plan.Refused)
	}
	done, err := retention.Execute(ctx, repo, plan, retention.Options{Logger: t.Logger})
	if err != nil {
		return job.Result{}, err
	}
	return job.Result{Text: pruned(done)}, nil
}

func pruned(r retention.Result) string {
	if r.Backups+r.Objects+r.Segments+r.Swept == 0 {
		return "nothing was to go"
	}
	text := fmt.Sprintf("backups pruned: %d; deleted: %d objects of backups, %d segments of the log, %d objects that nobody needs any more, which frees %s", r.Backups, r.Objects, r.Segments, r.Swept, humanize.IBytes(uint64(r.BytesGone)))
	if r.Locked > 0 {
		text += fmt.Sprintf("; locked, and to go later: %d", r.Locked)
	}
	return text
}

// merge makes large log segments of small ones, in every timeline.
func (t *session) merge(ctx context.Context, _ *job.Task) (job.Result, error) {
	_, repo, _ := t.opened()
	timelines, err := repo.TimelineIDs(ctx)
	if err != nil {
		return job.Result{}, err
	}
	var all segment.MergeReport
	var errs []error
	merged := 0
	for _, id := range timelines {
		m := t.mergers[id]
		if m == nil {
			m = segment.NewMerger(segment.MergeConfig{
				Repo: repo, Timeline: id, Identities: t.identities, Codec: t.codec, Tool: t.Tool, Logger: t.Logger,
			})
			t.mergers[id] = m
		}
		r, err := m.Merge(ctx)
		merged += len(r.Merged)
		all.Sources, all.Removed, all.Marks = all.Sources+r.Sources, all.Removed+r.Removed, all.Marks+r.Marks
		if err != nil {
			if ctx.Err() != nil {
				return job.Result{}, err
			}
			// What is wrong with an old one keeps nobody from merging the one that goes on.
			errs = append(errs, fmt.Errorf("timeline %s: %w", id, err))
			continue
		}
		if r.Denied != nil {
			return job.Result{}, job.Final(fmt.Errorf("merged segments cannot replace the small ones, so the repository grows: %w; allow deleting below <timeline>/l0 and <timeline>/marks, see docs/s3.md", r.Denied))
		}
	}
	if len(errs) > 0 {
		return job.Result{}, together(errs)
	}
	if merged == 0 && all.Removed+all.Marks == 0 {
		return job.Result{Text: "nothing was to be merged"}, nil
	}
	return job.Result{Text: fmt.Sprintf("%d segments became %d; %d superseded ones and %d repeated marks are gone", all.Sources, merged, all.Removed, all.Marks)}, nil
}

// divergence compares the members' histories.
func (t *session) divergence(ctx context.Context, _ *job.Task) (job.Result, error) {
	client, _, _ := t.opened()
	if client == nil {
		return job.Result{}, errNoMember
	}
	r, err := job.Compare(ctx, client, t.Logger)
	if err != nil {
		return job.Result{}, err
	}
	detail, err := json.Marshal(r)
	if err != nil {
		return job.Result{}, err
	}
	// That they differ is a problem of its own, and no failure of the comparison.
	return job.Result{Text: r.Text(), Detail: detail}, nil
}
