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
		branch := s.branch(timeline)
		if branch == nil || slices.Contains(seen, branch.Timeline) {
			return err
		}
		hint, has := s.inParent(ctx, t, timeline, branch, not.Before == nil)
		if hint != "" {
			err = fmt.Errorf("%w\n%s", err, hint)
		}
		if has {
			return err
		}
		timeline = branch.Timeline
		seen = append(seen, timeline)
	}
}

// predates tells of a time before a timeline was opened that goes on from another one.
func (s *restoreSource) predates(t walreplay.Target, timeline repository.TimelineID) bool {
	return t.Kind == walreplay.AtTime && slices.ContainsFunc(s.catalog.Timelines, func(o repository.Timeline) bool {
		return o.ID == timeline && o.Parent != nil && t.Time.Before(o.Created)
	})
}

// branch is where a timeline leaves the one that it goes on from; nil where there is
// none.
func (s *restoreSource) branch(of repository.TimelineID) *repository.Branch {
	for _, t := range s.catalog.Timelines {
		if t.ID == of {
			return t.Parent
		}
	}
	return nil
}

// inParent says what the parent has of a point, and whether it has it; nothing where
// it cannot be read: then it is no help. What is nearest is told on request: where the
// child has a point before it, that one is nearer.
func (s *restoreSource) inParent(ctx context.Context, t walreplay.Target, child repository.TimelineID, branch *repository.Branch, nearest bool) (hint string, has bool) {
	parent := branch.Timeline
	if t.NeedsReplay() && t.Kind != walreplay.AtRevision {
		return fmt.Sprintf("%s goes on from timeline %s, and an earlier change may be there: --timeline %s looks for it", child, parent, parent), true
	}
	h, err := walreplay.OpenArchive(ctx, s.repo, s.catalog, parent, s.identities...)
	if err != nil {
		return "", false
	}
	defer h.Close() //nolint:errcheck // only read
	point, err := h.Resolve(ctx, t, "", walreplay.Options{})
	var not *walreplay.NotCoveredError
	switch {
	case err == nil && behind(point, branch):
		return fmt.Sprintf("Timeline %s has that point, but behind raft index %d, which is where %s left it: that is another history (--timeline %s restores it)", parent, branch.RaftIndex, child, parent), true
	case err == nil:
		return fmt.Sprintf("Timeline %s, which %s goes on from, has that point: --timeline %s restores it", parent, child, parent), true
	case nearest && errors.As(err, &not) && not.Before != nil:
		return fmt.Sprintf("Timeline %s, which %s goes on from, has the nearest point before it: %s (--timeline %s --index %d)", parent, child, not.Before, parent, not.Before.Index), true
	}
	return "", false
}

// behind tells of a point that comes after the one at which a timeline was left.
func behind(p *walreplay.Point, left *repository.Branch) bool {
	if p.Target.Kind == walreplay.AtRevision { // the index is known only once it is replayed
		return left.Revision > 0 && p.Target.Revision > left.Revision
	}
	return left.RaftIndex > 0 && p.Last > left.RaftIndex
}
