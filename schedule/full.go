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
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/archive"
)

// fitWait is how long a full snapshot waits for a member that has nothing better
// to do.
const fitWait = time.Minute

// clientWait is how long a full snapshot that is demanded at the start waits for the
// cluster to be reached.
const clientWait = 30 * time.Second

var errNoMember = errors.New("no member of the cluster was reached yet")

// full takes a full snapshot.
func (t *session) full(ctx context.Context, task *job.Task) (job.Result, error) {
	args, _ := task.Arg.(arguments) // a slot of the schedule has none
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
	req, err := t.fullRequest(ctx, client, args)
	if err != nil {
		return job.Result{}, err
	}
	if archiver != nil && req.Timeline.N == 0 {
		if s := archiver.State(); s.Role == archive.Writer || s.Role == archive.Follower {
			req.Timeline = s.Timeline // by the log, which shows more than how far the cluster is
		}
	}
	req.ID, req.Attempt = task.BackupID(), task.Attempt
	req.Labels["slot"] = task.Slot
	req.Progress = func(p snapshot.Progress) { task.Progress(p.Phase, p.Done, p.Total) }
	result, err := snapshot.Take(ctx, req)
	if errors.Is(err, snapshot.ErrTaken) {
		return taken(ctx, repo, task.BackupID(), err)
	}
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

// taken is the result of a run whose backup exists already: an attempt before
// this one made it, and died before it could record that. If that attempt still runs, it
// has the slot, and the end of this one's run finds out.
func taken(ctx context.Context, repo *repository.Repository, id string, cause error) (job.Result, error) {
	timelines, err := repo.TimelineIDs(ctx)
	if err != nil {
		return job.Result{}, err
	}
	for _, timeline := range timelines {
		m, err := snapshot.ReadManifest(ctx, repo, timeline, id)
		if errors.Is(err, sinks.ErrNotFound) || errors.Is(err, repository.ErrAltered) && !repo.Doubtful(err) {
			continue
		}
		if err != nil {
			return job.Result{}, err
		}
		return job.Result{Backup: m.ID, Bytes: m.Object.StoredSize, Text: fmt.Sprintf("backup %s of revision %d, which an earlier attempt had made", m.ID, m.Facts.Revision)}, nil
	}
	return job.Result{}, cause
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

// takeDue takes a full snapshot that the archive needs, and waits for it.
func (t *session) takeDue(ctx context.Context, timeline repository.TimelineID) error {
	d, err := t.demand(jobFull, "", arguments{Timeline: timeline, Reason: logNeedsFull})
	if err != nil {
		return err
	}
	limit := t.cfg.Jobs.Full.Timeout.Std() + awaitMore
	select {
	case <-d.Done():
		if err := d.Err(); err != nil {
			return fmt.Errorf("job %s: %w", jobFull, err)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(limit):
		return fmt.Errorf("job %s: no result after %s", jobFull, limit)
	}
}

// awaitMore is how long a demand may wait behind another run, and for its result to be
// written, besides the time that the run itself may take.
const awaitMore = 5 * time.Minute

// seesVoter says that a member answers which can confirm what the cluster has
// acknowledged: a learner cannot.
func (t *session) seesVoter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.seen.cluster.Members, func(m web.Member) bool {
		return m.Error == "" && (m.Role == roleLeader || m.Role == roleFollower)
	})
}

// demandAgain is how soon the agent demands a full snapshot again if the last demand
// gave none.
const demandAgain = 30 * time.Minute

// demanded is the last full snapshot that was due by size.
type demanded struct {
	*job.Demand
	newest string // the newest full snapshot then
	at     time.Time
}

// demandFullBySize demands a full snapshot if the log since the last one takes longer to
// replay than a restore should. The agent that writes the archive does: of several one.
func (t *session) demandFullBySize() {
	_, _, archiver := t.opened()
	if archiver != nil && archiver.State().Role == archive.Writer {
		t.demandBySize()
	}
}

// firstAfter is how long the archiver has to ask for a timeline's first full snapshot
// itself, which knows the timeline.
const firstAfter = time.Minute

// demandFirst demands the first full snapshot if no archiver does: none runs
// here, or it cannot begin. The agent that runs the job does.
func (t *session) demandFirst() {
	client, _, archiver := t.opened()
	if archiver != nil && archiver.State().Timeline.ClusterID != 0 {
		return
	}
	t.mu.Lock()
	due := t.seen.newest == nil && !t.seen.repository.Listed.IsZero() && t.seen.cluster.Error == "" && t.seen.cluster.ID != "" &&
		t.cfg.Jobs.Full.Runs() && time.Since(t.started) > firstAfter && time.Since(t.firstDemanded) > demandAgain
	runner := t.runner
	t.mu.Unlock()
	if !due || client == nil || runner == nil || !runner.Runs(jobFull) {
		return
	}
	_, err := t.demand(jobFull, "", arguments{Reason: "there is none yet"})
	t.mu.Lock()
	t.firstDemanded = time.Now()
	t.mu.Unlock()
	if err != nil {
		t.Logger.Warn("there is no full snapshot, and no run could be demanded", "err", err)
	}
}

// demandAfterFull has a new full snapshot verified, whichever agent took it: those that
// take them need no identity, and those that verify need not take any. The slot follows
// from the snapshot, so that of several agents one does it.
func (t *session) demandAfterFull(s *inventory, newest *snapshot.Manifest) {
	j := t.cfg.Jobs.Structure
	t.mu.Lock()
	runner := t.runner
	t.mu.Unlock()
	if !j.Runs() || !j.AfterFull || runner == nil || !runner.Runs(jobStructure) || newest == nil || newest.ID == t.afterFull {
		return
	}
	if _, proved := s.chain.Newest(newest, report.Structure); proved {
		return
	}
	if _, damaged := s.chain.Damaged(newest); damaged {
		return
	}
	sum := sha256.Sum256([]byte(newest.Timeline.String() + "/" + newest.ID))
	if _, err := t.demand(jobStructure, repository.DemandSlot(newest.Started, sum[:]), arguments{Backup: newest.ID}); err != nil {
		t.Logger.Warn("the new full snapshot is not verified at once", "backup", newest.ID, "err", err)
		return
	}
	t.afterFull = newest.ID
}

func (t *session) demandBySize() {
	t.mu.Lock()
	newest, bytes, last := t.seen.newest, t.seen.logBytes, t.demanded
	t.mu.Unlock()
	limit := int64(t.cfg.Jobs.Full.MaxLog)
	if newest == nil || !t.cfg.Jobs.Full.Runs() || limit == 0 || bytes < limit || newest.ID == last.newest && !last.mayRepeat() {
		return
	}
	reason := fmt.Sprintf("%s of log since the last full snapshot", humanize.IBytes(uint64(bytes)))
	d, err := t.demand(jobFull, "", arguments{Reason: reason})
	if err != nil {
		t.Logger.Warn("a full snapshot is due and could not be demanded", "reason", reason, "err", err)
		return
	}
	t.Logger.Info("a full snapshot is due", "reason", reason)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.demanded = demanded{Demand: d, newest: newest.ID, at: time.Now()}
}

// mayRepeat reports whether the run has ended, and was demanded a while ago.
func (d demanded) mayRepeat() bool {
	select {
	case <-d.Done():
		return time.Since(d.at) >= demandAgain
	default:
		return false
	}
}
