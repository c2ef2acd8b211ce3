// Timelines: the recovery writes into repositories that a cluster goes on in another one.
//
// It promises:
//
//  1. Whatever it was that stopped it, doing it again ends in the same state: each
//     document is written once, and found by the next run.
//  2. A repository that cannot be written stops nothing in the others.
//  3. A recovery that was taken back can be taken back and made again, any number
//     of times: no document is changed or deleted.

package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
)

// TimelinesRequest says which cluster goes on in the place of which timeline.
type TimelinesRequest struct {
	Repositories []*repository.Repository
	// NewCluster is the ID of the cluster that goes on, Members its members' names.
	NewCluster uint64
	Members    []string
	// OldCluster is the ID of the cluster that ended: all its timelines end.
	OldCluster uint64
	// Branch is where the new history leaves that of the timeline that was recovered.
	// A zero Timeline says that no repository knew the old history: the new timeline
	// has no parent then.
	Branch repository.Branch
	Reason string
	Now    func() time.Time // nil: time.Now
}

// timelinesTimeout is how long one repository may take.
const timelinesTimeout = 30 * time.Second

// TimelinesDone is what was done in one repository.
type TimelinesDone struct {
	Repository string                `json:"repository"`
	Timeline   repository.TimelineID `json:"timeline,omitzero"` // of the new cluster; zero where it could not be found out
	// Superseded are the old timelines that have ended, Reinstated those that live
	// again.
	Superseded []repository.TimelineID `json:"superseded,omitempty"`
	Reinstated []repository.TimelineID `json:"reinstated,omitempty"`
	Warnings   []string                `json:"warnings,omitempty"`
	// Failed says why this repository does not know of the recovery; empty where it
	// does. Doing it again goes on.
	Failed string `json:"failed,omitempty"`
}

// OpenTimelines opens the timeline of the new cluster in each repository, with its parent
// and branch point. It belongs before the start of the new members: an agent that
// finds none opens one itself, without a parent. Done again it finds its own.
func OpenTimelines(ctx context.Context, r TimelinesRequest) []TimelinesDone {
	return r.each(ctx, (*timelinesPlace).open)
}

// SupersedeTimelines ends all living timelines of the old cluster in favour of the new one,
// opening that where Open did not. Where a repository has nothing of the old
// cluster, it learns of it now: its members must not begin anew there. Done again
// it changes nothing.
func SupersedeTimelines(ctx context.Context, r TimelinesRequest) []TimelinesDone {
	return r.each(ctx, (*timelinesPlace).supersede)
}

// ReinstateTimelines takes a recovery back: the new cluster's timelines end, and what they
// superseded lives again. Done again it changes nothing.
func ReinstateTimelines(ctx context.Context, r TimelinesRequest) []TimelinesDone {
	return r.each(ctx, (*timelinesPlace).reinstate)
}

// timelinesPlace is one repository.
type timelinesPlace struct {
	TimelinesRequest
	repo *repository.Repository
	done TimelinesDone
}

// each does something in all repositories at once: one that does not answer takes
// no time from the others.
func (r TimelinesRequest) each(ctx context.Context, do func(*timelinesPlace, context.Context) error) []TimelinesDone {
	if r.Now == nil {
		r.Now = time.Now
	}
	all := make([]TimelinesDone, len(r.Repositories))
	var wg sync.WaitGroup
	for i, repo := range r.Repositories {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, timelinesTimeout)
			defer cancel()
			p := &timelinesPlace{r, repo, TimelinesDone{Repository: repo.String()}}
			if err := p.check(); err != nil {
				p.done.Failed = err.Error()
			} else if err := do(p, ctx); err != nil {
				p.done.Failed = err.Error()
			}
			all[i] = p.done
		})
	}
	wg.Wait()
	return all
}

func (p *timelinesPlace) check() error {
	if p.NewCluster == 0 || p.OldCluster == 0 || p.NewCluster == p.OldCluster {
		return fmt.Errorf("cluster %016x cannot go on as cluster %016x: a recovered cluster has an ID of its own", p.OldCluster, p.NewCluster)
	}
	return nil
}

// timelines are those of a cluster that the repository knows, by number.
func (p *timelinesPlace) timelines(ctx context.Context, cluster uint64) ([]repository.TimelineID, error) {
	ids, err := p.repo.TimelineIDs(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(ids, func(id repository.TimelineID) bool { return id.ClusterID != cluster }), nil
}

// open finds the timeline of the new cluster, or opens it.
func (p *timelinesPlace) open(ctx context.Context) error {
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
		free, err := p.repo.FreeTimeline(ctx, repository.TimelineID{ClusterID: p.NewCluster, N: next})
		if err != nil {
			return err
		}
		t := p.describe(free)
		err = p.repo.OpenTimeline(ctx, t)
		if errors.Is(err, sinks.ErrExists) {
			continue // somebody was first: it is looked at
		}
		p.done.Timeline = t.ID
		return err
	}
}

// mine reports whether a timeline of the new cluster is that of this recovery. One
// that was taken back is not, nor one that branches off elsewhere.
func (p *timelinesPlace) mine(ctx context.Context, id repository.TimelineID) (bool, error) {
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
func (p *timelinesPlace) describe(id repository.TimelineID) repository.Timeline {
	return repository.Timeline{ID: id, Created: p.Now().UTC(), Reason: p.Reason, Members: p.Members, Parent: p.parent()}
}

// parent is the branch point, or nil.
func (p *timelinesPlace) parent() *repository.Branch {
	if p.Branch.Timeline == (repository.TimelineID{}) {
		return nil
	}
	return &p.Branch
}

// supersede ends the old cluster's timelines.
func (p *timelinesPlace) supersede(ctx context.Context) error {
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
		free, err := p.repo.FreeTimeline(ctx, repository.TimelineID{ClusterID: p.OldCluster, N: 1})
		if err != nil {
			return err
		}
		first := repository.Timeline{ID: free, Created: p.Now().UTC(), Reason: "nothing of it was stored here before its cluster was recovered elsewhere"}
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
func (p *timelinesPlace) end(ctx context.Context, id repository.TimelineID) error {
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
func (p *timelinesPlace) reinstate(ctx context.Context) error {
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
func (p *timelinesPlace) lives(ctx context.Context, id repository.TimelineID) error {
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
