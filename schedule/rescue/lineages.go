package rescue

import (
	"context"
	"errors"
	"fmt"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/schedule/rescue/lineage"
	"github.com/requorum/requorum/sinks/repository"
)

// branch is the timeline that the new cluster's history leaves.
type branch struct {
	Timeline repository.TimelineID `json:"timeline,omitzero"`
	Backup   string                `json:"backup,omitempty"`
}

// branchOf finds it: the archive's that is replayed, or the newest one of the old
// cluster that the chosen history is archived in. A zero one is none that is known.
func branchOf(p *Prospect) *branch {
	c := p.Plan.Candidate(p.Plan.Chosen)
	b := &branch{Timeline: c.Source.Base.Timeline, Backup: c.Source.Base.Backup}
	if b.Timeline != (repository.TimelineID{}) || c.History == 0 {
		return b
	}
	for _, h := range p.Plan.Histories {
		if h.Number != c.History {
			continue
		}
		for _, t := range h.Timelines {
			if t.ClusterID == uint64(p.Plan.ClusterID) && (b.Timeline.ClusterID == 0 || t.N > b.Timeline.N) && lives(p.Findings, t) {
				b.Timeline = t
			}
		}
	}
	return b
}

func lives(f *recovery.Findings, t repository.TimelineID) bool {
	for _, a := range f.Archives {
		if a.Timeline == t {
			return a.Superseded == nil
		}
	}
	return false
}

// lineage opens the repositories, and says what goes on in whose place.
func (d *driver) lineage(ctx context.Context, do func(context.Context, lineage.Request) []lineage.Done) (done []lineage.Done, err error) {
	if len(d.cfg.Repositories) == 0 {
		return nil, nil
	}
	repos, err := d.repositories(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, repos.close()) }()
	for _, u := range repos.unread() {
		done = append(done, lineage.Done{Repository: u.Repository, Failed: u.Reason})
	}
	if len(repos.opened()) == 0 {
		return done, nil
	}
	req, err := d.lineageRequest()
	if err != nil {
		return nil, err
	}
	req.Repositories = repos.opened()
	return append(do(ctx, req), done...), nil
}

func (d *driver) lineageRequest() (lineage.Request, error) {
	dec := d.known.decision
	req := lineage.Request{
		NewCluster: uint64(dec.NewClusterID), Members: dec.names(), OldCluster: uint64(dec.Plan.ClusterID),
		Reason: "recovered after the loss of its quorum, run " + d.run, Now: d.now,
	}
	if dec.Branch != nil {
		req.Branch = repository.Branch{Timeline: dec.Branch.Timeline, Backup: dec.Branch.Backup}
	}
	all, err := d.rebuilt()
	if err != nil {
		return req, err
	}
	first := all[sortedKeys(all)[0]]
	req.Branch.RaftIndex, req.Branch.Revision = first.Index, first.Revision
	for _, b := range all {
		if b.Recipe != nil && b.Recipe.Chain != nil {
			req.Branch.Chain = b.Recipe.Chain.String()
		}
	}
	return req, nil
}

// openTimeline opens the new cluster's timeline before its members start: an agent
// that finds none opens one itself, without a parent. A repository that is away
// must not keep the cluster down.
func (d *driver) openTimeline(ctx context.Context) error {
	if len(d.cfg.Repositories) == 0 || d.known.done(PhaseLineage, "") {
		return nil
	}
	return d.whole(ctx, PhaseLineage, func(ctx context.Context) (outcome, error) {
		done, err := d.lineage(ctx, lineage.Open)
		if err != nil {
			return outcome{}, err
		}
		for _, f := range failures(done) {
			d.told.warn("the new timeline is not opened yet in " + f)
		}
		return outcome{result: done, detail: timelineWords(done)}, nil
	})
}

func timelineWords(done []lineage.Done) string {
	for _, l := range done {
		if l.Failed == "" {
			return "timeline " + l.Timeline.String()
		}
	}
	return "in no repository"
}

func failures(done []lineage.Done) (all []string) {
	for _, l := range done {
		if l.Failed != "" {
			all = append(all, fmt.Sprintf("%s: %s", l.Repository, l.Failed))
		}
	}
	return all
}
