package replaying

import (
	"fmt"
	"slices"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
)

// bases are what m can be proved from, the best first: the newest full snapshot
// with an earlier state from which the log reaches it, then older ones, and the
// empty database if the log begins with the cluster's first entry.
func bases(h *walreplay.History, c *snapshot.Catalog, m *snapshot.Manifest) []*walreplay.Base {
	var earlier []*walreplay.Base
	for _, b := range slices.Backward(h.Bases()) {
		if b.Index() < m.Facts.RaftIndex && h.Reach(b) >= m.Facts.RaftIndex {
			earlier = append(earlier, b)
		}
	}
	if e := empty(); h.Reach(e) >= m.Facts.RaftIndex && !branched(c, m.Timeline) {
		earlier = append(earlier, e)
	}
	return earlier
}

// empty is the database before a cluster's first entry.
func empty() *walreplay.Base {
	return &walreplay.Base{Name: "the empty database before the first entry", Facts: snapshot.Facts{Revision: 1}}
}

// branched reports whether a timeline is known to have begun with a restore: its
// log then begins with the first entry too, but not from nothing.
func branched(c *snapshot.Catalog, t repository.TimelineID) bool {
	return slices.ContainsFunc(c.Timelines, func(l repository.Timeline) bool { return l.ID == t && l.Parent != nil }) ||
		slices.ContainsFunc(c.DamagedTimelines, func(d snapshot.Unusable) bool { return d.Timeline == t })
}

// notYet says of a timeline's first full snapshot what has to come.
func notYet(m *snapshot.Manifest) string {
	return fmt.Sprintf("not yet: a replay needs two full snapshots of this timeline and the log between them, and before this one, of %s, there is none: the next one is proved from it", m.Started.UTC().Format(time.RFC3339))
}

// isFirst says that nothing in its timeline is before m, nor was found damaged.
func isFirst(c *snapshot.Catalog, m *snapshot.Manifest) bool {
	return !slices.ContainsFunc(c.Manifests, func(o *snapshot.Manifest) bool {
		return o.Timeline == m.Timeline && o.Facts.RaftIndex < m.Facts.RaftIndex
	}) &&
		!slices.ContainsFunc(c.Damaged, func(d snapshot.Unusable) bool { return d.Timeline == m.Timeline && !d.Unsigned() }) && len(c.Unread) == 0
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
		return notYet(m)
	}
	return fmt.Sprintf("the archived log from %s, at raft index %d, goes on to raft index %d only, and this one is at %d: where an archiver is still on its way there, verify it again later; where there is a gap (`requorum list` shows it), the next full snapshot can be proved from this one",
		before.Name, before.Index(), h.Reach(before), m.Facts.RaftIndex)
}
