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
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
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
func (t *session) full(ctx context.Context, task *job.Task) (job.Result, error) {
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
	labels := map[string]string{"agent": t.cfg.Name, "slot": task.Slot}
	if args.Reason != "" {
		labels["reason"] = args.Reason
	}
	var attachments []job.Attachment
	for _, a := range t.cfg.Attachments {
		attachments = append(attachments, job.Attachment(a))
	}
	c := t.cfg.Jobs.Full
	compression := t.codec
	compression.Workers = max(1, runtime.GOMAXPROCS(0)-1) // one is left to etcd
	result, err := snapshot.Take(ctx, snapshot.Request{
		Client: client, Local: t.localMember(), Sinks: []sinks.Sink{t.sink}, Codec: compression, Tool: t.Tool, Labels: labels,
		ID: task.BackupID(), Attempt: task.Attempt, Timeline: args.Timeline, Attachments: job.Attachments(attachments),
		HashKV: c.HashKV, ReadBack: c.ReadBack, Timeout: c.Timeout.Std(), Reached: archive.Reached, Fit: fitWait, Logger: t.Logger,
		Progress: func(p snapshot.Progress) { task.Progress(p.Phase, p.Done, p.Total) },
	})
	if errors.Is(err, snapshot.ErrTaken) {
		made, err := taken(ctx, repo, task.BackupID(), err)
		if err != nil {
			return job.Result{}, err
		}
		return *made, nil
	}
	if err != nil {
		return job.Result{}, err
	}
	if archiver != nil {
		archiver.LookAgain()
	}
	m := result.Outcomes[0].Manifest
	return job.Result{
		Backup: m.ID, Bytes: m.Object.StoredSize,
		Text: fmt.Sprintf("backup %s of revision %d from %s: %s stored as %s", m.ID, m.Facts.Revision, memberOf(m),
			humanize.IBytes(uint64(m.Object.RawSize)), humanize.IBytes(uint64(m.Object.StoredSize))),
	}, nil
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

// takeDue takes a full snapshot that the archive needs, and waits for it.
func (t *session) takeDue(ctx context.Context, timeline repository.TimelineID) error {
	slot, err := t.trigger(ctx, jobFull, "", &arguments{Timeline: timeline, Reason: "the archived log needs it"})
	if err != nil {
		return err
	}
	return t.await(ctx, jobFull, slot)
}

// awaitMore is how long a run that was asked for may wait behind another one, and
// to be written down, beside the time that it may take itself.
const awaitMore = 5 * time.Minute

// await waits for the end of a run that was asked for here.
func (t *session) await(ctx context.Context, name, slot string) error {
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

// seesVoter says that a member answers which can confirm what the cluster has
// acknowledged: a learner cannot.
func (t *session) seesVoter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.seen.cluster.Members, func(m web.Member) bool {
		return m.Error == "" && (m.Role == roleLeader || m.Role == roleFollower)
	})
}

// askAgain is how soon a full snapshot that is due by size is asked for again where
// the one that was asked for did not come.
const askAgain = 30 * time.Minute

// asked is what was asked for last.
type asked struct {
	newest    string // the newest full snapshot then
	job, slot string
	at        time.Time
}

// triggerBySize asks for a full snapshot where the log since the last one takes
// longer to replay than a restore should. The agent that writes the archive does:
// of several one.
func (t *session) triggerBySize(ctx context.Context) {
	_, _, archiver := t.opened()
	if archiver != nil && archiver.State().Role == archive.Writer {
		t.askBySize(ctx)
	}
}

// firstAfter is how long the archiver has to ask for a timeline's first full snapshot
// itself, which knows the timeline.
const firstAfter = time.Minute

// triggerFirst asks for the first full snapshot where no archiver does: none runs
// here, or it cannot begin. The agent that runs the job does.
func (t *session) triggerFirst(ctx context.Context) {
	client, _, archiver := t.opened()
	if archiver != nil && archiver.State().Timeline.ClusterID != 0 {
		return
	}
	t.mu.Lock()
	due := t.seen.newest == nil && !t.seen.repository.Listed.IsZero() && t.seen.cluster.Error == "" && t.seen.cluster.ID != "" &&
		t.cfg.Jobs.Full.Runs() && time.Since(t.started) > firstAfter && time.Since(t.firstAsked) > askAgain
	runner := t.runner
	t.mu.Unlock()
	if !due || client == nil || runner == nil || !runner.Runs(jobFull) {
		return
	}
	_, err := t.trigger(ctx, jobFull, "", &arguments{Reason: "there is none yet"})
	t.mu.Lock()
	t.firstAsked = time.Now()
	t.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		t.Logger.Warn("there is no full snapshot, and none could be asked for", "err", err)
	}
}

// triggerAfterFull has a new full snapshot verified, whichever agent took it: those that
// take them need no identity, and those that verify need not take any. The slot follows
// from the snapshot, so that of several agents one does it.
func (t *session) triggerAfterFull(ctx context.Context, s *inventory, newest *snapshot.Manifest) {
	j := t.cfg.Jobs.Structure
	t.mu.Lock()
	runner := t.runner
	t.mu.Unlock()
	if !j.Runs() || !j.AfterFull || runner == nil || !runner.Runs(jobStructure) || newest == nil || newest.Synthetic() || newest.ID == t.afterFull {
		return
	}
	if _, proved := s.chain.Newest(newest, report.Structure); proved {
		return
	}
	if _, damaged := s.chain.Damaged(newest); damaged {
		return
	}
	sum := sha256.Sum256([]byte(newest.Timeline.String() + "/" + newest.ID))
	_, err := t.trigger(ctx, jobStructure, repository.DemandSlot(newest.Started, sum[:]), &arguments{Backup: newest.ID})
	if err == nil {
		t.afterFull = newest.ID
	}
	if err != nil && ctx.Err() == nil {
		t.Logger.Warn("the new full snapshot is not verified at once", "backup", newest.ID, "err", err)
	}
}

func (t *session) askBySize(ctx context.Context) {
	t.mu.Lock()
	newest, bytes, entries, last := t.seen.newest, t.seen.logBytes, t.seen.entries, t.asked
	t.mu.Unlock()
	if newest == nil {
		return
	}
	name, reason := t.dueBySize(bytes, entries)
	if name == "" || newest.ID == last.newest && name == last.job && !t.mayAskAgain(ctx, last) {
		return
	}
	var args *arguments
	if name == jobFull {
		args = &arguments{Reason: reason}
	}
	slot, err := t.trigger(ctx, name, "", args)
	if err != nil {
		t.Logger.Warn("a full snapshot is due and could not be asked for", "reason", reason, "err", err)
		return
	}
	t.Logger.Info("a full snapshot is due", "job_name", name, "reason", reason, "slot", slot)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked = asked{newest: newest.ID, job: name, slot: slot, at: time.Now()}
}

// dueBySize is the job that so much log asks for, and why; empty where none. Where
// it is enough for both, the synthetic one was due before, and did not come.
func (t *session) dueBySize(bytes int64, entries uint64) (name, reason string) {
	j := t.cfg.Jobs
	switch {
	case j.Full.Runs() && j.Full.MaxLog > 0 && bytes >= int64(j.Full.MaxLog):
		return jobFull, fmt.Sprintf("%s of log since the last full snapshot", humanize.IBytes(uint64(bytes)))
	case j.Synthetic.Runs() && j.Synthetic.Entries > 0 && entries >= j.Synthetic.Entries:
		return jobSynthetic, fmt.Sprintf("%d entries of log since the last full snapshot", entries)
	}
	return "", ""
}

// mayAskAgain says that what was asked for has ended, a while ago, and gave no
// newer full snapshot.
func (t *session) mayAskAgain(ctx context.Context, last asked) bool {
	if time.Since(last.at) < askAgain {
		return false
	}
	run, err := t.find(ctx, last.job, last.slot)
	return err == nil && (run == nil || !run.Finished.IsZero())
}
