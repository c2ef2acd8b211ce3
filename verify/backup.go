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

// checkBackups takes each backup up the rungs, one after the other: the scratch
// folder holds one database at a time.
func (e *examination) checkBackups(ctx context.Context) error {
	for _, d := range e.damaged {
		if err := e.checkDamaged(ctx, d); err != nil {
			return err
		}
	}
	for _, m := range e.backups {
		if e.sample.leaves(m.Object.Name) {
			continue
		}
		if err := e.checkBackup(ctx, m); err != nil {
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

// checkDamaged reports a backup that the catalog cannot use.
func (e *examination) checkDamaged(ctx context.Context, d snapshot.DamagedBackup) error {
	name := fullName(d.Timeline, d.ID)
	_, err := e.check(ctx, report.Checksum, name, func(c *report.Check) error {
		c.Compared = "the manifest with its own SHA-256 and place, and the size of its object with it"
		// A manifest that can be read has an object that is gone or has another size.
		kind := report.KindManifest
		m, err := snapshot.ReadManifest(ctx, e.repo, d.Timeline, d.ID)
		switch {
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
	if err != nil {
		return err
	}
	e.refuseHigher(name, "its manifest or its object cannot be used: see the rung checksum")
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

// checkBackup takes one backup up the rungs.
func (e *examination) checkBackup(ctx context.Context, m *snapshot.Manifest) (err error) {
	name := fullName(m.Timeline, m.ID)
	unpacked, reason := e.makeCopy(m)
	if unpacked != nil {
		defer func() { err = errors.Join(err, unpacked.remove()) }()
	}
	var sealed error
	c, err := e.check(ctx, report.Checksum, name, func(c *report.Check) error {
		sealed = e.readBackup(ctx, c, m, unpacked)
		return nil
	})
	if err != nil {
		return err
	}
	if c.Status == report.Passed {
		e.seen = append(e.seen, verdict.SeenBackup(m))
	}
	switch {
	case !e.Rung.Includes(report.Structure):
		return nil
	case c.Status != report.Passed:
		reason = "its bytes could not be proved: see the rung checksum"
	case sealed != nil:
		reason = sealed.Error() + ": give an identity with --identity or --passphrase-file"
	}
	if reason == "" && unpacked.err != nil {
		reason = fmt.Sprintf("it could not be unpacked: %v", unpacked.err)
	}
	if reason != "" {
		e.refuseHigher(name, reason)
		return nil
	}
	return e.climb(ctx, name, m, unpacked)
}
