package schedule

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/schedule/web"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/archive"
)

// fitWait is how long a full snapshot waits for a member that has nothing better
// to do.
const fitWait = time.Minute

// clientWait is how long a full snapshot that is due at the start waits for the
// cluster to be reached.
const clientWait = 30 * time.Second

var errNoMember = errors.New("no member of the cluster was reached yet")

// full takes a full snapshot.
func (t *session) full(ctx context.Context, task *job.Task) (job.Result, error) {
	args, _ := task.Arg.(arguments) // a slot of the schedule has none
	client, _, archiver := t.opened()
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
	req, err := t.fullRequest(ctx, client, args)
	if err != nil {
		return job.Result{}, err
	}
	if archiver != nil && req.Timeline.N == 0 {
		if s := archiver.State(); s.Role == archive.Writer || s.Role == archive.Follower {
			req.Timeline = s.Timeline // by the log, which shows more than how far the cluster is
		}
	}
	if one, err := t.takenSince(ctx, task, req.Timeline); one != nil || err != nil {
		return takenResult(one), err
	}
	req.ID, req.Attempt = task.BackupID(), task.Attempt
	req.Labels["slot"] = task.Slot
	req.Progress = func(p snapshot.Progress) { task.Progress(p.Phase, p.Done, p.Total) }
	result, err := snapshot.Take(ctx, req)
	if err != nil {
		return job.Result{}, err
	}
	if archiver != nil {
		archiver.LookAgain()
	}
	m := result.Manifest
	return job.Result{
		Backup: m.ID, Bytes: m.Object.StoredSize,
		Text: fmt.Sprintf("backup %s of revision %d from %s: %s stored as %s", m.ID, m.Facts.Revision, memberOf(m),
			humanize.IBytes(uint64(m.Object.RawSize)), humanize.IBytes(uint64(m.Object.StoredSize))),
	}, nil
}

// fullRequest returns how a full snapshot is taken here, without what a job adds.
func (t *session) fullRequest(ctx context.Context, client *client.Client, args arguments) (snapshot.Request, error) {
	labels := map[string]string{"agent": t.cfg.Name}
	if args.Reason != "" {
		labels["reason"] = args.Reason
	}
	c := t.cfg.Jobs.Full
	compression := t.codec
	compression.Workers = max(1, runtime.GOMAXPROCS(0)-1) // one is left to etcd
	req := snapshot.Request{
		Client: client, Local: t.localMember(), Sink: t.sink, Codec: compression, Tool: t.Tool, Labels: labels,
		Repository: t.repositoryID(), Timeline: args.Timeline,
		HashKV: c.HashKV, ReadBack: c.ReadBack, Timeout: c.Timeout.Std(), Reached: archive.Reached, Fit: fitWait, Logger: t.Logger,
	}
	if len(t.cfg.Attachments) == 0 {
		return req, nil
	}
	var err error
	req.Attachments, err = job.PackAttachments(ctx, t.cfg.Attachments)
	return req, err
}

// takenSince returns the full snapshot that a run is for, if there is one: an earlier attempt
// at the slot made it, and its agent died before it could record that; or any other agent or
// command took one of the timeline since the schedule's slot.
func (t *session) takenSince(ctx context.Context, task *job.Task, timeline repository.TimelineID) (*snapshot.Manifest, error) {
	s, err := t.backups(ctx)
	if err != nil {
		return nil, err
	}
	_, occasion := task.Arg.(arguments)
	limit := time.Now().Add(clockTolerance)
	for _, m := range s.Manifests {
		if m.ID == task.BackupID() || !occasion && m.Timeline == timeline && !m.Started.Before(task.SlotTime) && m.Started.Before(limit) {
			return m, nil
		}
	}
	return nil, nil //nolint:nilnil // there is none
}

// takenResult is the result of a run that found its full snapshot taken.
func takenResult(m *snapshot.Manifest) job.Result {
	if m == nil {
		return job.Result{}
	}
	return job.Result{Backup: m.ID, Bytes: m.Object.StoredSize, Text: fmt.Sprintf("backup %s of revision %d, which was taken since the slot, or by an earlier attempt", m.ID, m.Facts.Revision)}
}

// localMember is the member of this agent; nil where it has none, or where what is to
// be known of it cannot be read: the snapshot is streamed then.
func (t *session) localMember() *snapshot.LocalMember {
	dir := t.cfg.Member.DataDir
	if dir == "" {
		return nil
	}
	local, err := walreplay.LocalMember(dir, t.cfg.Member.WALDir)
	if err != nil {
		t.Logger.Info("the snapshot is streamed, since member.data-dir does not show which member it belongs to", "err", err)
		return nil
	}
	return local
}

func memberOf(m *snapshot.Manifest) string {
	if m.Source.Name != "" {
		return m.Source.Name
	}
	return m.Source.Endpoint
}

// logNeedsFull is the reason for a full snapshot without which log cannot be restored.
const logNeedsFull = "the archived log needs it"

// takeDue takes a full snapshot that the archive needs.
func (t *session) takeDue(ctx context.Context, timeline repository.TimelineID) error {
	limit := t.cfg.Jobs.Full.Timeout.Std() + awaitMore
	ctx, stop := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no result after %s", limit))
	defer stop()
	if err := t.runner.RunNow(ctx, jobFull, arguments{Timeline: timeline, Reason: logNeedsFull}); err != nil {
		return fmt.Errorf("job %s: %w", jobFull, err)
	}
	return nil
}

// awaitMore is how long a run may wait behind another one, and for its result to be
// written, besides the time that the run itself may take.
const awaitMore = 5 * time.Minute

// seesVoter reports whether a member answers which can confirm what the cluster has
// acknowledged: a learner cannot.
func (t *session) seesVoter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.seen.cluster.Members, func(m web.Member) bool {
		return m.Error == "" && (m.Role == roleLeader || m.Role == roleFollower)
	})
}

// dueAgain is how soon a full snapshot is due again if the last run for that reason gave none.
const dueAgain = 30 * time.Minute

// firstAfter is how long the archiver has to take a timeline's first full snapshot
// itself, which knows the timeline.
const firstAfter = time.Minute

// fullDue returns a reason for a full snapshot besides the schedule: there is none and no
// archiver that would take it, or a restore has to replay more log than it should. For
// that, the agent that writes the archive takes it.
func (t *session) fullDue(now time.Time) *job.Occasion {
	client, _, archiver := t.opened()
	var state archive.State
	if archiver != nil {
		state = archiver.State()
	}
	return t.fullDueAt(now, client != nil, state)
}

func (t *session) fullDueAt(now time.Time, connected bool, state archive.State) *job.Occasion {
	t.mu.Lock()
	defer t.mu.Unlock()
	newest, limit := t.seen.newest, int64(t.cfg.Jobs.Full.MaxLog)
	o := &job.Occasion{Seen: t.seen.repository.Listed}
	var reason, since string
	switch {
	case o.Seen.IsZero():
		return nil
	case newest == nil && connected && state.Timeline.ClusterID == 0 && t.seen.cluster.Error == "" && t.seen.cluster.ID != "" && time.Since(t.started) > firstAfter:
		reason = "there is none yet"
	case newest != nil && state.Role == archive.Writer && limit > 0 && t.seen.logBytes >= limit:
		reason, since, o.Here = fmt.Sprintf("%s of log since the last full snapshot", humanize.IBytes(uint64(t.seen.logBytes))), newest.ID, true
	default:
		return nil
	}
	sum := sha256.Sum256([]byte("full since " + since))
	o.Slot, o.Arg = repository.DemandSlot(now.Truncate(dueAgain), sum[:]), arguments{Reason: reason}
	return o
}

// structureDue returns a new full snapshot that has no verdict, whichever agent took it: those
// that take them need no identity, and those that verify need not take any.
func (t *session) structureDue(time.Time) *job.Occasion {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.seen.unproved
	if m == nil || !t.cfg.Jobs.Structure.AfterFull {
		return nil
	}
	sum := sha256.Sum256([]byte(m.Timeline.String() + "/" + m.ID))
	return &job.Occasion{Slot: repository.DemandSlot(m.Started, sum[:]), Seen: t.seen.repository.Listed, Arg: arguments{Backup: m.ID}}
}
