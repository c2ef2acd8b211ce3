package verify

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/replaying"
	"github.com/requorum/requorum/verify/report"
)

// climb takes a backup whose bytes are proved up the higher rungs. A rung that
// fails does not keep the next one from being tried: all faults are listed. A
// drill of the newest backup waits for the log behind it.
func (h *history) climb(ctx context.Context, m *snapshot.Manifest, c *scratchCopy, newest bool) error {
	name := fullName(m.Timeline, m.ID)
	hash, err := h.checkStructure(ctx, name, c.path, m)
	if err != nil {
		return err
	}
	if h.Live != nil {
		if err := h.checkLive(ctx, name, m, c.path, hash); err != nil {
			return err
		}
	}
	if !h.Rung.Includes(report.Replay) {
		return h.forget()
	}
	if err := h.replayTo(ctx, m); err != nil {
		return err
	}
	next := h.nextBase(m, newest)
	if err := h.forget(next, m.ID); err != nil {
		return err
	}
	switch {
	case !h.Rung.Includes(report.Drill):
	case newest:
		h.newest.backup = m
	default:
		if err := h.drillCopy(ctx, m, fmt.Sprintf("from the snapshot, which is what 'requorum restore %s' gives", m.ID)); err != nil {
			return err
		}
	}
	return h.forget(next)
}

// nextBase is the copy that is still of use after m was looked at: the next one is
// proved from m, or where that is synthetic from one before it; and what follows
// the newest goes on from that.
func (h *history) nextBase(m *snapshot.Manifest, newest bool) string {
	if newest || !m.Synthetic() {
		return m.ID
	}
	for _, o := range h.catalog.Manifests {
		if h.copies[o.ID] != nil && !o.Synthetic() {
			return o.ID
		}
	}
	return m.ID
}

// replayTo proves a backup from the one before it, where there is a log.
func (h *history) replayTo(ctx context.Context, m *snapshot.Manifest) error {
	if h.cannotReplay(ctx, m) {
		return nil
	}
	check, others, err := replaying.Check(ctx, h.repo, h.catalog, m, h.replayOptions())
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
		return k.Rung == c.Rung && k.Object == c.Object && k.Status == report.Damaged
	}
	if !slices.ContainsFunc(h.report.Checks, known) {
		h.report.Checks = append(h.report.Checks, c)
	}
}

func (h *history) replayOptions() replaying.Options {
	return replaying.Options{ScratchDir: h.ScratchDir, Identities: h.Identities, Unpacked: h.unpacked(), Progress: h.Progress, Logger: h.Logger}
}

// took adds the check of a part of verify. Its error is why it could not be done,
// unless ctx has ended.
func (r *run) took(ctx context.Context, rung report.Rung, object string, c report.Check, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if c.Object == "" {
		c = report.Check{Rung: rung, Object: object}
	}
	if err != nil {
		c.Reason = err.Error()
		if c.Status != report.Damaged {
			c.Status = report.Unchecked
		}
	}
	r.report.Checks = append(r.report.Checks, c)
	return nil
}

// openFor opens a file to be read in any order.
func openFor(path string) (*os.File, int64, error) {
	image, err := snapshot.OpenFile(path)
	if err != nil {
		return nil, 0, err
	}
	f, err := os.Open(path)
	return f, image.Size(), err
}
