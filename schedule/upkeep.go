package schedule

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/requorum/requorum/schedule/divergence"
	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/schedule/retention"
	"github.com/requorum/requorum/walreplay/merge"
)

// policy is what retention keeps.
func (t *term) policy() retention.Policy {
	r := t.cfg.Retention
	return retention.Policy{
		AnyPoint: r.AnyPoint.Std(), Last: r.Last, Hourly: r.Hourly, Daily: r.Daily, Weekly: r.Weekly, Monthly: r.Monthly,
		Within: r.Within.Std(), Minimum: r.Minimum, Zone: t.cfg.Zone(), Grace: r.Grace.Std(),
	}
}

// prune lets go what retention does not keep.
func (t *term) prune(ctx context.Context, _ *job.Task) (job.Result, error) {
	_, repo, _ := t.opened()
	now := time.Now()
	inventory, err := retention.Read(ctx, repo, now, t.trusted...)
	if err != nil {
		return job.Result{}, err
	}
	plan := retention.NewPlan(inventory, t.policy(), now)
	if plan.Refused != "" {
		return job.Result{}, fmt.Errorf("nothing was pruned: %s", plan.Refused)
	}
	done, err := retention.Execute(ctx, repo, plan, retention.Options{Trusted: t.trusted, Logger: t.Logger})
	if err != nil {
		return job.Result{}, err
	}
	t.mu.Lock()
	board := t.board
	t.mu.Unlock()
	if err := board.Sweep(ctx, keepResults); err != nil {
		return job.Result{}, err
	}
	return job.Result{Text: pruned(done)}, nil
}

// keepResults is how long results of jobs are kept.
const keepResults = 35 * 24 * time.Hour

func pruned(r retention.Result) string {
	if r.Backups+r.Objects+r.Segments+r.Swept == 0 {
		return "nothing was to go"
	}
	text := fmt.Sprintf("backups let go: %d; gone: %d objects of backups, %d segments of the log, %d objects that nobody needs any more, which frees %s", r.Backups, r.Objects, r.Segments, r.Swept, humanize.IBytes(uint64(r.BytesGone)))
	if r.Locked > 0 {
		text += fmt.Sprintf("; locked, and to go later: %d", r.Locked)
	}
	return text
}

// merging is the holder's name of all agents: which of them does the job is
// decided already.
const merging = "agents"

// merge makes large log segments of small ones, in every timeline.
func (t *term) merge(ctx context.Context, _ *job.Task) (job.Result, error) {
	_, repo, _ := t.opened()
	timelines, err := repo.TimelineIDs(ctx)
	if err != nil {
		return job.Result{}, err
	}
	var all merge.Report
	var errs []error
	merged := 0
	for _, id := range timelines {
		m := t.mergers[id]
		if m == nil {
			m = merge.New(merge.Config{
				Repo: repo, Timeline: id, Holder: merging, Identities: t.identities, Codec: t.codec, Tool: t.Tool, Logger: t.Logger,
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
			return job.Result{}, job.Final(fmt.Errorf("merged segments cannot replace the small ones, so the repository grows: %w; allow deleting below <timeline>/l0, <timeline>/marks and claims, see docs/s3.md", r.Denied))
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
func (t *term) divergence(ctx context.Context, _ *job.Task) (job.Result, error) {
	client, _, _ := t.opened()
	if client == nil {
		return job.Result{}, errNoMember
	}
	r, err := divergence.Compare(ctx, client, divergence.Options{Logger: t.Logger})
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
