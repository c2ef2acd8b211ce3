package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/requorum/requorum/sinks/repository"
)

// start finds where to begin. Without the repository it goes on behind what is
// spooled, or behind what it remembers to be archived.
func (s *session) start(ctx context.Context) error {
	s.publish()
	var err error
	if s.spool, err = s.openSpool(ctx); err != nil {
		return err
	}
	for _, err := range s.spool.damaged {
		s.a.failed(err)
	}
	if s.position, err = readPosition(s.SpoolDir); err != nil {
		return err
	}
	if s.a.unsaved != nil {
		s.position = *s.a.unsaved
	}
	if err := s.openAt(0); err != nil {
		return err
	}
	s.id = s.log.Identity()
	s.a.update(func(st *State) { st.Member = s.id.String() })
	if s.position.Identity != s.id {
		s.position = position{Identity: s.id, Place: s.position.Place}
	}
	if err := s.identify(ctx); err != nil {
		return err
	}
	if err := s.findLost(ctx); err != nil {
		return err
	}
	if err := s.connect(ctx); err != nil {
		if err := s.unreachable(err); err != nil {
			return err
		}
		return s.startAway(ctx)
	}
	s.role = Comparing
	s.publish()
	if err := s.join(ctx); err != nil {
		var away *awayError
		if !errors.As(err, &away) || ctx.Err() != nil {
			return err
		}
		if err := s.unreachable(err); err != nil {
			return err
		}
		// Half of it works. What is captured meanwhile goes to the spool.
		s.repo, s.fresh, s.branched = nil, false, nil
		return s.startAway(ctx)
	}
	s.reachable()
	if s.lost.Index > max(s.released, s.readTo) {
		s.tellLost(s.timeline)
	}
	if s.once {
		s.role = Writer
	}
	s.rel = releaser{}
	s.advanced = time.Now()
	return s.setTarget(ctx)
}

// identifyLimit is how long the member has to say who it is, before its log is
// archived without its word, as that of a member which is down.
const identifyLimit = 3 * time.Second

// identify finds out, before anything is stored, that the log and the answers are
// of one member: with the log of another cluster than the one that answers, full
// snapshots and log would not belong together.
func (s *session) identify(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, identifyLimit)
	defer cancel()
	status, err := s.cluster.Status(ctx, s.id)
	var other *IdentityError
	if errors.As(err, &other) {
		return err
	}
	if got := (Identity{status.ClusterID, status.MemberID}); err == nil && got != s.id {
		return &IdentityError{Log: s.id, Answer: got, Endpoint: status.Endpoint}
	}
	s.identified = err == nil
	return nil // why it does not answer, the loop tells
}

// unstarted tells of a member that a restore or a recovery built, and that does not
// answer: it may never have run. Who built it opens its timeline, which has a parent.
func (s *session) unstarted() bool {
	if s.identified || s.DataDir == "" {
		return false
	}
	records, err := fs.Glob(os.DirFS(s.DataDir), "member/requorum-*.json")
	return err == nil && len(records) > 0
}

// join finds the place in the archive that the log goes on from.
func (s *session) join(ctx context.Context) error {
	return s.choose(ctx)
}

// connect opens the repository.
func (s *session) connect(ctx context.Context) error {
	err := s.inTime(ctx, lookLimit, func(ctx context.Context) (err error) {
		if err := s.checkWriters(ctx); err != nil {
			return err
		}
		s.repo, err = s.openRepository(ctx)
		return err
	})
	if err != nil {
		return err
	}
	return s.remember(s.repo)
}

// probe looks whether a new session could begin with the repository: one that
// gives objects and lists none is not back.
func (s *session) probe(ctx context.Context, id repository.TimelineID) (*repository.Repository, error) {
	repo, err := s.openRepository(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := repo.TimelineIDs(ctx); err != nil || id.N == 0 {
		return repo, err
	}
	_, err = repo.Segments(ctx, id)
	return repo, err
}

// awayError is a failure of the repository before it is known where to begin.
type awayError struct{ err error }

func (e *awayError) Error() string { return e.err.Error() }
func (e *awayError) Unwrap() error { return e.err }

// inTime looks at the repository before there are requests beside the loop.
// One that is silent is shown soon, and given up at the limit. An error that
// time may heal is an *awayError.
func (s *session) inTime(ctx context.Context, limit time.Duration, look func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	silent := time.AfterFunc(silentAfter, func() {
		s.a.alarms.raise(AlarmRepository, fmt.Sprintf("the repository has not answered for %s", silentAfter))
	})
	defer silent.Stop()
	err := look(ctx)
	if err == nil || fatal(err) {
		return err
	}
	return &awayError{err}
}

// startAway begins while the repository is away.
func (s *session) startAway(ctx context.Context) error {
	end := s.position.End
	if end.Entries == 0 {
		return &toldError{fmt.Errorf("the repository is away, and where its archive ends is not known here: %w", s.whyAway())}
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
