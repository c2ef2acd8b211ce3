package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/store/client"
)

// recentRead is how many of the last backups by ID are read to find the
// furthest state that a timeline has reached. More than one, because IDs follow
// the clocks of several writers.
const recentRead = 8

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
		if err := t.checkLineage(ctx, target.repo, t.survey); err != nil {
			return err
		}
		return target.findTimeline(ctx, t.survey.ClusterID, t.Reached)
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

func (t *target) findTimeline(ctx context.Context, clusterID uint64, archived ReachedFunc) error {
	// By their names alone: a damaged descriptor, of whichever cluster, must not
	// keep new backups from being taken.
	ids, err := t.repo.TimelineIDs(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids { // ordered by number
		if id.ClusterID != clusterID {
			continue
		}
		recent, err := recentlyReached(ctx, t.repo, id)
		if err != nil {
			return err
		}
		k := knownTimeline{id: id, plain: checkPlain(id, recent)}
		if n := len(recent); n > 0 {
			k.reached = backupPoint(recent[n-1])
		}
		if archived != nil {
			if err := k.addArchive(ctx, t.repo, archived); err != nil {
				return err
			}
		}
		t.known = append(t.known, k)
	}
	return nil
}

// knownTimeline is a timeline of the cluster, and the furthest point in it; nil
// where it has neither a backup nor an archived log.
type knownTimeline struct {
	id      repository.TimelineID
	reached *point
	plain   error // why nothing may be stored there in the clear; nil: it may
}

// point is how far a timeline is known to have come.
type point struct {
	what        string // for messages
	index, term uint64
	revision    int64
}

func backupPoint(m *Manifest) *point {
	return &point{"backup " + m.ID, m.Facts.RaftIndex, m.Facts.RaftTerm, m.Facts.Revision}
}

// addArchive counts the end of the archived log, which is usually further than
// any backup.
func (k *knownTimeline) addArchive(ctx context.Context, repo *repository.Repository, archived ReachedFunc) error {
	index, term, revision, err := archived(ctx, repo, k.id)
	if err != nil {
		return fmt.Errorf("find the end of the archived log of timeline %s in %s: %w", k.id, repo, err)
	}
	if index == 0 || k.reached != nil && index <= k.reached.index {
		return nil
	}
	end := &point{"the end of the archived log", index, term, revision}
	if k.reached != nil {
		end.term, end.revision = max(end.term, k.reached.term), max(end.revision, k.reached.revision)
	}
	k.reached = end
	return nil
}

// RecentStates are the manifests of the last full snapshots of a timeline by ID, ordered
// by what the log had reached. Those count that a catalogue counts: one whose object is gone
// or has another size is no state that anybody can restore, and an archive that began, or
// looked for gaps, behind it would miss the entries that led to it.
func RecentStates(ctx context.Context, repo *repository.Repository, id repository.TimelineID) ([]*Manifest, error) {
	return recentManifests(ctx, repo, id, true)
}

// recentlyReached is RecentStates with those whose object is gone or has another size: the
// log had reached that too, and a cluster that has not is of another history.
func recentlyReached(ctx context.Context, repo *repository.Repository, id repository.TimelineID) ([]*Manifest, error) {
	return recentManifests(ctx, repo, id, false)
}

// recentManifests leaves out, where asked for, those whose object checkObject finds damaged.
func recentManifests(ctx context.Context, repo *repository.Repository, id repository.TimelineID, whole bool) (recent []*Manifest, err error) {
	fulls, err := repo.NewestFulls(ctx, id, recentRead)
	if err != nil {
		return nil, err
	}
	read, err := readManifests(ctx, repo, fulls)
	if err != nil {
		return nil, err
	}
	for i, r := range read {
		if r.manifest == nil {
			continue // a damaged one is for list and verify to report: it must not keep new backups from being taken
		}
		if whole {
			err = checkObject(ctx, repo, fulls[i], r.manifest)
		}
		switch {
		case err == nil:
			recent = append(recent, r.manifest)
		case !IsDamaged(err):
			return nil, err
		}
	}
	slices.SortStableFunc(recent, olderState)
	return recent, nil
}

// branchTimelines chooses each repository's timeline: of those of this cluster
// the one that got furthest without the cluster being behind it. Where it is
// behind all of them, its history restarted under the same cluster ID (etcd's
// --force-new-cluster, or a restore with the same token), and a new one is
// opened. The barrier came after the repositories were read, so a backup that
// another writer made meanwhile cannot look like that.
func (t *taking) branchTimelines(ctx context.Context) {
	for _, target := range t.targets {
		if target.err != nil {
			continue
		}
		if t.Timeline != (repository.TimelineID{}) {
			target.timeline.ID = t.Timeline
		} else if target.chooseTimeline(t.survey, t.barrier, t.Parent); target.fresh {
			target.timeline.ID, target.err = target.repo.FreeTimeline(ctx, target.timeline.ID)
			continue
		}
		i := slices.IndexFunc(target.known, func(k knownTimeline) bool { return k.id == target.timeline.ID })
		if i >= 0 && len(t.Codec.Recipients) == 0 {
			target.err = target.known[i].plain
		}
	}
}

func (t *target) chooseTimeline(survey client.Survey, b client.Barrier, parent *repository.Branch) {
	var on, behind *knownTimeline
	for i, k := range t.known {
		switch {
		case k.reached != nil && restarted(k.reached, b):
			behind = &t.known[i]
		case on == nil || on.reached == nil || k.reached != nil && on.reached.index < k.reached.index:
			on = &t.known[i]
		}
	}
	if on != nil {
		t.timeline.ID = on.id
		return
	}
	t.fresh = true
	t.timeline = repository.Timeline{
		ID:      repository.TimelineID{ClusterID: survey.ClusterID, N: 1},
		Reason:  "first backup of this cluster here",
		Members: memberNames(survey),
	}
	if parent != nil {
		t.timeline.Reason += ", which was restored from timeline " + parent.Timeline.String()
		t.timeline.Parent = parent
	}
	if behind != nil {
		last := behind.reached
		t.timeline.ID.N = t.known[len(t.known)-1].id.N + 1
		t.timeline.Reason = fmt.Sprintf("the cluster is at index %d, term %d, revision %d, behind %s (index %d, term %d, revision %d): its history restarted",
			b.Index, b.Term, b.Revision, last.what, last.index, last.term, last.revision)
		t.timeline.Parent = &repository.Branch{Timeline: behind.id}
	}
}

// restarted reports whether a cluster at b cannot be a later state of the one
// that reached last: neither of the three ever decreases.
func restarted(last *point, b client.Barrier) bool {
	return b.Index < last.index || b.Term < last.term || b.Revision < last.revision
}

func memberNames(s client.Survey) []string {
	var names []string
	for _, m := range s.Membership {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return names
}
