package verify

import (
	"context"
	"errors"
	"slices"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
)

// selection is what of a repository is looked at.
type selection struct {
	all       bool
	timelines []repository.TimelineID
	backups   []*snapshot.Manifest
	damaged   []snapshot.DamagedBackup
	logs      []logPart
}

// logPart is the part of a timeline's log from an index on.
type logPart struct {
	timeline repository.TimelineID
	from     uint64 // 0: from its beginning
}

// choose finds what was asked for. Nothing that matches is snapshot.ErrNoBackup,
// and more than one history snapshot.ErrAmbiguous.
func choose(ctx context.Context, repo *repository.Repository, r Request) (*selection, *snapshot.Catalog, error) {
	if r.Backup == All {
		c, err := snapshot.ReadCatalog(ctx, repo)
		if err != nil {
			return nil, nil, err
		}
		s, err := chooseAll(ctx, repo, c, r.Timeline)
		return s, c, err
	}
	m, c, err := walreplay.FindIn(ctx, repo, r.Backup, r.Timeline)
	var damaged *snapshot.DamagedManifestError
	switch {
	case errors.As(err, &damaged):
		s := &selection{timelines: []repository.TimelineID{damaged.Timeline}, damaged: []snapshot.DamagedBackup{damaged.DamagedBackup}}
		if r.Backup == Latest { // from where on its log goes nobody can tell
			s.logs = []logPart{{damaged.Timeline, 0}}
		}
		return s, c, nil
	case r.Backup == Latest && errors.Is(err, snapshot.ErrNoBackup): // verdicts may know of some: see refuseNothing
		s, err := chooseAll(ctx, repo, c, r.Timeline)
		return s, c, err
	case err != nil:
		return nil, nil, err
	}
	s := &selection{timelines: []repository.TimelineID{m.Timeline}, backups: []*snapshot.Manifest{m}}
	if r.Backup == Latest {
		s.logs = []logPart{{m.Timeline, m.Facts.RaftIndex}}
	}
	return s, c, nil
}

// chooseAll takes everything, or everything in one timeline.
func chooseAll(ctx context.Context, repo *repository.Repository, c *snapshot.Catalog, timeline string) (*selection, error) {
	ids, err := repo.TimelineIDs(ctx)
	if err != nil {
		return nil, err
	}
	s := &selection{all: timeline == ""}
	for _, id := range ids {
		if timeline != "" && timeline != id.String() {
			continue
		}
		s.timelines = append(s.timelines, id)
		s.logs = append(s.logs, logPart{timeline: id})
	}
	for _, m := range c.Manifests {
		if slices.Contains(s.timelines, m.Timeline) {
			s.backups = append(s.backups, m)
		}
	}
	for _, d := range c.Damaged {
		if slices.Contains(s.timelines, d.Timeline) {
			s.damaged = append(s.damaged, d)
		}
	}
	if timeline != "" && len(s.timelines) == 0 { // all of it is gone, or it never was
		id, err := repository.ParseTimelineID(timeline)
		if err != nil {
			_, err = c.Find(Latest, timeline)
			return nil, err
		}
		s.timelines = append(s.timelines, id)
	}
	return s, nil
}
