package walreplay

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/segment"
)

// FindIn reads a repository's catalog and finds one backup in it, as
// snapshot.Catalog.Find does. For the newest state it looks up whether timelines
// that others branch off went on: it lists their logs and reads headers.
func FindIn(ctx context.Context, repo *repository.Repository, ref, timeline string) (*snapshot.Manifest, *snapshot.Catalog, error) {
	c, err := snapshot.ReadCatalog(ctx, repo)
	if err != nil {
		return nil, nil, err
	}
	if ref == snapshot.Latest && timeline == "" {
		if err := addArchived(ctx, repo, c); err != nil {
			return nil, nil, err
		}
	}
	m, err := c.Find(ref, timeline)
	return m, c, err
}

// addArchived fills in c.Archived for all timelines that others branch off, and
// for those others: nothing depends on that of the rest.
func addArchived(ctx context.Context, repo *repository.Repository, c *snapshot.Catalog) error {
	c.Archived = map[repository.TimelineID]snapshot.Archived{}
	for _, t := range c.Timelines {
		var a snapshot.Archived
		var err error
		switch {
		case slices.ContainsFunc(c.Timelines, func(o repository.Timeline) bool { return o.Parent != nil && o.Parent.Timeline == t.ID }):
			a, err = lastSeen(ctx, repo, t.ID)
		case t.Parent != nil:
			a, err = ending(ctx, repo, t.ID)
		default:
			continue
		}
		if err != nil {
			return fmt.Errorf("find the end of timeline %s in %s: %w", t.ID, repo, err)
		}
		c.Archived[t.ID] = a
	}
	return nil
}

// ending tells whether a timeline was ended by a mark.
func ending(ctx context.Context, repo *repository.Repository, t repository.TimelineID) (snapshot.Archived, error) {
	ended, is, err := repo.Superseded(ctx, t)
	if errors.Is(err, repository.ErrAltered) {
		err = nil // in doubt it went on: the user is asked then
	}
	return snapshot.Archived{Superseded: is, Undone: is && ended.Undone}, err
}

func lastSeen(ctx context.Context, repo *repository.Repository, t repository.TimelineID) (snapshot.Archived, error) {
	a, err := ending(ctx, repo, t)
	if err != nil {
		return a, err
	}
	log, err := segment.OpenLog(ctx, repo, t)
	if err != nil {
		return a, err
	}
	for _, h := range log.Headers() {
		// One without marks was read while catching up, from a member that answered.
		seen := h.LastMark
		if h.Level == 0 && h.Cut.After(seen) {
			seen = h.Cut
		}
		if seen.After(a.Seen) {
			a.Seen = seen
		}
	}
	for _, m := range log.Alive() {
		if m.Time.After(a.Seen) {
			a.Seen = m.Time
		}
	}
	return a, nil
}
