package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/store"
)

// recentManifests is how many of the last backups by ID are read to find the
// furthest state that a timeline has reached. More than one, because IDs follow
// the clocks of several writers.
const recentManifests = 8

// chooseTimelines finds, in each repository, the newest timeline of the
// cluster and how far it got. A repository that cannot be read has failed.
func (t *taking) chooseTimelines(ctx context.Context) error {
	for _, s := range t.Sinks {
		t.targets = append(t.targets, &target{sink: s})
	}
	t.forTargets(func(target *target) (err error) {
		if target.repo, err = repository.Init(ctx, target.sink, t.Now()); err != nil {
			return err
		}
		return target.findTimeline(ctx, t.survey.ClusterID)
	})
	return t.anyLeft()
}

// anyLeft returns the targets' errors when every one of them has failed.
func (t *taking) anyLeft() error {
	var failed []error
	for _, target := range t.targets {
		if target.err == nil {
			return nil
		}
		failed = append(failed, fmt.Errorf("%s: %w", target.sink, target.err))
	}
	return errors.Join(failed...)
}

func (t *target) findTimeline(ctx context.Context, clusterID uint64) error {
	all, err := t.repo.Timelines(ctx)
	if err != nil {
		return err
	}
	t.timeline = repository.Timeline{ID: repository.TimelineID{ClusterID: clusterID, N: 1}}
	t.fresh = true
	for _, timeline := range all { // ordered by number
		if timeline.ID.ClusterID == clusterID {
			t.timeline, t.fresh = timeline, false
		}
	}
	if t.fresh {
		return nil
	}
	t.reached, err = newestState(ctx, t.repo, t.timeline.ID)
	return err
}

// newestState is the manifest of the furthest state in a timeline, or nil.
func newestState(ctx context.Context, repo *repository.Repository, id repository.TimelineID) (*Manifest, error) {
	fulls, err := repo.Fulls(ctx, id)
	if err != nil {
		return nil, err
	}
	fulls = slices.DeleteFunc(fulls, func(f repository.Full) bool { return !f.Complete })
	fulls = fulls[max(0, len(fulls)-recentManifests):]
	read, err := readManifests(ctx, repo, fulls)
	if err != nil {
		return nil, err
	}
	var newest *Manifest
	for _, r := range read {
		// A damaged manifest is for list and verify to report; it must not
		// keep new backups from being taken.
		if r.manifest != nil && (newest == nil || olderState(newest, r.manifest) < 0) {
			newest = r.manifest
		}
	}
	return newest, nil
}

// branchTimelines opens a new timeline in each repository whose backups the
// cluster has fallen behind: its history restarted under the same cluster ID
// (etcd's --force-new-cluster, or a restore with the same token). The barrier
// came after the repositories were read, so a backup that another writer made
// meanwhile cannot look like that.
func (t *taking) branchTimelines() {
	for _, target := range t.targets {
		if target.err != nil {
			continue
		}
		if target.fresh {
			target.timeline.Reason = "first backup of this cluster here"
			target.timeline.Members = memberNames(t.survey)
			continue
		}
		last := target.reached
		if last == nil || !restarted(last, t.barrier) {
			continue
		}
		parent := target.timeline.ID
		target.fresh = true
		target.timeline = repository.Timeline{
			ID: repository.TimelineID{ClusterID: parent.ClusterID, N: parent.N + 1},
			Reason: fmt.Sprintf("the cluster is at index %d, term %d, revision %d, behind backup %s (index %d, term %d, revision %d): its history restarted",
				t.barrier.Index, t.barrier.Term, t.barrier.Revision, last.ID, last.Facts.RaftIndex, last.Facts.RaftTerm, last.Facts.Revision),
			Parent:  &repository.Branch{Timeline: parent},
			Members: memberNames(t.survey),
		}
	}
}

// restarted tells whether a cluster at b cannot be a later state of the one
// that last was taken from: neither of the three ever decreases.
func restarted(last *Manifest, b store.Barrier) bool {
	return b.Index < last.Facts.RaftIndex || b.Term < last.Facts.RaftTerm || b.Revision < last.Facts.Revision
}

func memberNames(s store.Survey) []string {
	var names []string
	for _, m := range s.Membership {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return names
}
