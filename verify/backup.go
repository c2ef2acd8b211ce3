package verify

import (
	"context"
	"errors"
	"fmt"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/verdict"
)

// checkDamaged reports a backup that the catalog cannot use.
func (e *examination) checkDamaged(ctx context.Context, d snapshot.DamagedBackup) error {
	name := fullName(d.Timeline, d.ID)
	_, err := e.check(ctx, report.Checksum, name, func(c *report.Check) error {
		c.Compared = "the manifest with its own SHA-256 and place, and the size of its object with it"
		// A manifest that can be read has an object that is gone or has another size.
		kind := report.KindManifest
		m, err := snapshot.ReadManifest(ctx, e.repo, d.Timeline, d.ID)
		switch {
		case errors.Is(err, sinks.ErrNotFound):
			return errPruned
		case err == nil && errors.Is(d.Err, sinks.ErrNotFound):
			kind = report.KindMissing
		case err == nil:
			kind = report.KindSize
		}
		object := repository.ManifestName(d.Timeline, d.ID)
		if err == nil {
			object = m.Object.Name
		}
		took(c, kind, object, d.Err)
		return nil
	})
	if errors.Is(err, errPruned) {
		e.note("%s was pruned meanwhile, and not looked at", name)
		return nil
	}
	if err != nil {
		return err
	}
	const reason = "its manifest or its object cannot be used: see the rung checksum"
	e.refuseHigher(name, reason)
	e.refuseLive(name, reason)
	return nil
}

// refuseHigher adds the checks above the rung checksum that were asked for and
// cannot be done.
func (r *run) refuseHigher(object, reason string) {
	for _, rung := range report.Rungs() {
		if r.Rung.Includes(rung) && rung != report.Checksum {
			r.add(report.Check{Rung: rung, Object: object, Reason: reason})
		}
	}
}

// checkBackup takes one backup up the rungs. newest says that the log behind it is
// looked at too.
func (h *history) checkBackup(ctx context.Context, m *snapshot.Manifest, newest bool) (err error) {
	name := fullName(m.Timeline, m.ID)
	unpacked, reason := h.makeCopy(m)
	var sealed error
	c, err := h.check(ctx, report.Checksum, name, func(c *report.Check) error {
		var gone bool
		if sealed, gone = h.readBackup(ctx, c, m, unpacked); gone {
			return errPruned
		}
		return nil
	})
	if errors.Is(err, errPruned) {
		h.sample.forget(m.Object.Name)
		h.note("%s was pruned meanwhile, and not looked at", name)
		return unpacked.remove()
	}
	if err != nil {
		return errors.Join(err, unpacked.remove())
	}
	if c.Status == report.Passed {
		h.seen = append(h.seen, verdict.SeenBackup(m))
	}
	switch {
	case !h.Rung.Includes(report.Structure):
		return nil
	case c.Status != report.Passed:
		reason = "its bytes could not be proved: see the rung checksum"
	case sealed != nil:
		reason = sealed.Error()
	case reason == "" && unpacked.err != nil:
		reason = fmt.Sprintf("it could not be unpacked: %v", unpacked.err)
	}
	if reason != "" {
		h.refuseHigher(name, reason)
		h.refuseLive(name, reason)
		return unpacked.remove()
	}
	unpacked.took = c.Took
	h.copies[m.ID] = unpacked
	return h.climb(ctx, m, unpacked, newest)
}
