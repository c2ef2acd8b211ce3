package replaying

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/segment"
)

// hashComparisons are the hashes that live members served between the base and the
// snapshot.
type hashComparisons struct {
	open   []segment.Heartbeat // not compared yet
	equal  int
	passed int // of an etcd that hashes in another way
}

// stopped is where a replay goes on from.
type stopped struct {
	base *walreplay.Base
	last *walreplay.Rebuilt // the base's image, to be closed; nil: the proof's own base
}

// stops replays to those checkpoint hashes that a later compaction leaves nothing to
// compare with, and compares them there: of each compaction the newest, and of
// these the last few. The rest is compared at the end, as far as it can be.
func (p *proof) stops(ctx context.Context, version string, o walreplay.Options) (_ stopped, err error) {
	at := stopped{base: p.base}
	for m, err := range p.h.CheckpointHashes(ctx, p.base.Index(), p.facts.RaftIndex) {
		if snapshot.IsDamaged(err) {
			continue // the checksum level names it
		}
		if err != nil {
			return at, fmt.Errorf("read the checkpoint hashes on the way: %w", err)
		}
		if m.CheckpointHash.CompactedRevision > 0 && snapshot.HashesOtherwise(version) {
			p.seen.passed++
			continue
		}
		p.seen.open = append(p.seen.open, m)
	}
	defer func() {
		if err != nil && at.last != nil {
			err = errors.Join(err, at.last.Close())
		}
	}()
	for _, index := range p.stopsAt() {
		r, err := p.h.Rebuild(ctx, &walreplay.Point{
			Target: walreplay.Target{Kind: walreplay.AtIndex, Index: index}, Base: at.base, Last: index,
		}, o)
		if err != nil {
			return at, p.blame(err)
		}
		if at.last != nil {
			if err := at.last.Close(); err != nil {
				return stopped{last: r}, err
			}
		}
		at.last = r
		facts, err := r.Facts(ctx)
		if err != nil {
			return at, err
		}
		at.base = &walreplay.Base{Name: r.Name(), Image: r, Facts: facts}
		for _, t := range r.Phases {
			p.phaseTook(string(t.Phase), t.Took)
		}
		here, err := databaseOf(r.Name(), r)
		if err != nil {
			return at, err
		}
		if err := p.checkpointHashesOf(ctx, here, facts); err != nil {
			return at, err
		}
	}
	return at, nil
}

// stopsAt are the indexes to stop at, in their order.
func (p *proof) stopsAt() []uint64 {
	most := cmp.Or(p.o.Stops, DefaultStops)
	last := map[int64]uint64{}
	for _, m := range p.seen.open {
		c := max(m.CheckpointHash.CompactedRevision, 0)
		if c < p.facts.CompactedRevision && m.Index > p.base.Index() && m.Index < p.facts.RaftIndex && m.Revision >= m.CheckpointHash.HashRevision {
			last[c] = max(last[c], m.Index)
		}
	}
	var all []uint64
	for _, index := range last {
		all = append(all, index)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return all[max(0, len(all)-max(most, 0)):]
}

// checkpointHashesOf compares the checkpoint hashes that a state allows.
func (p *proof) checkpointHashesOf(ctx context.Context, d Database, facts snapshot.Facts) error {
	var open []segment.Heartbeat
	for _, m := range p.seen.open {
		s := m.CheckpointHash
		if max(s.CompactedRevision, 0) != facts.CompactedRevision || s.HashRevision > facts.Revision || s.HashRevision < max(facts.CompactedRevision, 1) {
			open = append(open, m)
			continue
		}
		got, err := d.HashKV(ctx, s.HashRevision)
		if err != nil {
			return err
		}
		if got.Hash == s.Hash {
			p.seen.equal++
			continue
		}
		p.found(report.KindCheckpointHash, "", fmt.Sprintf("revision %d", s.HashRevision),
			"at raft index %d member %016x served HashKV %d for revision %d, compacted revision %d; the log gives %d: from %s on, the log or the snapshot that it was replayed onto is not what the cluster held",
			m.Index, m.Member, s.Hash, s.HashRevision, s.CompactedRevision, got.Hash, p.base.Name)
	}
	p.seen.open = open
	return nil
}

// lastCheckpointHashes compares what is left at the end, and counts.
func (p *proof) lastCheckpointHashes(ctx context.Context) error {
	facts, err := p.rebuilt.Facts(ctx)
	if err != nil {
		return err
	}
	if err := p.checkpointHashesOf(ctx, p.replayed, facts); err != nil {
		return err
	}
	switch passed := len(p.seen.open) + p.seen.passed; {
	case p.seen.equal > 0 && passed > 0:
		p.say("%d hashes that live members served on the way are the replay's, and %d could not be compared, as the history was compacted since, or by an etcd that hashes it in another way", p.seen.equal, passed)
	case p.seen.equal > 0:
		p.say("%d hashes that live members served on the way are the replay's", p.seen.equal)
	case passed > 0:
		p.say("%d hashes that live members served on the way could not be compared, as the history was compacted since, or by an etcd that hashes it in another way", passed)
	}
	return nil
}
