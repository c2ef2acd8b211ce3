package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/archive"
)

// snapshotPatience is how long another archiver that took the snapshot upon
// itself may show none: a snapshot's own deadline, and a little more.
const snapshotPatience = snapshot.DefaultTimeout + time.Minute

// errOtherTakes says that the full snapshot that is due is under way elsewhere.
var errOtherTakes = errors.New("another archiver is taking the full snapshot that is due")

// begin sees to it that a timeline has a full snapshot at all. What becomes due
// later, the archiver says itself.
func (a *archiving) begin(ctx context.Context) error {
	state := a.archiver.State()
	if state.Timeline == (repository.TimelineID{}) {
		return nil // it has not found it yet
	}
	for _, h := range state.Holes {
		if h.Due {
			return fmt.Errorf("entries %d to %d are missing in the archive of timeline %s: unless an archiver puts them back, a full snapshot is taken", h.First, h.Last, state.Timeline)
		}
	}
	return a.onGap(ctx, archive.Gap{Timeline: state.Timeline.String(), First: 1})
}

// beginAgain is how soon the first full snapshot is tried again.
const beginAgain = time.Minute

// keepBeginning calls begin until the first timeline has a full snapshot.
func (a *archiving) keepBeginning(ctx context.Context) {
	told := ""
	for wait := look; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if s := a.archiver.State(); s.Archived == 0 || s.Checked.IsZero() {
			continue
		}
		err := a.begin(ctx)
		if err == nil {
			a.archiver.LookAgain()
			return
		}
		if ctx.Err() != nil {
			return
		}
		if text := err.Error(); text != told {
			a.report.note(text)
			told = text
		}
		wait = beginAgain
	}
}

// covers tells that a full snapshot is there which the log behind a gap goes on
// from, up to its end: another hole behind the snapshot makes it useless. One
// that was begun before the gap was found may be of the history before it, at
// whatever index.
func covers(ctx context.Context, repo *repository.Repository, catalog *snapshot.Catalog, timeline repository.TimelineID, gap archive.Gap) (bool, error) {
	fits := func(m *snapshot.Manifest) bool {
		return m.Timeline == timeline && m.Facts.RaftIndex+1 >= gap.First && (gap.Found.IsZero() || m.Started.After(gap.Found))
	}
	if !slices.ContainsFunc(catalog.Manifests, fits) {
		return false, nil // all the headers need not be read for that
	}
	log, err := walreplay.OpenArchive(ctx, repo, catalog, timeline)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(log.Bases(), func(b *walreplay.Base) bool { return fits(b.Manifest) && log.Unbroken(b) }), nil
}

// onGap sees to it that there is a full snapshot which the log behind a gap
// goes on from. Its error is why there is none yet; it is called again.
func (a *archiving) onGap(ctx context.Context, gap archive.Gap) error {
	timeline, err := repository.ParseTimelineID(gap.Timeline)
	if err != nil {
		return err
	}
	repo, err := repository.Open(ctx, a.config.Sink)
	if err != nil {
		return err
	}
	a.snapshots.Lock()
	defer a.snapshots.Unlock()
	catalog, err := snapshot.ReadCatalog(ctx, repo)
	if err != nil {
		return err
	}
	if covered, err := covers(ctx, repo, catalog, timeline, gap); covered || err != nil {
		return err // nil: another one took it
	}
	if a.options.noSnapshot {
		return fmt.Errorf("timeline %s: nothing that is archived from index %d on can be restored until there is a full snapshot: take one with 'requorum backup' (--no-snapshot was given)", timeline, gap.First)
	}
	if a.claims == nil {
		a.claims = repo.Claimant("snapshot", a.archiver.State().Member, snapshotPatience)
	}
	_, held, err := a.claims.Try(ctx, fmt.Sprintf("%s-%016x", timeline, gap.First), "")
	switch {
	case err != nil:
		return err
	case !held:
		return errOtherTakes
	}
	result, err := snapshot.Take(ctx, snapshot.Request{
		Client: a.config.Client, Sinks: []sinks.Sink{a.config.Sink}, Codec: a.config.Codec, Tool: a.config.Tool,
		Timeline: timeline, Reached: archive.Reached, Logger: a.config.Logger,
	})
	if err != nil {
		return err
	}
	a.report.backup(result.Outcomes[0].Manifest)
	return nil
}
