package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/verify/report"
)

// Live is a cluster that runs. *client.Client is one.
type Live interface {
	Survey(ctx context.Context) (client.Survey, error)
	HashKV(ctx context.Context, member client.MemberStatus, revision int64) (client.HashKV, error)
}

// liveSuffix ends the object of a check against a live member.
const liveSuffix = "/live"

// checkLive asks a member for its hash at a backup's revision, and compares it
// with the backup's. hash is what the structure level computed.
func (e *examination) checkLive(ctx context.Context, name string, m *snapshot.Manifest, path string, hash snapshot.HashKV) error {
	_, err := e.check(ctx, report.Structure, name+liveSuffix, func(c *report.Check) error {
		if hash.Revision == 0 {
			unchecked(c, errors.New("the backup's own hash is not known: see its structure"))
			return nil
		}
		if err := e.compareLive(ctx, c, m, path, hash); err != nil {
			unchecked(c, err)
		}
		return nil
	})
	return err
}

// refuseLive adds the check against a live member that was asked for and cannot be
// done.
func (e *examination) refuseLive(name, reason string) {
	if e.Live != nil {
		e.add(report.Check{Level: report.Structure, Object: name + liveSuffix, Reason: reason})
	}
}

func (e *examination) compareLive(ctx context.Context, c *report.Check, m *snapshot.Manifest, path string, hash snapshot.HashKV) error {
	member, err := e.askable(ctx, m)
	if err != nil {
		return err
	}
	got, err := e.Live.HashKV(ctx, member, hash.Revision)
	if err != nil {
		return fmt.Errorf("ask %s for its hash at revision %d: %w; where that is compacted, verify a newer backup", member, hash.Revision, err)
	}
	if got.CompactRevision != hash.CompactedRevision {
		// The cluster has compacted since: so is the backup's, for the hash.
		if hash, err = hashCompacted(ctx, path, got.CompactRevision); err != nil {
			return err
		}
	}
	c.Compared = fmt.Sprintf("HashKV of the backup with that of %s, both at revision %d and compacted at %d", member, hash.Revision, got.CompactRevision)
	if got.CompactRevision != hash.CompactedRevision || got.HashRevision != hash.Revision {
		return fmt.Errorf("%s gave the hash of revision %d, compacted at %d; the backup's is of %d, compacted at %d: they cannot be compared; verify a newer backup", member, got.HashRevision, got.CompactRevision, hash.Revision, hash.CompactedRevision)
	}
	if got.Hash == hash.Hash {
		return nil
	}
	if other, err := e.another(ctx, m.Timeline); err != nil || other != "" {
		return errors.Join(err, fmt.Errorf("the backup's HashKV is %d, %s gives %d at the same revision. That need not be damage: %s, and a cluster's ID does not say of which the endpoints are; the level replay shows whether the backup is sound", hash.Hash, member, got.Hash, cmp.Or(other, "the cluster may be in another timeline")))
	}
	found(c, report.Finding{Kind: report.KindHash, Where: fmt.Sprintf("revision %d", hash.Revision),
		Text: fmt.Sprintf("the backup's HashKV is %d, %s gives %d: either holds something that the cluster did not write", hash.Hash, member, got.Hash)})
	return nil
}

// another says why a cluster with the ID of a timeline's cluster may have another
// history: with --force-new-cluster, or a restore with the same token, the ID stays,
// and revisions are given out again. It is empty where there is no sign of that.
func (e *examination) another(ctx context.Context, t repository.TimelineID) (string, error) {
	by, ended, err := e.repo.Superseded(ctx, t)
	switch {
	case errors.Is(err, repository.ErrAltered):
		return fmt.Sprintf("it is not known whether timeline %s has ended", t), nil
	case err != nil:
		return "", err
	case ended:
		return fmt.Sprintf("timeline %s has ended, and %s goes on in its place", t, by.By), nil
	}
	ids, err := e.repo.TimelineIDs(ctx)
	for _, id := range ids {
		if id.ClusterID == t.ClusterID && id.N != t.N {
			return fmt.Sprintf("timeline %s is of a cluster with the same ID", id), nil
		}
	}
	return "", err
}

// askable is a member of the backup's cluster to ask: a follower, since it
// answers nothing else meanwhile, and the leader only where there is no other.
func (e *examination) askable(ctx context.Context, m *snapshot.Manifest) (client.MemberStatus, error) {
	survey, err := e.Live.Survey(ctx)
	if err != nil {
		return client.MemberStatus{}, err
	}
	if survey.ClusterID != m.Timeline.ClusterID {
		return client.MemberStatus{}, fmt.Errorf("the endpoints are of cluster %016x, the backup is of timeline %s: give endpoints of its cluster", survey.ClusterID, m.Timeline)
	}
	members := slices.DeleteFunc(slices.Clone(survey.Members), func(s client.MemberStatus) bool {
		return s.Err != nil || s.IsLearner || s.Revision < m.Facts.Revision // learners do not serve it
	})
	if len(members) == 0 {
		return client.MemberStatus{}, fmt.Errorf("no member that answers has reached revision %d", m.Facts.Revision)
	}
	rank := func(s client.MemberStatus) int {
		if s.IsLeader {
			return 1
		}
		return 0
	}
	return slices.MinFunc(members, func(a, b client.MemberStatus) int { return cmp.Compare(rank(a), rank(b)) }), nil
}

// hashCompacted is the hash that the database in a file would have, were it
// compacted at a revision.
func hashCompacted(ctx context.Context, path string, compacted int64) (snapshot.HashKV, error) {
	f, size, err := openFor(path)
	if err != nil {
		return snapshot.HashKV{}, err
	}
	hash, err := snapshot.ReadHashKVCompacted(ctx, f, size, compacted)
	return hash, errors.Join(err, f.Close())
}
