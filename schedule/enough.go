package schedule

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/dustin/go-humanize"

	"github.com/requorum/requorum/walreplay/archive"
)

// demandBySize asks for a full snapshot where the log since the last one takes
// longer to replay than a restore should. The agent that writes the archive does:
// of several one.
func (t *term) demandBySize(ctx context.Context) {
	_, _, archiver := t.opened()
	if archiver == nil || archiver.State().Role != archive.Writer {
		return
	}
	t.mu.Lock()
	newest, bytes, entries, asked := t.seen.newest, t.seen.logBytes, t.seen.entries, t.askedFor
	t.mu.Unlock()
	if newest == nil || asked == newest.ID {
		return
	}
	j := t.cfg.Jobs
	name, reason := "", ""
	switch {
	case j.Synthetic.Enabled && j.Synthetic.Entries > 0 && entries >= j.Synthetic.Entries:
		name, reason = jobSynthetic, fmt.Sprintf("%d entries of log since the last full snapshot", entries)
	case j.Full.Enabled && j.Full.MaxLog > 0 && bytes >= int64(j.Full.MaxLog):
		name, reason = jobFull, fmt.Sprintf("%s of log since the last full snapshot", humanize.IBytes(uint64(bytes)))
	default:
		return
	}
	var arg json.RawMessage
	if name == jobFull {
		arg, _ = json.Marshal(arguments{Reason: reason}) //nolint:errcheck // of plain text it cannot fail
	}
	slot, err := t.demand(ctx, name, arg)
	if err != nil {
		t.Logger.Warn("a full snapshot is due and could not be asked for", "reason", reason, "err", err)
		return
	}
	t.Logger.Info("a full snapshot is due", "job_name", name, "reason", reason, "slot", slot)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.askedFor = newest.ID
}
