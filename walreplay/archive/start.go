package archive

import (
	"context"
	"fmt"
	"time"

	"github.com/requorum/requorum/sinks/repository"
)

// start finds where to begin. Without the repository it goes on behind what is
// spooled, or behind what it remembers to be archived.
func (s *session) start(ctx context.Context) error {
	s.publish()
	var err error
	if s.spool, err = openSpool(ctx, s.SpoolDir, s.Now()); err != nil {
		return err
	}
	for _, err := range s.spool.damaged {
		s.a.failed(err)
	}
	if s.position, err = readPosition(s.SpoolDir); err != nil {
		return err
	}
	if err := s.openAt(0); err != nil {
		return err
	}
	s.id = s.log.Identity()
	s.a.update(func(st *State) { st.Member = s.id.String() })
	if s.position.Identity != s.id {
		s.position = position{Identity: s.id}
	}
	if err := s.connect(ctx); err != nil {
		if err := s.unreachable(err); err != nil {
			return err
		}
		return s.startAway(ctx)
	}
	s.role = Comparing
	if err := s.choose(ctx); err != nil {
		return err
	}
	if s.once {
		s.role = Writer
	}
	if s.holes, err = s.repo.Gaps(ctx, s.timeline); err != nil {
		return err
	}
	s.rel = releaser{}
	s.advanced = time.Now()
	return s.setTarget(ctx)
}

// connect opens the repository.
func (s *session) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	repo, err := repository.Init(ctx, s.a.sink, s.Now())
	if err != nil {
		return err
	}
	s.repo = repo
	s.reachable()
	return nil
}

// startAway begins while the repository is away.
func (s *session) startAway(ctx context.Context) error {
	end := s.position.End
	if end.Entries == 0 {
		return fmt.Errorf("the repository is away, and where its archive ends is not known here: %w", s.whyAway())
	}
	s.timeline = end.Timeline
	s.end = endOf(end)
	t := &trial{timeline: end.Timeline, end: end}
	s.lane = s.spool.lane(end.Timeline, end.LastIndex, end.After)
	if n := len(s.lane); n > 0 {
		t.end = s.lane[n-1]
	}
	s.role = Spooling
	v, err := s.try(ctx, t)
	switch {
	case err != nil:
		return err
	case v == differs || v == behind:
		return fmt.Errorf("the log contradicts what was archived or spooled up to index %d, and the repository is away: nothing can be decided", t.end.LastIndex)
	}
	s.tip, s.joined = endOf(t.end), v == equal
	s.rel = releaser{}
	return s.openAt(s.tip.index + 1)
}
