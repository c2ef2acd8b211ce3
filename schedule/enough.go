package schedule

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/requorum/requorum/walreplay/archive"
)

// askAgain is how soon a full snapshot that is due by size is asked for again where
// the one that was asked for did not come.
const askAgain = 30 * time.Minute

// asked is what was asked for last.
type asked struct {
	newest    string // the newest full snapshot then
	job, slot string
	at        time.Time
}

// demandBySize asks for a full snapshot where the log since the last one takes
// longer to replay than a restore should. The agent that writes the archive does:
// of several one.
func (t *term) demandBySize(ctx context.Context) {
	_, _, archiver := t.opened()
	if archiver == nil || archiver.State().Role != archive.Writer {
		return
	}
	t.askBySize(ctx)
}

// firstAfter is how long the archiver has to ask for a timeline's first full snapshot
// itself, which knows the timeline.
const firstAfter = time.Minute

// demandFirst asks for the first full snapshot where no archiver does: none runs
// here, or it cannot begin. Of several agents one asks.
func (t *term) demandFirst(ctx context.Context) {
	client, repo, archiver := t.opened()
	if archiver != nil && archiver.State().Timeline.ClusterID != 0 {
		return
	}
	t.mu.Lock()
	due := t.seen.newest == nil && !t.seen.repository.Listed.IsZero() && t.seen.cluster.Error == "" && t.seen.cluster.ID != "" &&
		t.cfg.Jobs.Full.Enabled && time.Since(t.started) > firstAfter && time.Since(t.firstAsked) > askAgain
	cluster := t.seen.cluster.ID
	t.mu.Unlock()
	if !due || client == nil {
		return
	}
	if t.first == nil {
		t.first = repo.Claimant("snapshot", t.cfg.Name, askAgain)
	}
	_, held, err := t.first.Try(ctx, "first-"+cluster, "")
	if err == nil && held {
		arg, _ := json.Marshal(arguments{Reason: "there is none yet"}) // of plain text it cannot fail
		_, err = t.demand(ctx, jobFull, arg)
		t.mu.Lock()
		t.firstAsked = time.Now()
		t.mu.Unlock()
	}
	if err != nil && ctx.Err() == nil {
		t.Logger.Warn("there is no full snapshot, and none could be asked for", "err", err)
	}
}

func (t *term) askBySize(ctx context.Context) {
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
	var arg json.RawMessage
	if name == jobFull {
		arg, _ = json.Marshal(arguments{Reason: reason}) // of plain text it cannot fail
	}
	slot, err := t.demand(ctx, name, arg)
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
func (t *term) dueBySize(bytes int64, entries uint64) (name, reason string) {
	j := t.cfg.Jobs
	switch {
	case j.Full.Enabled && j.Full.MaxLog > 0 && bytes >= int64(j.Full.MaxLog):
		return jobFull, fmt.Sprintf("%s of log since the last full snapshot", humanize.IBytes(uint64(bytes)))
	case j.Synthetic.Enabled && j.Synthetic.Entries > 0 && entries >= j.Synthetic.Entries:
		return jobSynthetic, fmt.Sprintf("%d entries of log since the last full snapshot", entries)
	}
	return "", ""
}

// mayAskAgain tells that what was asked for has ended, a while ago, and gave no
// newer full snapshot.
func (t *term) mayAskAgain(ctx context.Context, last asked) bool {
	if time.Since(last.at) < askAgain {
		return false
	}
	run, err := t.find(ctx, last.job, last.slot)
	return err == nil && (run == nil || !run.Finished.IsZero())
}
