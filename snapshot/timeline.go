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

// openRepository opens the repository, or makes it, and finds the cluster's timelines in
// it and how far each got.
func (t *taking) openRepository(ctx context.Context) (err error) {
	if t.Repository != "" {
		t.repo, err = repository.OpenKnown(ctx, t.Sink, t.Repository)
	} else {
		t.repo, err = repository.Init(ctx, t.Sink, t.Now())
	}
	if err != nil {
		return err
	}
	t.result.Damage = t.repo.Damage()
	if err := t.checkLineage(ctx, t.repo, t.survey); err != nil {
		return err
	}
	// By their names alone: a damaged descriptor, of whichever cluster, must not
	// keep new backups from being taken.
	ids, err := t.repo.TimelineIDs(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids { // ordered by number
		if id.ClusterID != t.survey.ClusterID {
			continue
		}
		// One that was ended in favour of another one of the cluster is not continued.
		ended, is, err := t.repo.Superseded(ctx, id)
		if err != nil && !errors.Is(err, repository.ErrAltered) {
			return err
		}
		if is && ended.By.ClusterID == id.ClusterID {
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
		if t.Reached != nil {
			if err := k.addArchive(ctx, t.repo, t.Reached); err != nil {
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

// chooseTimeline chooses the timeline: of those of this cluster
// the one that got furthest without the cluster being behind it. Where it is
// behind all of them, its history restarted under the same cluster ID (etcd's
// --force-new-cluster, or a restore with the same token), and a new one is
// opened. The barrier came after the repository was read, so a backup that
// another writer made meanwhile cannot look like that.
func (t *taking) chooseTimeline(ctx context.Context) (err error) {
	given := slices.IndexFunc(t.known, func(k knownTimeline) bool { return k.id == t.Timeline })
	// Its history may have restarted since the caller looked.
	if t.Timeline.N > 0 && (given < 0 || t.known[given].reached == nil || !restarted(t.known[given].reached, t.barrier)) {
		t.timeline.ID = t.Timeline
	} else if t.furthestTimeline(); t.fresh {
		t.timeline.ID, err = t.repo.FreeTimeline(ctx, t.timeline.ID)
		return err
	}
	i := slices.IndexFunc(t.known, func(k knownTimeline) bool { return k.id == t.timeline.ID })
	if i >= 0 && len(t.Codec.Recipients) == 0 && t.known[i].plain != nil {
		return fmt.Errorf("%s: %w", t.repo, t.known[i].plain)
	}
	return nil
}

// furthestTimeline sets the timeline to the one that got furthest, or to one that is to
// be opened. It is not an older one if the cluster may be a later state of a newer one as
// well: a cluster that began again outgrows what it lost, and a copy that began again has
// the ID of its original. Which of them it is only their logs show.
func (t *taking) furthestTimeline() {
	var on, behind, newest *knownTimeline
	for i := range t.known {
		k := &t.known[i]
		if k.reached != nil && restarted(k.reached, t.barrier) {
			behind = k
			continue
		}
		if on == nil || on.reached == nil || k.reached != nil && on.reached.index <= k.reached.index {
			on = k
		}
		if k.reached != nil {
			newest = k
		}
	}
	unclear := newest != nil && newest != on
	if on != nil && !unclear {
		t.timeline.ID = on.id
		return
	}
	t.fresh = true
	t.timeline = repository.Timeline{
		ID:      repository.TimelineID{ClusterID: t.survey.ClusterID, N: 1},
		Reason:  "first backup of this cluster here",
		Members: memberNames(t.survey),
	}
	if t.Parent != nil {
		t.timeline.Reason += ", which was restored from timeline " + t.Parent.Timeline.String()
		t.timeline.Parent = t.Parent
	}
	b := t.barrier
	switch {
	case unclear:
		t.timeline.ID.N = t.known[len(t.known)-1].id.N + 1
		t.timeline.Reason = fmt.Sprintf("the cluster is at index %d, term %d, revision %d, and may continue timeline %s or %s: which of them is not known, so it is kept apart", b.Index, b.Term, b.Revision, on.id, newest.id)
		t.timeline.Parent = &repository.Branch{Timeline: newest.id}
	case behind != nil:
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
