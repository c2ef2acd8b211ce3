package divergence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/coreos/go-semver/semver"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/requorum/requorum/store"
)

// ask asks each member once, at the revision that a quorum has confirmed.
func (c *comparison) ask(ctx context.Context) (round, error) {
	survey, err := c.client.Survey(ctx)
	if err != nil {
		return round{}, err
	}
	r := round{result: Result{Corrupt: corruptMembers(survey)}}
	barrier, err := c.client.Barrier(ctx, survey)
	if err != nil {
		if len(r.result.Corrupt) == 0 || ctx.Err() != nil {
			return round{}, err
		}
		// A cluster with that alarm may serve nothing more; the alarm is what counts.
		for _, m := range survey.Membership {
			r.result.Unknown = append(r.result.Unknown, Unknown{memberOf(survey, m.ID), err.Error()})
		}
		return r, nil
	}
	members, silent := askable(survey)
	r.result.Unknown = silent
	answers := c.askMembers(ctx, members, barrier)
	if ctx.Err() != nil {
		return round{}, context.Cause(ctx)
	}
	r.take(answers, barrier.Revision)
	return r, nil
}

// askable are the members to ask, the leader last, and who cannot be asked.
func askable(s store.Survey) (members []store.MemberStatus, silent []Unknown) {
	for _, m := range s.Members {
		switch {
		case m.Err != nil:
			// It is one of the membership's below.
		case m.IsLearner:
			silent = append(silent, Unknown{member(m), "it is a learner, which computes no hash"})
		default:
			members = append(members, m)
		}
	}
	slices.SortStableFunc(members, func(a, b store.MemberStatus) int { return cmp.Compare(leads(a), leads(b)) })
	for _, known := range s.Membership {
		if !slices.ContainsFunc(s.Members, func(m store.MemberStatus) bool { return m.Err == nil && m.MemberID == known.ID }) {
			silent = append(silent, Unknown{memberOf(s, known.ID), "no endpoint leads to it, or it does not answer"})
		}
	}
	return members, silent
}

func leads(m store.MemberStatus) int {
	if m.IsLeader {
		return 1
	}
	return 0
}

func member(m store.MemberStatus) Member {
	return Member{ID: m.MemberID, Name: m.Name, Endpoint: m.Endpoint}
}

// answer is what one member said.
type answer struct {
	member store.MemberStatus
	hash   store.HashKV
	err    error
}

// askMembers asks them one after the other, or all at once where that takes them
// no time.
func (c *comparison) askMembers(ctx context.Context, members []store.MemberStatus, b store.Barrier) []answer {
	answers := make([]answer, len(members))
	small := !slices.ContainsFunc(members, func(m store.MemberStatus) bool { return m.DBSize > atOnce })
	var wg sync.WaitGroup
	for i, m := range members {
		one := func() {
			hash, err := c.askOne(ctx, m, b)
			answers[i] = answer{m, hash, err}
		}
		if small {
			wg.Go(one)
			continue
		}
		one()
	}
	wg.Wait()
	return answers
}

func (c *comparison) askOne(ctx context.Context, m store.MemberStatus, b store.Barrier) (store.HashKV, error) {
	fitness, err := c.client.Fitness(ctx, m)
	if err != nil {
		return store.HashKV{}, err
	}
	if !fitness.Fit() {
		return store.HashKV{}, errors.New(fitness.Unfit)
	}
	if err := c.client.WaitApplied(ctx, m, b); err != nil {
		return store.HashKV{}, err
	}
	bounded, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	return c.client.HashKV(bounded, m, b.Revision)
}

// take compares the answers.
func (r *round) take(answers []answer, revision int64) {
	var compared []answer
	for _, a := range answers {
		switch {
		case errors.Is(a.err, rpctypes.ErrCompacted):
			r.moved = "what was asked for is compacted already"
			compared = append(compared, a)
		case a.err != nil:
			r.result.Unknown = append(r.result.Unknown, Unknown{member(a.member), a.err.Error()})
		default:
			compared = append(compared, a)
		}
	}
	for i, a := range compared {
		r.result.Hashes = append(r.result.Hashes, MemberHash{member(a.member), a.member.Version, a.hash.Hash})
		if r.moved == "" && i > 0 && a.hash.CompactRevision != compared[0].hash.CompactRevision {
			r.moved = fmt.Sprintf("the cluster compacted between the answers (%d, %d)", compared[0].hash.CompactRevision, a.hash.CompactRevision)
		}
		if r.moved == "" && a.hash.HashRevision != revision {
			r.moved = fmt.Sprintf("member %s answered for revision %d, not %d", a.member, a.hash.HashRevision, revision)
		}
	}
	if r.moved != "" || len(compared) == 0 {
		return
	}
	r.result.Revision, r.result.CompactRevision = revision, compared[0].hash.CompactRevision
	r.result.judge()
}

// judge names who differs from the majority of those that were compared.
func (r *Result) judge() {
	votes := map[uint32]int{}
	for _, h := range r.Hashes {
		votes[h.Hash]++
	}
	if len(votes) < 2 {
		return
	}
	// Hashes of old servers differ without a fault: nothing is known of these.
	if i := slices.IndexFunc(r.Hashes, func(h MemberHash) bool { return !hashesExactly(h.Version) }); i >= 0 {
		for _, h := range r.Hashes {
			r.Unknown = append(r.Unknown, Unknown{h.Member, fmt.Sprintf("the hashes differ, but %s runs etcd %s, whose hash depends on how far its last compaction came; upgrade to 3.5.16, 3.4.34 or newer and compare again", r.Hashes[i].Member, r.Hashes[i].Version)})
		}
		r.Hashes, r.Revision, r.CompactRevision = nil, 0, 0
		return
	}
	for hash, n := range votes {
		if 2*n <= len(r.Hashes) {
			continue
		}
		for _, h := range r.Hashes {
			if h.Hash != hash {
				r.Divergent = append(r.Divergent, h.Member)
			}
		}
		return
	}
	r.Undecided = true
	for _, h := range r.Hashes {
		r.Divergent = append(r.Divergent, h.Member)
	}
}

// hashesExactly tells whether a server's hash depends on the two revisions alone.
// Before these, a deletion at the compacted revision counted or not.
func hashesExactly(version string) bool {
	v, err := semver.NewVersion(version)
	if err != nil {
		return false
	}
	switch {
	case v.Major == 3 && v.Minor < 4:
		return false
	case v.Major == 3 && v.Minor == 4:
		return v.Patch >= 34
	case v.Major == 3 && v.Minor == 5:
		return v.Patch >= 16
	}
	return true
}
