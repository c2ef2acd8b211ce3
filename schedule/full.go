package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/requorum/requorum/schedule/companions"
	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/schedule/status"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/archive"
)

// fitWait is how long a full snapshot waits for a member that has nothing better
// to do.
const fitWait = time.Minute

// clientWait is how long a full snapshot that is asked for at the start waits for the
// cluster to be reached.
const clientWait = 30 * time.Second

var errNoMember = errors.New("no member of the cluster was reached yet")

// full takes a full snapshot.
func (t *term) full(ctx context.Context, task *job.Task) (job.Result, error) {
	args, err := parseArguments(task.Job, task.Arg)
	if err != nil {
		return job.Result{}, job.Final(err)
	}
	client, repo, archiver := t.opened()
	for wait := time.Now().Add(clientWait); client == nil && time.Now().Before(wait); client, _, _ = t.opened() {
		select {
		case <-ctx.Done():
			return job.Result{}, context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
	if client == nil {
		return job.Result{}, errNoMember
	}
	attached, err := t.attachments()
	if err != nil {
		return job.Result{}, err
	}
	labels := map[string]string{"agent": t.cfg.Name, "slot": task.Slot}
	if args.Reason != "" {
		labels["reason"] = args.Reason
	}
	c := t.cfg.Jobs.Full
	result, err := snapshot.Take(ctx, snapshot.Request{
		Client: client, Sinks: []sinks.Sink{t.sink}, Codec: t.codec, Tool: t.Tool, Labels: labels,
		ID: task.BackupID(), Attempt: task.Attempt, Timeline: args.Timeline, Companions: attached,
		HashKV: c.HashKV, ReadBack: c.ReadBack, Timeout: c.Timeout.Std(), Reached: archive.Reached, Fit: fitWait, Logger: t.Logger,
		Progress: func(p snapshot.Progress) { task.Progress(p.Phase, p.Done, p.Total) },
	})
	if errors.Is(err, snapshot.ErrTaken) {
		return t.taken(ctx, repo, task, err)
	}
	if err != nil {
		return job.Result{}, err
	}
	if archiver != nil {
		archiver.LookAgain()
	}
	m := result.Outcomes[0].Manifest
	if t.cfg.Jobs.Structure.Enabled && t.cfg.Jobs.Structure.AfterFull {
		arg, err := json.Marshal(arguments{Backup: m.ID})
		if err == nil {
			_, err = t.demand(ctx, jobStructure, arg)
		}
		if err != nil {
			t.Logger.Warn("the new full snapshot is not verified at once", "backup", m.ID, "err", err)
		}
	}
	return job.Result{
		Backup: m.ID, Bytes: m.Object.StoredSize,
		Text: fmt.Sprintf("backup %s of revision %d from %s: %s stored as %s", m.ID, m.Facts.Revision, memberOf(m),
			humanize.IBytes(uint64(m.Object.RawSize)), humanize.IBytes(uint64(m.Object.StoredSize))),
	}, nil
}

// taken is the result of a run whose backup is there already: an attempt before
// this one made it, and died before it could say so. Where that attempt lives, it
// has the slot, and Task.Finish finds out.
func (t *term) taken(ctx context.Context, repo *repository.Repository, task *job.Task, cause error) (job.Result, error) {
	timelines, err := repo.TimelineIDs(ctx)
	if err != nil {
		return job.Result{}, err
	}
	for _, id := range timelines {
		m, err := snapshot.ReadManifest(ctx, repo, id, task.BackupID())
		if errors.Is(err, sinks.ErrNotFound) {
			continue
		}
		if err != nil {
			return job.Result{}, err
		}
		return job.Result{Backup: m.ID, Bytes: m.Object.StoredSize, Text: fmt.Sprintf("backup %s of revision %d, which an earlier attempt had made", m.ID, m.Facts.Revision)}, nil
	}
	return job.Result{}, cause
}

func memberOf(m *snapshot.Manifest) string {
	if m.Source.Name != "" {
		return m.Source.Name
	}
	return m.Source.Endpoint
}

// attachments are the files that are stored with a full snapshot.
func (t *term) attachments() ([]snapshot.CompanionSource, error) {
	var specs []companions.Spec
	for _, c := range t.cfg.Companions {
		specs = append(specs, companions.Spec{Name: c.Name, Path: c.Path})
	}
	return companions.Sources(specs)
}

// takeDue takes a full snapshot that the archive needs, and waits for it.
func (t *term) takeDue(ctx context.Context, timeline repository.TimelineID) error {
	arg, err := json.Marshal(arguments{Timeline: timeline, Reason: "the archived log needs it"})
	if err != nil {
		return err
	}
	slot, err := t.demand(ctx, jobFull, arg)
	if err != nil {
		return err
	}
	return t.await(ctx, jobFull, slot)
}

// awaitMore is how long a run that was asked for may wait behind another one, and
// to be written down, beside the time that it may take itself.
const awaitMore = 5 * time.Minute

// await waits for the end of a run that was asked for here.
func (t *term) await(ctx context.Context, name, slot string) error {
	limit := t.cfg.Jobs.Full.Timeout.Std() + awaitMore
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("job %s, slot %s: no result after %s", name, slot, limit))
	defer cancel()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
		run, err := t.find(ctx, name, slot)
		switch {
		case err != nil: // the repository is away: that passes, or the time is up
		case run == nil: // it neither waits, nor is under way, nor has a result
			return fmt.Errorf("job %s, slot %s was given up: it could not be claimed", name, slot)
		case run.Finished.IsZero():
		case run.OK:
			return nil
		default:
			return fmt.Errorf("job %s, slot %s: %s", name, slot, run.Text)
		}
	}
}

// hold is how long this agent leaves a full snapshot to others, by what its own
// member is doing.
func (t *term) hold() (time.Duration, string) {
	m, known := t.local()
	switch {
	case !t.cfg.Archiving(): // only by its log it is known which member is the own one
		return 0, ""
	case !known:
		return unfitHold, "its member does not answer"
	case !t.seesVoter():
		return unfitHold, "no voting member answers it"
	case m.Unfit != "":
		return unfitHold, "its member is not to be read now: " + m.Unfit
	case m.Role == roleLeader:
		return leaderHold, "its member is the leader"
	case m.Role == roleFollower:
		return followerHold, "a learner goes first"
	}
	return 0, ""
}

// seesVoter tells that a member answers which can confirm what the cluster has
// acknowledged: a learner cannot.
func (t *term) seesVoter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.seen.cluster.Members, func(m status.Member) bool {
		return m.Error == "" && (m.Role == roleLeader || m.Role == roleFollower)
	})
}

const (
	followerHold = 2 * time.Second
	leaderHold   = 5 * time.Second
	unfitHold    = 25 * time.Second
)
