package archive

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay/segment"
)

// found is what one look through the archive told.
type found struct {
	end     uint64 // of the archive, as it was known when the look began
	full    uint64 // index of the newest full snapshot
	some    bool   // there is a full snapshot
	last    uint64 // the last entry that there is
	missing []segment.Run
	records []repository.GapName
	err     error
}

const (
	// searchEvery is how often a running archiver looks through the archive for
	// holes. It takes a few listings.
	searchEvery = time.Hour
	// searchAgain is how soon it does after a failure.
	searchAgain = time.Minute
)

// search looks through the archive, beside the requests: it may take long, and
// nothing waits for it.
func (s *session) search(ctx context.Context, now time.Time) {
	if s.searching != nil || s.repo == nil || s.timeline.N == 0 || !s.away.IsZero() {
		return
	}
	if told := s.a.look.Swap(false); now.Before(s.searchAt) && !told {
		return
	}
	if s.a.cover == nil || s.a.cover.Timeline() != s.timeline {
		s.a.cover = segment.NewCover(s.repo, s.timeline)
	}
	ctx, s.endSearch = context.WithCancel(ctx)
	result := make(chan found, 1)
	s.searching = result
	repo, id, cover, end := s.repo, s.timeline, s.a.cover, s.stored
	go func() { result <- lookThrough(ctx, repo, id, cover, end) }()
}

func lookThrough(ctx context.Context, repo *repository.Repository, id repository.TimelineID, cover *segment.Cover, end uint64) (f found) {
	ctx, cancel := context.WithTimeout(ctx, branchLimit)
	defer cancel()
	f.end = end
	if f.full, _, f.some, f.err = newestFull(ctx, repo, id); f.err != nil {
		return f
	}
	from := uint64(0)
	if f.some {
		from = f.full + 1
	}
	if f.missing, f.last, f.err = cover.Missing(ctx, from); f.err == nil && len(f.missing) > 0 {
		f.records, f.err = repo.Gaps(ctx, id)
	}
	return f
}

// searched takes what a look told.
func (s *session) searched(f found) error {
	s.endSearch()
	s.searching = nil
	now := time.Now()
	s.searchAt = now.Add(searchEvery)
	if f.err != nil {
		s.searchAt = now.Add(searchAgain)
		s.a.failed(fmt.Errorf("look for holes in the archive of timeline %s: %w", s.timeline, f.err))
		return nil //nolint:nilerr // it is told, and tried again
	}
	s.searches++
	if s.searches > 1 && f.last < f.end {
		// What the archive ended with is gone, and nothing is behind it yet: the
		// next session goes on from what is left.
		return errAgain
	}
	s.full, s.some, s.holes = f.full, f.some, s.assess(f, now)
	s.forgetFilled(f)
	s.tellHoles()
	s.publish() // who sees that it was looked through sees what was found
	s.a.update(func(st *State) { st.Checked = s.Now() })
	return nil
}

// forgetFilled calls off the full snapshot for a hole that is none any more.
func (s *session) forgetFilled(f found) {
	g := s.position.Gap
	if g == nil || g.Timeline != s.timeline.String() || g.Missing == 0 || !g.Found.IsZero() {
		return
	}
	if slices.ContainsFunc(f.missing, func(r segment.Run) bool { return r.First < g.First && r.Last >= g.First-g.Missing }) {
		return
	}
	s.position.Gap = nil
	if err := s.savePosition(true); err != nil {
		s.a.failed(err)
	}
}
