package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/snapshot"
)

// owners are those whose data any of a source's ways is made of.
func owners(s *sources.Source) (all []string) {
	for _, way := range s.Ways() {
		all = append(all, way.Owners()...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// rebuildPlan is what every host builds.
func (d *decision) rebuildPlan() host.RebuildPlan {
	p := host.RebuildPlan{
		ID: d.PlanID, Old: d.Plan.ClusterID, New: d.NewClusterID, Source: *d.candidate().Source, Target: d.Asked.Target,
		InitialCluster: d.initialCluster(), ClusterToken: d.ClusterToken, Learners: d.learners(),
		Bump: d.Bump, Replay: d.Asked.Replay,
	}
	if d.Plan.Named { // then it is that one, and none beside it
		p.Source.Others = nil
	}
	// Of a source that is whole the highest revision is a bound, not one that was
	// seen.
	if raises(d.Bump) {
		p.HighestKnown = d.Plan.Bump.HighestKnown
	}
	return p
}

// rebuild has each host bring over what is missing there, replay it and build its
// member; what they came to has to be the same.
func (d *coordinator) rebuild(ctx context.Context) error {
	dec := d.decision
	plan := dec.rebuildPlan()
	// Archives are not among them: a host reads the repositories that it was given.
	reached := slices.DeleteFunc(owners(&plan.Source), func(owner string) bool {
		h := d.host(owner)
		return h == nil || h.state.Unreachable != ""
	})
	beside := d.compareWith(&plan.Source)
	all := map[string]*host.Rebuilt{}
	err := d.each(ctx, PhaseRebuild, d.getting(), func(ctx context.Context, h *participant) (string, error) {
		built, err := act(ctx, d, PhaseRebuild, h, func(ctx context.Context) (*host.Rebuilt, error) {
			plan := plan
			plan.CompareWith = beside[h.Member]
			return h.client.Rebuild(ctx, plan, reached)
		})
		if err != nil {
			return "", err
		}
		if built.Restore == nil || built.Restore.Plan == nil {
			return "", errors.New("it does not say what was built: take the run back with --undo")
		}
		d.mu.Lock()
		all[h.Member] = built
		d.mu.Unlock()
		for _, n := range built.Notes {
			d.reporter.note(h.Member + ": " + n)
		}
		return builtWords(built), nil
	})
	if err != nil {
		return err
	}
	if what := differences(dec, all); len(what) > 0 {
		return &DifferError{Run: d.run, What: what, Outcomes: outcomes(dec.Plan, all)}
	}
	image := anyImage(all) // one is enough for the proof, and it may name many users
	for _, b := range all {
		if b.Image != image {
			b.Image = nil
		}
	}
	dec.Built, dec.BuiltAt = all, time.Now()
	return d.store(ctx)
}

func builtWords(b *host.Rebuilt) string {
	if b.Earlier {
		return "built before"
	}
	bytes := int64(0)
	for _, from := range b.Brought {
		if from.From != host.HereName {
			bytes += from.Bytes
		}
	}
	words := fmt.Sprintf("revision %d, raft index %d", b.Revision, b.Index)
	if bytes > 0 {
		words += fmt.Sprintf(", %s brought over", humanize.IBytes(uint64(bytes)))
	}
	return words
}

// first is what any host built; nil where it is not known that all came to the same.
func (d *decision) first() *host.Rebuilt {
	if d.Built == nil {
		return nil
	}
	return d.Built[sortedKeys(d.Built)[0]]
}

// differences compares what the hosts came to with the first one, and with the plan.
func differences(dec *decision, all map[string]*host.Rebuilt) (what []string) {
	what = unlike(dec.NewClusterID, all)
	first := all[sortedKeys(all)[0]]
	if dec.Asked.Target == (decision{}).Asked.Target && first.Index != dec.candidate().Source.Index {
		what = append(what, fmt.Sprintf("all came to raft index %d, and %d was planned", first.Index, dec.candidate().Source.Index))
	}
	return what
}

// unlike compares what the hosts came to with the first one, and with the cluster that
// they were to build.
func unlike(cluster snapshot.ID, all map[string]*host.Rebuilt) (what []string) {
	names := sortedKeys(all)
	first := all[names[0]]
	for _, name := range names {
		b := all[name]
		if b.Restore.Plan.ClusterID != cluster {
			what = append(what, fmt.Sprintf("%s built a member of cluster %s instead of %s", name, b.Restore.Plan.ClusterID, cluster))
		}
		differ := func(of string, got, want any) {
			if got != want {
				what = append(what, fmt.Sprintf("%s of %s is %v, and that of %s is %v", of, name, got, names[0], want))
			}
		}
		differ("the raft index", b.Index, first.Index)
		differ("the term", b.Term, first.Term)
		differ("the revision", b.Revision, first.Revision)
		differ("the revision after the bump", b.Restore.RevisionAfter, first.Restore.RevisionAfter)
		if b.HashKV.Hash != 0 && first.HashKV.Hash != 0 && b.HashKV.CompactedRevision == first.HashKV.CompactedRevision {
			differ("the hash (HashKV)", b.HashKV.Hash, first.HashKV.Hash)
		}
	}
	return what
}
