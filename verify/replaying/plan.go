package replaying

import (
	"context"
	"fmt"
	"slices"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
)

// memoryPerKey is what etcd's index takes, memoryFixed what a replay takes
// besides.
const (
	memoryPerKey = 400
	memoryFixed  = 256 << 20
)

// Plan is what a check would do.
type Plan struct {
	Base    *walreplay.Base // nil: it cannot be done, for Reason
	Reason  string
	Entries uint64 // to replay
	Log     int64  // about how many bytes they have
	// Memory is about what the replay needs, beside the mapped file, and Scratch
	// what the scratch folders take. The number of keys is that of the manifest;
	// where that does not tell, as many as there are revisions are taken.
	Memory, Scratch int64
}

// PlanOf says what Check would do: it lists the log and reads no entry.
func PlanOf(ctx context.Context, repo *repository.Repository, c *snapshot.Catalog, m *snapshot.Manifest, o Options) (Plan, error) {
	h, err := walreplay.OpenArchive(ctx, repo, c, m.Timeline, o.Identities...)
	if err != nil {
		return Plan{}, err
	}
	all := bases(h, c, m)
	if len(all) == 0 {
		return Plan{Reason: whyNone(h, m)}, nil
	}
	b := all[0]
	p := Plan{Base: b, Entries: m.Facts.RaftIndex - b.Index()}
	if b.Image != nil {
		p.Scratch = b.Image.Size()
		point, err := h.Resolve(ctx, walreplay.Target{Kind: walreplay.AtIndex, Index: m.Facts.RaftIndex}, b.ID, o.walreplay(o.SourceVersion, o.ScratchDir))
		if err != nil {
			return Plan{}, err
		}
		p.Log = point.Bytes
	}
	p.Scratch += m.Object.RawSize + 2*p.Log
	p.Memory = MemoryOf(m)
	return p, nil
}

// MemoryOf is about what a replay to the state of m, or one like it, needs, beside
// the mapped file.
func MemoryOf(m *snapshot.Manifest) int64 {
	keys := m.Facts.Revision - m.Facts.CompactedRevision
	if m.Keys.Count != nil {
		keys = *m.Keys.Count
	}
	return memoryFixed + keys*memoryPerKey
}

// bases are what m can be proved from, the best first: the newest full snapshot
// with an earlier state that was read from a member and from which the log reaches
// it, then older ones, the empty database where the log begins with the cluster's
// first entry, synthetic snapshots, and last another one of the same state, from
// which nothing has to be replayed.
//
// A synthetic one is what an earlier replay gave. Begun from there, a replay would
// trust that one, and a mistake that both make would not show.
func bases(h *walreplay.History, c *snapshot.Catalog, m *snapshot.Manifest) []*walreplay.Base {
	var earlier, synthetic, same []*walreplay.Base
	for _, b := range slices.Backward(h.Bases()) {
		switch {
		case b.ID == m.ID:
		case b.Index() == m.Facts.RaftIndex:
			same = append(same, b)
		case b.Index() >= m.Facts.RaftIndex || h.Reach(b) < m.Facts.RaftIndex:
		case b.Manifest != nil && b.Manifest.Synthetic():
			synthetic = append(synthetic, b)
		default:
			earlier = append(earlier, b)
		}
	}
	if e := empty(); h.Reach(e) >= m.Facts.RaftIndex && !branched(c, m.Timeline) {
		earlier = append(earlier, e)
	}
	return slices.Concat(earlier, synthetic, same)
}

// empty is the database before a cluster's first entry.
func empty() *walreplay.Base {
	return &walreplay.Base{Name: "the empty database before the first entry", Facts: snapshot.Facts{Revision: 1}}
}

// branched tells whether a timeline is known to have begun with a restore: its
// log then begins with the first entry too, but not from nothing.
func branched(c *snapshot.Catalog, t repository.TimelineID) bool {
	return slices.ContainsFunc(c.Timelines, func(l repository.Timeline) bool { return l.ID == t && l.Parent != nil }) ||
		slices.ContainsFunc(c.DamagedTimelines, func(d snapshot.DamagedTimeline) bool { return d.Timeline == t })
}

// whyNone says why there is nothing to begin from.
func whyNone(h *walreplay.History, m *snapshot.Manifest) string {
	var before *walreplay.Base
	for _, b := range h.Bases() {
		if b.ID != m.ID && b.Index() < m.Facts.RaftIndex {
			before = b
		}
	}
	if before == nil {
		return "there is no full snapshot before it in its timeline, and the archived log does not begin with the cluster's first entry: the next full snapshot can be proved from this one"
	}
	return fmt.Sprintf("the archived log from %s, at raft index %d, goes on to raft index %d only, and this one is at %d: where an archiver is still on its way there, verify it again later; where there is a gap (`requorum list` shows it), the next full snapshot can be proved from this one",
		before.Name, before.Index(), h.Reach(before), m.Facts.RaftIndex)
}
