package lineage

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/requorum/requorum/sinks/repository"
)

// Request says which cluster goes on in the place of which timeline.
type Request struct {
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
	// Timeout bounds the work in one repository; 0 is DefaultTimeout.
	Timeout time.Duration
}

// DefaultTimeout is how long one repository may take.
const DefaultTimeout = 30 * time.Second

// Done is what was done in one repository.
type Done struct {
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

// Open opens the timeline of the new cluster in each repository, with its parent
// and branch point. It belongs before the start of the new members: an agent that
// finds none opens one itself, without a parent. Done again it finds its own.
func Open(ctx context.Context, r Request) []Done { return r.each(ctx, (*place).open) }

// Supersede ends all living timelines of the old cluster in favour of the new one,
// opening that where Open did not. Where a repository has nothing of the old
// cluster, it learns of it now: its members must not begin anew there. Done again
// it changes nothing.
func Supersede(ctx context.Context, r Request) []Done { return r.each(ctx, (*place).supersede) }

// Reinstate takes a recovery back: the new cluster's timelines end, and what they
// superseded lives again. Done again it changes nothing.
func Reinstate(ctx context.Context, r Request) []Done { return r.each(ctx, (*place).reinstate) }

// place is one repository.
type place struct {
	Request
	repo *repository.Repository
	done Done
}

// each does something in all repositories at once: one that does not answer takes
// no time from the others.
func (r Request) each(ctx context.Context, do func(*place, context.Context) error) []Done {
	if r.Now == nil {
		r.Now = time.Now
	}
	all := make([]Done, len(r.Repositories))
	var wg sync.WaitGroup
	for i, repo := range r.Repositories {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, cmp.Or(r.Timeout, DefaultTimeout))
			defer cancel()
			p := &place{r, repo, Done{Repository: repo.String()}}
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

func (p *place) check() error {
	if p.NewCluster == 0 || p.OldCluster == 0 || p.NewCluster == p.OldCluster {
		return fmt.Errorf("cluster %016x cannot go on as cluster %016x: a recovered cluster has an ID of its own", p.OldCluster, p.NewCluster)
	}
	return nil
}
