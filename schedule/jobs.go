package schedule

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/schedule/retention"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay/archive"
	"github.com/requorum/requorum/walreplay/segment"
)

// The names of the jobs, as they stand in the configuration and in the repository.
const (
	jobFull       = "full"
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
	due := map[string]func(time.Time) *job.Occasion{jobFull: t.fullDue, jobStructure: t.structureDue}
	var all []job.Entry
	for _, j := range t.cfg.Jobs.All() {
		e := job.Entry{
			Spec: job.Spec{Name: j.Name, Schedule: j.Timing.Schedule, Zone: t.cfg.Zone(), Jitter: j.Timing.Jitter.Std()},
			Here: j.Timing.Run == config.RunHere, Timeout: j.Timing.Timeout.Std(), Due: due[j.Name],
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

func (t *session) newRunner() (*job.Runner, error) {
	return job.NewRunner(job.Options{
		Agent: t.cfg.Name, Prefer: t.writes, About: t.about, Logger: t.Logger,
	}, t.entries())
}

// writes reports whether no other agent is known to write the archive: the one that does
// should run the jobs as well, unless it does not reach the cluster.
func (t *session) writes() bool {
	if t.cfg.HasCluster() && !t.seesVoter() {
		return false
	}
	_, _, archiver := t.opened()
	return archiver == nil || archiver.State().Role != archive.Follower
}

// arguments are what a run has besides its slot.
type arguments struct {
	// Timeline is the one of the full snapshot.
	Timeline repository.TimelineID
	// Reason is kept with a full snapshot, as a label.
	Reason string
	// Backup is the ID of the full snapshot to verify.
	Backup string
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
		for _, d := range r.Damaged {
			t.Logger.Warn("merging skipped a damaged segment", "timeline", id.String(), "err", d)
		}
		if err != nil {
			if ctx.Err() != nil {
				return job.Result{}, err
			}
			// What is wrong with an old one keeps nobody from merging the one that goes on.
			errs = append(errs, fmt.Errorf("timeline %s: %w", id, err))
			continue
		}
		if r.Denied != nil {
			return job.Result{Final: true}, fmt.Errorf("merged segments cannot replace the small ones, so the repository grows: %w; allow deleting below <timeline>/l0 and <timeline>/marks, see docs/s3.md", r.Denied)
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
	c, err := job.Compare(ctx, client)
	detail, _ := json.Marshal(c) // it has no value that JSON lacks
	// That they differ is a problem of its own, not a failure of the comparison.
	return job.Result{Text: c.Text, Detail: detail}, err
}
