package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// checkHistories takes the backups and the log of one timeline after the other up
// the rungs.
func (e *examination) checkHistories(ctx context.Context) error {
	for _, d := range e.damaged {
		if err := e.checkDamaged(ctx, d); err != nil {
			return err
		}
	}
	for _, id := range e.timelines {
		h := &history{examination: e, id: id, copies: map[string]*scratchCopy{}}
		if err := h.failed(ctx, id.String(), errors.Join(h.examine(ctx), h.clear())); err != nil {
			return err
		}
	}
	if n := len(e.backups); e.sample != nil && n > 0 {
		// ReadCatalog has done this; what it found damaged is not in e.backups.
		e.add(report.Check{Rung: report.Checksum, Object: "manifests",
			Compared: fmt.Sprintf("the manifests of %d backups with their own SHA-256 and place, and the sizes of their objects with them", n)})
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
		if h.sample.leaves(m.Object.Name) {
			continue
		}
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
		if f, err := snapshot.OpenFile(c.path); err == nil { // else it is no database: the structure rung tells
			all[id] = f
		}
	}
	return all
}
