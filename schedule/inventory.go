package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/requorum/requorum/schedule/web"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/verdict"
	"github.com/requorum/requorum/walreplay"
)

// documentMemory is what documents of the repository may take in memory, so
// that each is fetched once: some hundred manifests, and verdicts.
const documentMemory = 16 << 20

// inventory is what a repository holds, as it was looked at last.
type inventory struct {
	*walreplay.Inventory
	less error // it holds less than was seen before; nil where it does not
	over error // the cluster began again without what is archived, and nobody has answered; nil if not

	chain  verdict.List
	ranges []walreplay.Range
	pins   map[string]*repository.Pin // by name
	listed time.Time
}

// rememberDocuments is for those who look at what is there, not for those who prove that
// it can be read.
func rememberDocuments(sink sinks.Sink) sinks.Sink {
	return sinks.Remember(sink, documentMemory, func(name string) bool { return strings.HasSuffix(name, ".json") })
}

// newInventory looks at nothing yet. The sink remembers documents.
func newInventory(ctx context.Context, sink sinks.Sink) (*inventory, error) {
	repo, err := repository.Open(ctx, sink)
	if err != nil {
		return nil, err
	}
	return &inventory{Inventory: walreplay.NewInventory(repo, nil)}, nil
}

// lookAtBackups lists them and the verdicts anew, and no log. With an error some
// of what was known before stays.
func (s *inventory) lookAtBackups(ctx context.Context) error {
	if err := s.Refresh(ctx); err != nil {
		return err
	}
	chain, err := verdict.ReadAll(ctx, s.Repo)
	if err == nil {
		s.chain = chain
	}
	return err
}

// look lists everything anew. With an error some of what was known before stays.
func (s *inventory) look(ctx context.Context, now time.Time) error {
	if err := s.lookAtBackups(ctx); err != nil {
		return err
	}
	ranges, err := s.Ranges(ctx)
	if err != nil {
		return err
	}
	var less *walreplay.RolledBackError
	if s.less = s.CheckReached(ctx); s.less != nil && !errors.As(s.less, &less) {
		return s.less
	}
	var over *snapshot.StartedOverError
	if s.over = s.CheckStartedOver(ctx); s.over != nil && !errors.As(s.over, &over) {
		return s.over
	}
	pins, err := s.Repo.Pins(ctx)
	if err == nil {
		s.ranges, s.pins, s.listed = ranges, pins, now
	}
	return err
}

// describe is the inventory as a status shows it.
func (s *inventory) describe(r *web.Repository) {
	r.ID, r.Listed, r.Ranges, r.LogBytes, r.Timelines = s.Repo.ID(), s.listed, s.ranges, s.Size(), s.Timelines
	r.Backups, r.FullBytes = []web.Backup{}, 0
	for _, m := range s.Manifests {
		b := web.Backup{
			ID: m.ID, Timeline: m.Timeline, Time: m.Started, Finished: m.Finished, Revision: m.Facts.Revision, Index: m.Facts.RaftIndex,
			Stored: m.Object.StoredSize, Raw: m.Object.RawSize, Pinned: s.pins[repository.PinName(m.Timeline, m.ID)] != nil,
			Source: cmp.Or(m.Source.Name, m.Source.Endpoint), Encrypted: m.Object.Encrypted(), SignedBy: m.Stored.SignedBy,
		}
		if w, ok := s.chain.Damaged(m); ok {
			b.Failed, b.ProvedAt = failedLevel(w), w.Verdict.Finished
			b.Damaged = firstFinding(w)
		} else if err := s.CheckEncrypted(m); err != nil {
			b.Damaged = err.Error()
		} else if w, ok := s.chain.Best(m); ok {
			b.Proved, b.ProvedAt = w.Verdict.Reached, w.Verdict.Finished
		}
		r.FullBytes += b.Stored
		r.Backups = append(r.Backups, b)
	}
	for _, d := range s.Damaged {
		if d.Unsigned() {
			continue // whoever may add objects could keep an agent from being ready
		}
		at, _ := repository.BackupTime(d.ID) // the manifest would say it better, and cannot
		r.Backups = append(r.Backups, web.Backup{ID: d.ID, Timeline: d.Timeline, Time: at, Damaged: d.Err.Error()})
	}
	for _, u := range s.Unread {
		r.Backups = append(r.Backups, web.Backup{ID: fmt.Sprintf("(%d unread)", u.Unread), Timeline: u.Timeline, Time: s.listed, Damaged: u.Err.Error()})
	}
	slices.SortStableFunc(r.Backups, func(a, b web.Backup) int {
		return cmp.Or(cmp.Compare(a.Timeline.String(), b.Timeline.String()), cmp.Compare(a.ID, b.ID))
	})
}

// failedLevel is the level after the one that was reached.
func failedLevel(w verdict.Entry) report.Level {
	levels := report.Levels()
	next := slices.Index(levels, w.Verdict.Reached) + 1
	return levels[min(next, len(levels)-1)]
}

func firstFinding(w verdict.Entry) string {
	switch n := len(w.Verdict.Findings) + w.Verdict.MoreFindings; {
	case len(w.Verdict.Findings) == 0:
		return "a verification found damage"
	case n == 1:
		return w.Verdict.Findings[0].Text
	default:
		return fmt.Sprintf("%s (and %d more)", w.Verdict.Findings[0].Text, n-1)
	}
}

// clockTolerance is by how much another host's clock may be ahead of this one's.
const clockTolerance = time.Minute

// newest is the full snapshot of the newest state, in the timeline that was written
// to last; nil where there is none. Of several timelines, clocks show which: one
// that is ahead counts only where there is no other.
func (s *inventory) newest() *snapshot.Manifest {
	var newest *snapshot.Manifest
	ahead := func(m *snapshot.Manifest) bool { return m.Started.After(s.listed.Add(clockTolerance)) }
	for _, m := range s.Manifests {
		switch {
		case newest == nil, ahead(newest) && !ahead(m):
			newest = m
		case ahead(m) && !ahead(newest):
		case !m.Started.Before(newest.Started):
			newest = m
		}
	}
	if newest == nil {
		return nil
	}
	return s.newestOf(newest.Timeline)
}

// newestOf is the full snapshot of the newest state of a timeline, of those that are
// not known to be damaged unless there are no others; nil where there is none.
func (s *inventory) newestOf(t repository.TimelineID) *snapshot.Manifest {
	for _, m := range slices.Backward(s.Manifests) {
		if m.Timeline == t && s.counts(m) {
			return m
		}
	}
	return s.Newest(t)
}

// counts reports whether a full snapshot is one to rely on, as far as is known.
func (s *inventory) counts(m *snapshot.Manifest) bool {
	_, damaged := s.chain.Damaged(m)
	return !damaged && s.CheckEncrypted(m) == nil
}

// unproved is a full snapshot, unless a verdict proved it at level structure or found damage;
// then nil.
func (s *inventory) unproved(m *snapshot.Manifest) *snapshot.Manifest {
	if m == nil {
		return nil
	}
	_, proved := s.chain.Newest(m, report.Structure)
	_, damaged := s.chain.Damaged(m)
	if proved || damaged {
		return nil
	}
	return m
}

// held is up to when each timeline's good full snapshots hold all that was
// acknowledged: what was before they were begun. One that
// seems to be of the future says nothing: the clock that gave it was wrong.
func (s *inventory) held() map[repository.TimelineID]time.Time {
	all := map[repository.TimelineID]time.Time{}
	for _, m := range s.Manifests {
		if s.counts(m) && !m.Started.After(s.listed) {
			all[m.Timeline] = later(all[m.Timeline], m.Started)
		}
	}
	return all
}

// since is how much log there is behind a full snapshot.
func (s *inventory) since(m *snapshot.Manifest) (bytes int64, entries uint64) {
	if m == nil {
		return 0, 0
	}
	return s.Since(m.Timeline, m.Facts.RaftIndex)
}
