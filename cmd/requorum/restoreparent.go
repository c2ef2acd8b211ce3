package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay"
)

// nameParent adds to an error about a point that a timeline does not cover whether
// one that it goes on from does: after a recovery all that was before it lies there.
// The point itself is not taken from there unasked: histories are not mixed.
func (s *restoreSource) nameParent(ctx context.Context, err error, t walreplay.Target, timeline repository.TimelineID) error {
	var not *walreplay.NotCoveredError
	if !errors.As(err, &not) {
		return err
	}
	seen := []repository.TimelineID{timeline}
	for {
		parent, ok := s.parent(timeline)
		if !ok || slices.Contains(seen, parent) {
			return err
		}
		hint, has := s.inParent(ctx, t, timeline, parent)
		if hint != "" {
			err = fmt.Errorf("%w\n%s", err, hint)
		}
		if has {
			return err
		}
		seen, timeline = append(seen, parent), parent
	}
}

// predates tells of a time before a timeline was opened that goes on from another one.
func (s *restoreSource) predates(t walreplay.Target, timeline repository.TimelineID) bool {
	return t.Kind == walreplay.AtTime && slices.ContainsFunc(s.catalog.Timelines, func(o repository.Timeline) bool {
		return o.ID == timeline && o.Parent != nil && t.Time.Before(o.Created)
	})
}

// parent is the timeline that one goes on from.
func (s *restoreSource) parent(of repository.TimelineID) (repository.TimelineID, bool) {
	for _, t := range s.catalog.Timelines {
		if t.ID == of && t.Parent != nil {
			return t.Parent.Timeline, true
		}
	}
	return repository.TimelineID{}, false
}

// inParent says what the parent has of a point, and whether it has it; nothing where
// it cannot be read: then it is no help.
func (s *restoreSource) inParent(ctx context.Context, t walreplay.Target, child, parent repository.TimelineID) (hint string, has bool) {
	if t.NeedsReplay() && t.Kind != walreplay.AtRevision {
		return fmt.Sprintf("%s goes on from timeline %s, and an earlier change may be there: --timeline %s looks for it", child, parent, parent), true
	}
	h, err := walreplay.OpenArchive(ctx, s.repo, s.catalog, parent, s.identities...)
	if err != nil {
		return "", false
	}
	defer h.Close() //nolint:errcheck // only read
	_, err = h.Resolve(ctx, t, "", walreplay.Options{})
	var not *walreplay.NotCoveredError
	switch {
	case err == nil:
		return fmt.Sprintf("Timeline %s, which %s goes on from, has that point: --timeline %s restores it", parent, child, parent), true
	case errors.As(err, &not) && not.Before != nil:
		return fmt.Sprintf("Timeline %s, which %s goes on from, has the nearest point before it: %s (--timeline %s --index %d)", parent, child, not.Before, parent, not.Before.Index), true
	}
	return "", false
}
