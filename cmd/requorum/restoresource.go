package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

// restoreSource is what a restore reads: a backup in a repository, or a file.
type restoreSource struct {
	image   snapshot.Image
	highest int64 // revision that is known anywhere in the lineage

	// For a backup in a repository.
	repo       *repository.Repository
	manifest   *snapshot.Manifest
	catalog    *snapshot.Catalog
	identities []age.Identity
}

func (s *restoreSource) close() error {
	if s.repo == nil {
		return nil
	}
	return s.repo.Sink().Close()
}

func (s *restoreSource) url() string {
	if s.repo == nil {
		return ""
	}
	return s.repo.String()
}

func (s *restoreSource) backupID() string {
	if s.manifest == nil {
		return ""
	}
	return s.manifest.ID
}

// openSource finds what to restore from. A plan that was read names its source
// itself; its repository may be reached by another URL from here.
func (g *globals) openSource(ctx context.Context, o *restoreOptions, args []string, plan *restore.Plan) (*restoreSource, error) {
	repo := o.repo
	if plan != nil {
		if len(args) > 0 {
			return nil, usageError{errors.New("the plan names the backup: leave the ID out")}
		}
		if plan.Source.BackupID != "" {
			args = []string{plan.Source.BackupID}
			if len(repo.urls) == 0 {
				repo.urls = []string{plan.Source.Repository}
			}
		} else if o.file == "" {
			o.file = plan.Source.Name
		}
	}
	if o.file != "" {
		if err := restore.CheckFileIdle(o.file); err != nil {
			return nil, err
		}
		file, err := snapshot.OpenFile(o.file)
		if err != nil {
			return nil, err
		}
		return &restoreSource{image: file}, nil
	}
	identities, err := o.identities.parse()
	if err != nil {
		return nil, err
	}
	s := &restoreSource{identities: identities}
	if s.repo, err = repo.openRepository(ctx, g); err != nil {
		return nil, err
	}
	if s.manifest, s.catalog, err = findBackup(ctx, s.repo, args, o.timeline); err != nil {
		return nil, errors.Join(s.nameOlder(ctx, g, err), s.close())
	}
	s.image = snapshot.OpenStored(s.repo, s.manifest, identities...)
	s.highest = s.catalog.HighestRevision()
	return s, nil
}

// nameOlder adds to an error about a damaged backup which older one is good.
func (s *restoreSource) nameOlder(ctx context.Context, g *globals, err error) error {
	var (
		damaged  *snapshot.DamagedError
		manifest *snapshot.DamagedManifestError
		older    *snapshot.Manifest
	)
	switch {
	case s.catalog == nil || !errors.As(err, &damaged):
		return err
	case errors.As(err, &manifest):
		older = s.catalog.OlderThanDamaged(manifest.DamagedBackup)
	case s.manifest != nil:
		older = s.catalog.Older(s.manifest)
	}
	meter := g.newMeter()
	defer meter.finish()
	for m := older; m != nil; m = s.catalog.Older(m) {
		if readWhole(ctx, snapshot.OpenStored(s.repo, m, s.identities...), meter) == nil {
			return fmt.Errorf("%w\nNothing was restored. The next older backup is whole: %s, revision %d, taken %s", err, m.ID, m.Facts.Revision, when(m.Started))
		}
	}
	return fmt.Errorf("%w\nNothing was restored. No older backup of this timeline is whole", err)
}

func readWhole(ctx context.Context, image snapshot.Image, meter *meter) error {
	r, err := image.Open(ctx)
	if err != nil {
		return err
	}
	_, err = io.Copy(&meterWriter{meter: meter, phase: "look for an older backup", total: image.Size()}, r)
	return errors.Join(err, r.Close())
}

// meterWriter counts bytes for a meter and throws them away.
type meterWriter struct {
	meter       *meter
	phase       string
	done, total int64
}

func (w *meterWriter) Write(p []byte) (int, error) {
	w.done += int64(len(p))
	w.meter.update(w.phase, w.done, w.total)
	return len(p), nil
}

// restoredFrom tells by which plan and from what a timeline was opened.
func (s *restoreSource) restoredFrom(p *restore.Plan) string {
	return fmt.Sprintf("restored from backup %s by plan %s", s.manifest.ID, p.ID)
}

// checkTimeline refuses to give a second history the cluster ID of one that
// the repository knows: their backups could not be told apart.
func (s *restoreSource) checkTimeline(p *restore.Plan) error {
	if s.repo == nil {
		return nil
	}
	for _, t := range s.catalog.Timelines {
		if t.ID.ClusterID == uint64(p.ClusterID) && t.Reason != s.restoredFrom(p) {
			return usageError{fmt.Errorf("the repository knows cluster %s already (timeline %s: %s): with the same token and peer URLs the new cluster would get its ID, and their histories would mix; leave --initial-cluster-token out, or give another one",
				p.ClusterID, t.ID, t.Reason)}
		}
	}
	return nil
}

// recordTimeline notes in the repository where the new cluster's history comes
// from. That a restore may read the repository but not write to it is common;
// it does not fail for that, but says so.
func (s *restoreSource) recordTimeline(ctx context.Context, r *restore.Result, report *restoreReport) {
	if s.repo == nil {
		return
	}
	var names []string
	for _, m := range r.Plan.Members {
		names = append(names, m.Name)
	}
	t := repository.Timeline{
		ID:      repository.TimelineID{ClusterID: uint64(r.Plan.ClusterID), N: 1},
		Created: time.Now().UTC().Truncate(time.Second),
		Reason:  s.restoredFrom(r.Plan),
		Parent: &repository.Branch{Timeline: s.manifest.Timeline, Backup: s.manifest.ID,
			RaftIndex: s.manifest.Facts.RaftIndex, Revision: s.manifest.Facts.Revision},
		Members: names,
	}
	report.Timeline = t.ID.String()
	found, err := s.repo.EnsureTimeline(ctx, t)
	if err == nil && found.Reason != t.Reason {
		err = fmt.Errorf("another history has that name there: %s", found.Reason)
	}
	if err != nil {
		report.TimelineError = err.Error()
	}
}
