package walreplay

import (
	"context"
	"fmt"
	"iter"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// following yields the entries after an image, up to last. Where the log holds
// the image's own last entry too, its term must be the one that the image has:
// otherwise they are of two histories.
func (h *History) following(ctx context.Context, b *Base, last uint64) iter.Seq2[raftlog.Entry, error] {
	first := b.Index() + 1
	verify := false
	if s := h.after(b); s != nil && s.First < first && b.Facts.RaftTerm != 0 { // etcd 3.4 keeps no term
		first, verify = first-1, true
	}
	return func(yield func(raftlog.Entry, error) bool) {
		for e, err := range h.log.entries(ctx, first, last) {
			if err == nil && verify {
				verify = false
				if e.Term == b.Facts.RaftTerm {
					continue
				}
				err = &snapshot.DamagedError{Object: h.Name, Offset: -1, Err: fmt.Errorf("%s ends with raft index %d of term %d, and the log has %s: they are of two histories", b.Name, b.Index(), b.Facts.RaftTerm, e)}
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Entries yields the log's entries from index first on, up to where a gap or the
// log's end is; none where the log does not hold first. The first error is the
// end.
func (h *History) Entries(ctx context.Context, first uint64) iter.Seq2[raftlog.Entry, error] {
	for _, s := range h.log.stretches() {
		if s.First <= first && first <= s.Last {
			return h.log.entries(ctx, first, s.Last)
		}
	}
	return func(func(raftlog.Entry, error) bool) {}
}

// ahead is more than the engine reads ahead of what it applies.
const ahead = 1 << 13

// sumRing is the chain over the entries that went by, begun anew, with its last
// values: a replay that ends before a revision has read further by then.
type sumRing struct {
	sum  raftlog.Sum
	last [ahead]struct {
		index uint64
		sum   raftlog.Sum
	}
}

// over passes entries on.
func (r *sumRing) over(entries iter.Seq2[raftlog.Entry, error]) iter.Seq2[raftlog.Entry, error] {
	return func(yield func(raftlog.Entry, error) bool) {
		for e, err := range entries {
			if err == nil {
				r.sum = r.sum.Next(e)
				slot := &r.last[e.Index%ahead]
				slot.index, slot.sum = e.Index, r.sum
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// at is the value after the entry at index, once the replay has ended.
func (r *sumRing) at(index uint64) (raftlog.Sum, error) {
	slot := r.last[index%ahead]
	if slot.index != index {
		return raftlog.Sum{}, fmt.Errorf("the replay ended with entry %d, more than %d entries behind what it had read", index, ahead)
	}
	return slot.sum, nil
}
