package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/store"
)

// describe makes each target's manifest from the bytes that its repository
// gives back. A repository that gives other bytes back has failed; a member
// whose bytes are not what the cluster had committed is a memberError.
func (t *taking) describe(ctx context.Context, member store.MemberStatus, up *upload, id string, started time.Time) error {
	t.Progress(Progress{Phase: "check"})
	key := up.identity()
	// Counting and hashing go by the revision of the stored bytes.
	var hash HashKV
	var keys Keys
	asked := false
	for i, target := range up.targets {
		if target.err != nil {
			continue
		}
		m := &Manifest{
			Format: manifestFormat, Kind: KindFull, ID: id, Timeline: target.timeline.ID, Tool: t.Tool,
			Started: started, Labels: t.Labels,
			Object:         StoredObject{Name: up.names[i], Encoding: up.codec.Description()},
			DatabaseSHA256: up.sum,
			Source: Source{ClusterID: ID(member.ClusterID), Endpoint: member.Endpoint, MemberID: ID(member.MemberID), Name: member.Name,
				Version: member.Version, IsLeader: member.IsLeader, IsLearner: member.IsLearner},
			Barrier: &Barrier{RaftIndex: t.barrier.Index, RaftTerm: t.barrier.Term, Revision: t.barrier.Revision,
				Member: ID(t.barrier.Member.MemberID), Method: t.barrier.Method},
		}
		stored := OpenStored(target.repo, m, key...)
		if target.err = t.readFacts(ctx, stored, m); target.err != nil {
			target.err = errors.Join(target.err, removeObject(target, m.Object.Name))
			continue
		}
		if err := t.checkFacts(member, m.Facts); err != nil {
			return &memberError{err}
		}
		if !asked {
			hash, keys, asked = t.askHash(ctx, member, m.Facts), t.askKeys(ctx, member, m.Facts), true
		}
		m.HashKV, m.Keys = hash, keys
		target.manifest = m
	}
	return t.anyLeft()
}

// readFacts fills in what the stored bytes say, and reads all of them if that
// was asked for.
func (t *taking) readFacts(ctx context.Context, stored *Stored, m *Manifest) error {
	r, err := stored.ReaderAt(ctx)
	if err != nil {
		return fmt.Errorf("read the stored snapshot back: %w", err)
	}
	if m.Facts, err = ReadFacts(ctx, r, stored.Size()); err != nil {
		return fmt.Errorf("read the stored snapshot back: %w", stored.damage(err))
	}
	if !t.ReadBack {
		return nil
	}
	all, err := stored.Open(ctx)
	if err != nil {
		return fmt.Errorf("read the stored snapshot back: %w", err)
	}
	counter := &progressWriter{report: func(n int64) {
		t.Progress(Progress{Phase: "read back", Done: n, Total: stored.Size()})
	}}
	_, err = io.Copy(counter, all)
	if err := errors.Join(err, all.Close()); err != nil {
		return fmt.Errorf("read the stored snapshot back: %w", err)
	}
	m.ReadBack = true
	return nil
}

// checkFacts holds the stored bytes against the barrier, whatever the member
// said of itself: an address may lead to another member each time.
func (t *taking) checkFacts(member store.MemberStatus, f Facts) error {
	// 3.4 keeps consistent_index with changes of keys only, so its bytes can
	// show an index below the one they hold; the revision is exact.
	if t.barrier.Method == store.MethodMemberList && f.RaftIndex < t.barrier.Index {
		return fmt.Errorf("%w: it ends at raft index %d, the cluster was at %d", ErrStale, f.RaftIndex, t.barrier.Index)
	}
	if f.Revision < t.barrier.Revision {
		return fmt.Errorf("%w: it ends at revision %d, the cluster was at %d", ErrStale, f.Revision, t.barrier.Revision)
	}
	known := func(m Member) bool {
		return slices.ContainsFunc(t.survey.Membership, func(s store.MemberInfo) bool { return ID(s.ID) == m.ID })
	}
	if len(f.Members) > 0 && !slices.ContainsFunc(f.Members, known) {
		return fmt.Errorf("the snapshot that %s sent is of another cluster: none of its members (%s, …) is one of this cluster", member.Endpoint, f.Members[0].ID)
	}
	return nil
}

func (t *taking) askHash(ctx context.Context, member store.MemberStatus, f Facts) HashKV {
	if !t.HashKV {
		return HashKV{Obtained: "not asked for: it makes the member pause"}
	}
	h, err := t.Client.HashKV(ctx, member, f.Revision)
	if err != nil {
		return HashKV{Obtained: "not known: " + err.Error()}
	}
	return HashKV{
		Obtained: "from member " + memberName(member) + " after the snapshot",
		Hash:     h.Hash, Revision: f.Revision, CompactedRevision: h.CompactRevision,
	}
}

func (t *taking) askKeys(ctx context.Context, member store.MemberStatus, f Facts) Keys {
	n, err := t.Client.CountKeys(ctx, member, f.Revision)
	if err != nil {
		return Keys{Obtained: "not known: " + err.Error()}
	}
	return Keys{Obtained: "counted by member " + memberName(member) + " after the snapshot", Count: &n}
}

// writeManifests makes the backup exist in every repository that holds the
// object. A repository where that fails is left without the object.
func (t *taking) writeManifests(ctx context.Context) error {
	finished := t.Now().UTC()
	t.forTargets(func(target *target) error {
		target.manifest.Finished = finished
		err := target.writeManifest(ctx, finished)
		if err == nil {
			return nil
		}
		return target.settleManifest(fmt.Errorf("write the manifest: %w", err))
	})
	return nil
}

// settleManifest finds out what became of a manifest whose writing failed. The
// object may go only when no manifest names it for sure: one without its object
// would be a backup that cannot be restored.
func (t *target) settleManifest(failure error) error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
	defer cancel()
	m := t.manifest
	there, err := ReadManifest(ctx, t.repo, t.timeline.ID, m.ID)
	switch {
	case err == nil && there.Object.Name == m.Object.Name: // no two write one object: it is this one
		return nil
	case err == nil:
		t.manifest = nil
		return errors.Join(fmt.Errorf("backup %s in %s: %w, as %s", m.ID, t.sink, ErrTaken, there.Object.Name), removeBackup(t, m))
	case errors.Is(err, sinks.ErrNotFound) && !errors.Is(failure, sinks.ErrUncertain):
		t.manifest = nil
		return errors.Join(failure, removeBackup(t, m))
	}
	t.manifest = nil
	return fmt.Errorf("%w; whether backup %s counts is not known: look with 'requorum list' once the repository answers", failure, m.ID)
}

func (t *target) writeManifest(ctx context.Context, now time.Time) error {
	if t.fresh {
		t.timeline.Created = now
		opened, err := t.repo.EnsureTimeline(ctx, t.timeline)
		if err != nil {
			return err
		}
		t.timeline = opened
	}
	// A host that stood still for a day finds its object gone: who prunes takes one
	// without a manifest for abandoned.
	if _, err := t.sink.Stat(ctx, t.manifest.Object.Name); err != nil {
		return fmt.Errorf("look whether the snapshot is still there: %w", err)
	}
	return t.repo.WriteDocument(ctx, repository.ManifestName(t.timeline.ID, t.manifest.ID), t.manifest)
}

// progressWriter counts bytes and throws them away.
type progressWriter struct {
	n      int64
	report func(int64)
}

func (w *progressWriter) Write(p []byte) (int, error) {
	w.n += int64(len(p))
	w.report(w.n)
	return len(p), nil
}
