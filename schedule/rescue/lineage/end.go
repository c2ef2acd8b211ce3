package lineage

import (
	"context"
	"errors"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
)

// supersede ends the old cluster's timelines.
func (p *place) supersede(ctx context.Context) error {
	if err := p.open(ctx); err != nil {
		return err
	}
	ids, err := p.timelines(ctx, p.OldCluster)
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		// An agent beside an old member that comes back would open it, and archive a
		// cluster that has ended.
		first := repository.Timeline{ID: repository.TimelineID{ClusterID: p.OldCluster, N: 1}, Created: p.Now().UTC(), Reason: "nothing of it was stored here before its cluster was recovered elsewhere"}
		if _, err := p.repo.EnsureTimeline(ctx, first); err != nil {
			return err
		}
		ids = append(ids, first.ID)
	}
	for _, id := range ids {
		if err := p.end(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// end ends one timeline, unless it has ended.
func (p *place) end(ctx context.Context, id repository.TimelineID) error {
	s := repository.Superseded{Timeline: id, By: p.done.Timeline, Reason: p.Reason, Created: p.Now().UTC()}
	if id == p.Branch.Timeline {
		s.At = p.Branch.RaftIndex
	}
	err := p.repo.Supersede(ctx, s)
	if !errors.Is(err, sinks.ErrExists) {
		if err == nil {
			p.done.Superseded = append(p.done.Superseded, id)
		}
		return err
	}
	ended, _, err := p.repo.Superseded(ctx, id)
	if err == nil && ended.By == p.done.Timeline {
		p.done.Superseded = append(p.done.Superseded, id)
	}
	return err
}

// reinstate ends the new cluster's timelines, so that what they superseded lives.
func (p *place) reinstate(ctx context.Context) error {
	taken, err := p.timelines(ctx, p.NewCluster)
	if err != nil {
		return err
	}
	old, err := p.timelines(ctx, p.OldCluster)
	if err != nil {
		return err
	}
	back := p.Branch.Timeline
	if back == (repository.TimelineID{}) {
		back = repository.TimelineID{ClusterID: p.OldCluster, N: 1}
		if len(old) > 0 {
			back = old[len(old)-1]
		}
	}
	for _, id := range taken {
		p.done.Timeline = id
		s := repository.Superseded{Timeline: id, By: back, Reason: p.Reason, Created: p.Now().UTC()}
		if err := p.repo.Reinstate(ctx, s); err != nil {
			return err
		}
	}
	for _, id := range old {
		if err := p.lives(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// lives notes a timeline that the new cluster had superseded and that lives again.
func (p *place) lives(ctx context.Context, id repository.TimelineID) error {
	_, ended, err := p.repo.Superseded(ctx, id)
	if err != nil || ended {
		return err
	}
	names, err := p.repo.SupersededNames(ctx, id)
	if err != nil {
		return err
	}
	for _, name := range names {
		s, err := p.repo.ReadSuperseded(ctx, name)
		if err != nil {
			return err
		}
		if s.By.ClusterID == p.NewCluster {
			p.done.Reinstated = append(p.done.Reinstated, id)
			break
		}
	}
	return nil
}
