package snapshot

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/store/shell"
)

// startedOver is a timeline of a cluster that began again, under the same cluster ID,
// below the revision that the timeline before it had reached: members that lost their
// disks began as new ones, or were set back. Restores and recoveries by requorum give the
// cluster another ID.
type startedOver struct{ timeline, from repository.TimelineID }

// StartedOverError reports that a cluster began again without writes that are archived,
// and that nobody has said yet how it is to continue. It wraps ErrAmbiguous.
type StartedOverError struct {
	Repository string // its URL
	// Newest is the timeline that began last, From the one that it does not continue.
	Newest, From repository.TimelineID
	shown        []string // each timeline with its end
}

func (e *StartedOverError) Error() string {
	url := shell.Quote(e.Repository)
	return fmt.Sprintf("timeline %s: the cluster began again without writes that timeline %s holds: members lost their disks and began as new ones, or were set back:\n  %s\n"+
		"Retention keeps all of %s until somebody decides. If the lost writes are needed: stop the members and restore, 'requorum restore --repo %s --timeline %s …'. If the cluster is to continue as it is: 'requorum accept %s --repo %s'. To read one of them, choose it with --timeline",
		e.Newest, e.From, strings.Join(e.shown, "\n  "), e.From, url, e.From, e.Newest, url)
}

func (e *StartedOverError) Unwrap() error { return ErrAmbiguous }

// branchedFrom is the timeline of the same cluster ID that t began after; zero if there is
// none. If t's descriptor is damaged that is the one before it.
func (c *Catalog) branchedFrom(t repository.Timeline) (from repository.TimelineID) {
	if t.Parent != nil {
		if t.Parent.Timeline.ClusterID == t.ID.ClusterID {
			from = t.Parent.Timeline
		}
		return from
	}
	if !slices.ContainsFunc(c.DamagedTimelines, isOf(t.ID)) {
		return from
	}
	for _, o := range c.Timelines {
		if o.ID.ClusterID == t.ID.ClusterID && o.ID.N < t.ID.N && o.ID.N > from.N {
			from = o.ID
		}
	}
	return from
}

// startedOver are the timelines that began again below an older one that can be restored,
// and that were not accepted.
func (c *Catalog) startedOver() (all []startedOver) {
	for _, t := range c.Timelines {
		from := c.branchedFrom(t)
		if from.N > 0 && c.hasBackup(from) && c.Archived[from].By != t.ID && c.began(t.ID) < c.reached(from) {
			all = append(all, startedOver{t.ID, from})
		}
	}
	return all
}

// began is a revision that a timeline had reached before its first entry: each entry moves
// the revision by one at most. A restore with a revision bump begins above all that clients
// saw. Without a full snapshot nothing is known.
func (c *Catalog) began(t repository.TimelineID) int64 {
	for _, m := range c.Manifests { // the oldest state first
		if m.Timeline == t {
			return m.Facts.Revision - int64(m.Facts.RaftIndex)
		}
	}
	return math.MinInt64
}

// reached is the highest revision that a timeline is known to have reached.
func (c *Catalog) reached(t repository.TimelineID) int64 {
	revision := c.Archived[t].Revision
	if m := c.Newest(t); m != nil {
		revision = max(revision, m.Facts.Revision)
	}
	return revision
}

// CheckStartedOver returns a *StartedOverError if a cluster began again without archived
// writes and nobody has answered. The answers are a mark that ends one of the two
// timelines, and a restore of the older one whose cluster is backed up here. c.Archived has
// to be filled in, as walreplay.Archives does.
func (c *Catalog) CheckStartedOver() error {
	all := c.startedOver()
	var open *StartedOverError
	var shown []repository.TimelineID
	for _, o := range all {
		if isStartedOver(all, o.from) || c.Archived[o.from].Superseded || c.Archived[o.timeline].Superseded || c.continued(o.from, all) {
			continue
		}
		if open == nil {
			open = &StartedOverError{Repository: c.repository, From: o.from}
			shown = append(shown, o.from)
		}
		open.Newest = o.timeline
		shown = append(shown, o.timeline)
	}
	if open == nil {
		return nil
	}
	for _, o := range all { // it may have begun again more than once
		if o.from == open.Newest {
			open.Newest = o.timeline
			shown = append(shown, o.timeline)
		}
	}
	for _, t := range shown {
		open.shown = append(open.shown, c.Summary(t)+c.end(t))
	}
	return open
}

func isStartedOver(all []startedOver, t repository.TimelineID) bool {
	return slices.ContainsFunc(all, func(o startedOver) bool { return o.timeline == t })
}

// end describes how far a timeline reached.
func (c *Catalog) end(t repository.TimelineID) string {
	text := ""
	if revision := c.reached(t); revision > 0 {
		text = fmt.Sprintf(", reached revision %d", revision)
	}
	if seen := c.Archived[t].Seen; !seen.IsZero() {
		text += ", last observed " + seen.UTC().Format(timeLayout)
	}
	return text
}
