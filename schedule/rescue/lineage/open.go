package lineage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
)

// timelines are those of a cluster that the repository knows, by number.
func (p *place) timelines(ctx context.Context, cluster uint64) ([]repository.TimelineID, error) {
	ids, err := p.repo.TimelineIDs(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(ids, func(id repository.TimelineID) bool { return id.ClusterID != cluster }), nil
}

// open finds the timeline of the new cluster, or opens it.
func (p *place) open(ctx context.Context) error {
	for {
		ids, err := p.timelines(ctx, p.NewCluster)
		if err != nil {
			return err
		}
		next := 1
		for _, id := range slices.Backward(ids) {
			next = max(next, id.N+1)
			mine, err := p.mine(ctx, id)
			if err != nil || mine {
				p.done.Timeline = id
				return err
			}
		}
		t := p.describe(repository.TimelineID{ClusterID: p.NewCluster, N: next})
		err = p.repo.OpenTimeline(ctx, t)
		if errors.Is(err, sinks.ErrExists) {
			continue // somebody was first: it is looked at
		}
		p.done.Timeline = t.ID
		return err
	}
}

// mine tells whether a timeline of the new cluster is that of this recovery. One
// that was taken back is not, nor one that branches off elsewhere.
func (p *place) mine(ctx context.Context, id repository.TimelineID) (bool, error) {
	ended, is, err := p.repo.Superseded(ctx, id)
	switch {
	case err != nil:
		return false, err
	case is && ended.Undone:
		return false, nil
	case is:
		return false, fmt.Errorf("timeline %s of the new cluster was superseded by %s (%s): the cluster was recovered again", id, ended.By, ended.Reason)
	}
	t, err := p.repo.Timeline(ctx, id)
	switch {
	case errors.Is(err, sinks.ErrNotFound):
		// Something of it was stored, and its descriptor was not, or is gone.
		_, err = p.repo.EnsureTimeline(ctx, p.describe(id))
		return err == nil, err
	case err != nil:
		return false, err
	case t.Parent == nil && p.parent() != nil:
		p.done.Warnings = append(p.done.Warnings, fmt.Sprintf("timeline %s was opened by somebody else first (%s): that it branches off %s at index %d is not recorded there", id, t.Reason, p.Branch.Timeline, p.Branch.RaftIndex))
		return true, nil
	}
	return p.parent() == nil || t.Parent.Timeline == p.Branch.Timeline && t.Parent.RaftIndex == p.Branch.RaftIndex, nil
}

// describe is the descriptor of a timeline that this recovery opens.
func (p *place) describe(id repository.TimelineID) repository.Timeline {
	return repository.Timeline{ID: id, Created: p.Now().UTC(), Reason: p.Reason, Members: p.Members, Parent: p.parent()}
}

// parent is the branch point, or nil.
func (p *place) parent() *repository.Branch {
	if p.Branch.Timeline == (repository.TimelineID{}) {
		return nil
	}
	return &p.Branch
}
