package replaying

import (
	"context"
	"errors"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
)

// Newest is what a replay of the log behind the newest full snapshot of a timeline
// gave.
type Newest struct {
	Check report.Check
	// LogAfter reports whether the log goes beyond that snapshot. Where it does not,
	// there is no check.
	LogAfter bool
	// Rebuilt is what a restore of the newest point gives; the check's phases are
	// how long that took. Nil unless the check passed. The caller closes it.
	Rebuilt *walreplay.Rebuilt
}

// CheckNewest replays the log behind the newest full snapshot of a timeline to its
// end, as a restore of the newest point does: no snapshot behind it proves these
// entries yet. The error is as Check's.
func CheckNewest(ctx context.Context, repo *repository.Repository, c *snapshot.Catalog, t repository.TimelineID, o Options) (n Newest, err error) {
	k := newChecking(t.String()+"/log", o)
	h, err := walreplay.NewInventory(repo, c, o.Identities...).History(ctx, t)
	if err == nil {
		bases := h.Bases()
		if len(bases) == 0 || h.Reach(bases[len(bases)-1]) == bases[len(bases)-1].Index() {
			return Newest{}, nil
		}
		n.Rebuilt, err = k.newest(ctx, h, bases[len(bases)-1])
	}
	k.err, n.LogAfter = err, true
	n.Check, err = k.end(ctx)
	if n.Rebuilt != nil && (err != nil || n.Check.Status != report.Passed) {
		err = errors.Join(err, n.Rebuilt.Close())
		n.Rebuilt = nil
	}
	return n, err
}

// newest rebuilds the newest point.
func (k *checking) newest(ctx context.Context, h *walreplay.History, b *walreplay.Base) (*walreplay.Rebuilt, error) {
	o := k.o.walreplay("")
	p, err := h.Resolve(ctx, walreplay.Target{Kind: walreplay.Latest}, b.ID, o)
	if err != nil {
		return nil, err
	}
	p.Base = k.o.unpacked(p.Base)
	began := time.Now()
	r, err := h.Rebuild(ctx, p, o)
	if err != nil {
		return nil, unsound(err)
	}
	k.Phases = append(k.Phases, PhasesOf(r, time.Since(began))...)
	k.Bytes = r.Size() + p.Bytes
	k.say("the %d entries of the log after %s (raft index %d) were applied to a copy of it by etcd's own applier, up to raft index %d: revision %d, HashKV %d",
		r.Recipe.Entries, b.Name, b.Index(), r.Recipe.Index, r.Recipe.Revision, r.Recipe.HashKV.Hash)
	if r.Recipe.Unproven != "" {
		k.say("%s", r.Recipe.Unproven)
	}
	return r, nil
}

// PhasesOf are the phases of a rebuild that took so long: what its own ones leave
// is the pass over the result.
func PhasesOf(r *walreplay.Rebuilt, all time.Duration) []report.Phase {
	var phases []report.Phase
	for _, t := range r.Phases {
		phases = append(phases, report.Phase{Name: string(t.Phase), Took: t.Took})
		all -= t.Took
	}
	return append(phases, report.Phase{Name: string(walreplay.PhaseProve), Took: all})
}
