package verify

import (
	"context"
	"slices"
	"strings"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/segment"
)

// cannotReplay tells a backup to which the rung replay does not apply: its
// timeline never had a log, and no other backup has the same state. That is no
// proof that failed, and the rung above can be reached without. Where a log is
// there, or was, and does not do, the check tells why.
func (h *history) cannotReplay(ctx context.Context, m *snapshot.Manifest) bool {
	same := func(o *snapshot.Manifest) bool {
		return o.Timeline == m.Timeline && o.ID != m.ID && o.Facts.RaftIndex == m.Facts.RaftIndex
	}
	if slices.ContainsFunc(h.catalog.Manifests, same) || !h.neverHadLog(ctx) {
		return false
	}
	h.note("the replay rung needs an archived log: none of timeline %s was ever archived ('requorum archive' does it), so that rung was left out; looked at: %s", h.id, h.otherRungs())
	return true
}

// neverHadLog tells that there is nothing of a log in the timeline, and that no
// verdict knows of one. What cannot be asked may have been there.
func (h *history) neverHadLog(ctx context.Context) bool {
	if h.hadLog == nil {
		had := h.unread != nil || h.logIn(ctx, h.id) || (&logCheck{examination: h.examination, part: logPart{timeline: h.id}}).wasThere()
		h.hadLog = &had
	}
	return !*h.hadLog
}

// logIn tells whether there is, or may be, any object of a log in a timeline.
func (e *examination) logIn(ctx context.Context, t repository.TimelineID) bool {
	if all, err := e.repo.Segments(ctx, t); err != nil || len(all) > 0 {
		return true
	}
	log, err := segment.OpenLog(ctx, e.repo, t, e.Identities...)
	return err != nil || len(log.Headers())+len(log.Damaged())+len(log.Alive())+len(log.Gaps()) > 0
}

// otherRungs names those that were asked for, but for the replay.
func (r *run) otherRungs() string {
	var names []string
	for _, rung := range report.Rungs() {
		if r.Rung.Includes(rung) && rung != report.Replay {
			names = append(names, string(rung))
		}
	}
	return strings.Join(names, ", ")
}
