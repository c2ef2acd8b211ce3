package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/replaying"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/serve"
	"github.com/requorum/requorum/walreplay"
)

// checkHistories takes the backups and the log of one timeline after the other up
// the levels.
func (e *examination) checkHistories(ctx context.Context) error {
	for _, d := range e.damaged {
		if err := e.checkDamaged(ctx, d); err != nil {
			return err
		}
	}
	for _, u := range e.catalog.Unread {
		if e.all || slices.Contains(e.timelines, u.Timeline) {
			e.add(report.Check{Level: report.Checksum, Object: u.Timeline.String(), Compared: "how many backups there are with how many are read",
				Findings: []report.Finding{{Kind: report.KindManifest, Text: u.Err.Error()}}})
		}
	}
	for _, id := range e.timelines {
		h := &history{examination: e, id: id, copies: map[string]*scratchCopy{}}
		if err := h.failed(ctx, id.String(), errors.Join(h.examine(ctx), h.clear())); err != nil {
			return err
		}
	}
	return nil
}

// history is the verification of one timeline: its backups, each from the one
// before, then the log behind them, and last the newest point of the two.
type history struct {
	*examination
	id     repository.TimelineID
	copies map[string]*scratchCopy // of backups that are used again, by ID
	newest newestPoint
	hadLog *bool // whether it has a log, or had one; nil until it was asked
}

func (h *history) examine(ctx context.Context) error {
	var backups []*snapshot.Manifest
	for _, m := range h.backups {
		if m.Timeline == h.id {
			backups = append(backups, m)
		}
	}
	part, withLog := h.logOf(h.id)
	for i, m := range backups {
		if err := h.checkBackup(ctx, m, withLog && i == len(backups)-1); err != nil {
			return err
		}
	}
	if withLog {
		if err := h.checkLog(ctx, part); err != nil {
			return err
		}
	}
	return h.drillNewest(ctx)
}

// logOf is the part of a timeline's log that is looked at.
func (s *selection) logOf(id repository.TimelineID) (logPart, bool) {
	for _, part := range s.logs {
		if part.timeline == id {
			return part, true
		}
	}
	return logPart{}, false
}

// clear removes what is left of the timeline in the scratch folder.
func (h *history) clear() error {
	return errors.Join(h.newest.close(), h.forget())
}

// forget removes the copies of all backups but these.
func (h *history) forget(but ...string) error {
	var errs []error
	for id, c := range h.copies {
		if !slices.Contains(but, id) {
			delete(h.copies, id)
			errs = append(errs, c.remove())
		}
	}
	return errors.Join(errs...)
}

// unpacked are the copies as a replay takes them.
func (h *history) unpacked() map[string]*snapshot.File {
	all := map[string]*snapshot.File{}
	for id, c := range h.copies {
		if f, err := snapshot.OpenFile(c.path); err == nil { // else it is no database: the structure level reports it
			all[id] = f
		}
	}
	return all
}

// runLevels takes a backup whose bytes are proved up the higher levels. A level that
// fails does not keep the next one from being tried: all faults are listed. A
// drill of the newest backup waits for the log behind it.
func (h *history) runLevels(ctx context.Context, m *snapshot.Manifest, c *scratchCopy, newest bool) error {
	name := fullName(m.Timeline, m.ID)
	if _, err := h.checkStructure(ctx, name, c.path, m); err != nil {
		return err
	}
	if !h.Level.Includes(report.Replay) {
		return h.forget()
	}
	if err := h.replayTo(ctx, m); err != nil {
		return err
	}
	// The next one is proved from m, and what follows the newest continues from m.
	if err := h.forget(m.ID); err != nil {
		return err
	}
	switch {
	case !h.Level.Includes(report.Drill):
	case newest:
		h.newest.backup = m
	default:
		return h.drillCopy(ctx, m, fmt.Sprintf("from the snapshot, which is what 'requorum restore %s' gives", m.ID))
	}
	return nil
}

// replayTo proves a backup from the one before it, where there is a log.
func (h *history) replayTo(ctx context.Context, m *snapshot.Manifest) error {
	if h.cannotReplay(ctx) {
		return nil
	}
	check, others, err := replaying.Check(ctx, h.repo, h.catalog, m, h.replayOptions())
	check.NotYet = check.NotYet && !h.lostBefore(ctx, m)
	if err := h.took(ctx, report.Replay, fullName(m.Timeline, m.ID), check, err); err != nil {
		return err
	}
	for _, c := range others {
		h.addOther(c)
	}
	return nil
}

// addOther adds what the check of one backup showed of another one, unless its own
// check has found it damaged.
func (h *history) addOther(c report.Check) {
	known := func(k report.Check) bool {
		return k.Level == c.Level && k.Object == c.Object && k.Status == report.Damaged
	}
	if !slices.ContainsFunc(h.report.Checks, known) {
		h.report.Checks = append(h.report.Checks, c)
	}
}

func (h *history) replayOptions() replaying.Options {
	return replaying.Options{ScratchDir: h.ScratchDir, Engine: h.Engine, Identities: h.Identities, Unpacked: h.unpacked(), Progress: h.Progress, Logger: h.Logger}
}

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

// replayLog replays the log behind the newest backup; checksum is how the level
// below ended.
func (h *history) replayLog(ctx context.Context, part logPart, checksum report.Status) error {
	switch {
	case !h.Level.Includes(report.Replay):
		return nil
	case checksum != report.Passed:
		h.add(report.Check{Level: report.Replay, Object: logName(part.timeline), Reason: "its bytes could not be proved: see the level checksum"})
		h.newest.alone = "the log after it could not be proved: see the level checksum"
		return nil
	}
	n, err := replaying.CheckNewest(ctx, h.repo, h.catalog, part.timeline, h.replayOptions())
	if n.Rebuilt != nil {
		h.newest.rebuilt, h.newest.phases = n.Rebuilt, n.Check.Phases
	} else if n.LogAfter {
		h.newest.alone = "the log after it could not be replayed: see the level replay"
	}
	if !n.LogAfter && err == nil {
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

// drilled is what a scratch cluster is built from.
type drilled struct {
	name  string // of the check's object
	image snapshot.Image
	// from says what the image is, and phases how long it took to get it: a
	// recovery begins with that.
	from   string
	phases []report.Phase
}

// drill builds a cluster and adds the check.
func (r *run) drill(ctx context.Context, d drilled) error {
	c, err := serve.Drill(ctx, d.image, serve.DrillOptions{ScratchDir: r.ScratchDir, Object: d.name, Progress: r.Progress, Logger: r.Logger})
	c.Phases = append(d.phases, c.Phases...)
	if d.from != "" {
		c.Compared = d.from + ": " + c.Compared
	}
	return r.took(ctx, report.Drill, d.name, c, err)
}

// jointProgress reports parts that are read at the same time as if they were
// one phase. Its functions may be called by several goroutines.
type jointProgress struct {
	report func(phase string, done, total int64)
	phase  string
	total  int64

	mu   sync.Mutex
	done int64
}

// part is the progress of one part.
func (j *jointProgress) part() func(phase string, done, total int64) {
	var before int64
	return func(_ string, done, _ int64) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.done, before = j.done+done-before, done
		j.report(j.phase, j.done, j.total)
	}
}
