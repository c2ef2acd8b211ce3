package verify

import (
	"context"
	"fmt"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/replaying"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
)

// newestPoint is what a restore of a timeline's newest point gives: its newest
// backup, with the log behind it.
type newestPoint struct {
	backup *snapshot.Manifest // whose drill waits for the log; nil: none does
	// rebuilt is what the replay of that log gave, and phases how long it took; nil
	// where there is nothing to replay, or for the reason in alone.
	rebuilt *walreplay.Rebuilt
	phases  []report.Phase
	alone   string
}

func (n *newestPoint) close() error {
	if n.rebuilt == nil {
		return nil
	}
	r := n.rebuilt
	n.rebuilt = nil
	return r.Close()
}

// replayLog replays the log behind the newest backup; checksum is how the rung
// below ended.
func (h *history) replayLog(ctx context.Context, part logPart, checksum report.Status) error {
	switch {
	case !h.Rung.Includes(report.Replay):
		return nil
	case h.sample != nil:
		h.note("the log of timeline %s behind the newest backup was not replayed: a sample reads only a part of it", part.timeline)
		h.newest.alone = "a sample reads only a part of the log behind it"
		return nil
	case checksum != report.Passed:
		h.add(report.Check{Rung: report.Replay, Object: logName(part.timeline), Reason: "its bytes could not be proved: see the rung checksum"})
		h.newest.alone = "the log behind it could not be proved: see the rung checksum"
		return nil
	}
	n, err := replaying.CheckNewest(ctx, h.repo, h.catalog, part.timeline, h.replayOptions())
	if n.Rebuilt != nil {
		h.newest.rebuilt, h.newest.phases = n.Rebuilt, n.Check.Phases
	} else if n.Behind {
		h.newest.alone = "the log behind it could not be replayed: see the rung replay"
	}
	if !n.Behind && err == nil {
		return nil
	}
	return h.took(ctx, report.Replay, logName(part.timeline), n.Check, err)
}

// drillNewest drills what a restore of the newest point gives, or the backup alone
// where the log behind it could not be replayed.
func (h *history) drillNewest(ctx context.Context) error {
	m := h.newest.backup
	if m == nil {
		return nil
	}
	const command = "what 'requorum restore --latest' gives of this timeline"
	r := h.newest.rebuilt
	if r == nil || r.Base.ID != m.ID {
		from := fmt.Sprintf("from the snapshot, which is %s, since no log goes beyond it", command)
		switch {
		case r != nil:
			from = fmt.Sprintf("from the snapshot alone, which is not %s, since the log goes on from %s", command, r.Base.Name)
		case h.newest.alone != "":
			from = fmt.Sprintf("from the snapshot alone, which is not %s, since %s", command, h.newest.alone)
		}
		return h.drillCopy(ctx, m, from)
	}
	phases := append([]report.Phase{h.copies[m.ID].fetched()}, h.newest.phases...)
	if err := h.forget(); err != nil { // the members need the room
		return err
	}
	return h.drill(ctx, drilled{name: fullName(m.Timeline, m.ID), image: r, phases: phases, from: fmt.Sprintf("from %s, which is %s", r.Name(), command)})
}

// drillCopy drills a backup as it is.
func (h *history) drillCopy(ctx context.Context, m *snapshot.Manifest, from string) error {
	c, name := h.copies[m.ID], fullName(m.Timeline, m.ID)
	image, err := snapshot.OpenFile(c.path)
	if err != nil {
		return h.took(ctx, report.Drill, name, report.Check{}, err)
	}
	return h.drill(ctx, drilled{name: name, image: image, phases: []report.Phase{c.fetched()}, from: from})
}
