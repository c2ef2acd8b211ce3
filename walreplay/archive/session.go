package archive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// point is a place in the log.
type point struct {
	index, term uint64
	sum         raftlog.Sum // the chain's value there
	revision    int64
	first       uint64 // of the segment that ends there; 0: none does
}

func endOf(h segment.Header) point {
	return point{index: h.LastIndex, term: h.LastTerm, sum: h.After, revision: h.Revision, first: h.FirstIndex}
}

// base is what all parts of a session share.
type base struct {
	Config
	a    *Archiver
	once bool // see Archiver.Once
}

// session is one period of archiving: from looking where the archive stands to
// the next reason to look anew. Everything in it is done by one goroutine,
// except the requests, of which one to the repository and one to the member are
// under way at most, and now and then a look through the archive.
//
// Each part has rules of its own; the session's are what they do together: which request
// comes next (work), and how entries get from the member's log to the archive (read, keep,
// put, follow).
type session struct {
	*base
	memberLog // what is read, and what is committed
	outbox    // what is captured, and where the archive ends
	folder    // what waits on the local disk
	link      // to the repository
	gapWatch  // what the archive lacks

	role    Role
	began   time.Time
	clock   clock
	checked time.Time // when superseded was looked up last
	resumed bool      // the repository was away, and is back
	ranWell bool
	failure error // ends the session

	compared map[repository.TimelineID]uint64 // the archives' ends when the spool was compared with them
}

type answer struct {
	status client.MemberStatus
	at     time.Time
	took   time.Duration
	err    error
}

func newSession(a *Archiver, once bool) *session {
	now := time.Now()
	b := &base{Config: a.config, a: a, once: once}
	s := &session{base: b, role: Starting, began: now, checked: now, compared: map[repository.TimelineID]uint64{}}
	s.memberLog = memberLog{base: b, answers: make(chan answer, 1)}
	s.outbox = outbox{base: b, advanced: now, alive: now}
	s.folder = folder{base: b, fullAt: now}
	s.link = link{base: b}
	s.gapWatch = gapWatch{base: b, folder: &s.folder, dueSince: now}
	return s
}

func (s *session) run(ctx context.Context) error {
	if err := s.start(ctx); err != nil {
		return err
	}
	ticker := time.NewTicker(s.Poll)
	defer ticker.Stop()
	for {
		if err := s.step(ctx); err != nil {
			return s.handOver(ctx, err)
		}
		if s.once && s.target > 0 && s.end.index >= s.target && s.settled() {
			return s.handOver(ctx, nil)
		}
		select {
		case <-ctx.Done():
			return s.flush(ctx)
		case done := <-s.busy:
			if err := s.finish(done); err != nil {
				return s.handOver(ctx, err)
			}
		case a := <-s.answers:
			if err := s.answered(a); err != nil {
				return s.handOver(ctx, err)
			}
		case f := <-s.searching:
			if err := s.searched(f); err != nil {
				return s.handOver(ctx, err)
			}
		case err := <-s.a.call.done:
			s.snapshotTaken(err)
		case <-ticker.C:
		}
	}
}

// step does what is due now.
func (s *session) step(ctx context.Context) error {
	now := time.Now()
	if s.aliveDue(now) && !s.away.IsZero() {
		if err := s.spoolAlive(s.seen.mark()); err != nil {
			return err
		}
	}
	s.clock.check(s.a.alarms, now, s.Now())
	s.ask(ctx, now, s.unmarked())
	if err := s.read(ctx, now); err != nil {
		return err
	}
	if err := s.keep(ctx, now); err != nil {
		return err
	}
	if s.busy == nil {
		if err := s.work(ctx, now); err != nil {
			return err
		}
	}
	s.search(ctx, now)
	s.callForSnapshot(ctx, now)
	s.watch(now)
	s.publish()
	return s.failure
}

// work starts the one request to the repository that matters most.
func (s *session) work(ctx context.Context, now time.Time) error {
	if now.Before(s.retryAt) {
		return nil
	}
	switch {
	case s.repo == nil:
		s.reconnect(ctx)
	case s.ahead != nil:
		return s.compare(*s.ahead)
	case s.lookDue(now):
		s.look(ctx, now)
	case s.backlog():
		return s.drain(ctx, now)
	case s.beyondGap():
		return s.crossGap(ctx, now, s.queue.first(), func() error {
			s.put(ctx)
			return nil
		})
	case s.role == Writer && s.cutDue(now):
		s.put(ctx)
	case s.role == Follower && s.late(now):
		// After one listing: the archive may end elsewhere than where the next segment was
		// looked for.
		s.whenEndIsKnown(ctx, func() error {
			s.role = Writer
			return nil
		})
	case len(s.a.unwritten) > 0:
		s.writeGap(ctx)
	default:
		s.small(ctx, now)
	}
	return nil
}

// small are the requests that can wait.
func (s *session) small(ctx context.Context, now time.Time) {
	switch {
	case s.aliveDue(now):
		s.writeAlive(ctx, s.seen.mark())
	case s.signDue(now):
		s.writeAlive(ctx, s.sign.mark())
	case len(s.spool.marks) > 0:
		s.drainMark(ctx)
	case now.Sub(s.checked) > supersededEvery:
		s.checkSuperseded(ctx, now)
	}
}

// close releases the files, and ends what is under way beside the loop.
func (s *session) close() error {
	s.dropSearch()
	return s.closeLog()
}

// pause waits for the next poll, outside of the loop of run.
func (s *session) pause(ctx context.Context) error {
	s.publish()
	select {
	case <-time.After(s.Poll):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

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
	if g := s.position.Gap; g != nil {
		s.a.alarms.raise(AlarmGap, g.Reason+"; a full snapshot is due")
	}
	if err := s.identify(ctx); err != nil {
		return err
	}
	if err := s.findLost(ctx, s.position.End); err != nil {
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
	if err := s.choose(ctx); err != nil {
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
	if s.lost.LastIndex > max(s.released, s.readTo) {
		s.reportLost(s.timeline)
	}
	if s.once {
		s.role = Writer
	}
	s.rel = releaser{}
	s.advanced = time.Now()
	return s.setTarget(ctx)
}

// connect opens the repository.
func (s *session) connect(ctx context.Context) error {
	err := s.inTime(ctx, lookLimit, func(ctx context.Context) (err error) {
		if err := s.checkWriters(ctx); err != nil {
			return err
		}
		s.repo, err = s.position.Place.open(ctx, s.a.sink, s.Now())
		return err
	})
	if err != nil {
		return err
	}
	return s.remember(s.repo)
}

// probe looks whether a new session could begin with the repository: one that
// gives objects and lists none is not back.
func (l *link) probe(ctx context.Context, known place, id repository.TimelineID) (*repository.Repository, error) {
	repo, err := known.open(ctx, l.a.sink, l.Now())
	if err != nil {
		return nil, err
	}
	if _, err := repo.TimelineIDs(ctx); err != nil || id.N == 0 {
		return repo, err
	}
	if _, err = repo.Segments(ctx, id); err == nil {
		err = l.checkPlain(ctx, repo, id)
	}
	return repo, err
}

// awayError is a failure of the repository before it is known where to begin.
type awayError struct{ err error }

func (e *awayError) Error() string { return e.err.Error() }
func (e *awayError) Unwrap() error { return e.err }

// inTime looks at the repository before there are requests beside the loop.
// One that is silent is shown soon, and given up at the limit. An error that
// time may heal is an *awayError.
func (b *base) inTime(ctx context.Context, limit time.Duration, look func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	silent := time.AfterFunc(silentAfter, func() {
		b.a.alarms.raise(AlarmRepository, fmt.Sprintf("the repository has not answered for %s", silentAfter))
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
		return &reportedError{fmt.Errorf("the repository is away, and where its archive ends is not known here: %w", s.whyAway())}
	}
	s.timeline = end.Timeline
	s.end = endOf(end)
	t := &matchCheck{timeline: end.Timeline, end: end}
	if spooled := s.spool.behind(end.Timeline, end.LastIndex); len(spooled) > 0 {
		t.end = spooled[len(spooled)-1]
	}
	s.role = Spooling
	v, err := s.try(ctx, t)
	switch {
	case err != nil:
		return err
	case v == differs || v == behind:
		return fmt.Errorf("the log contradicts what was archived or spooled up to index %d, and the repository is away: nothing can be decided", t.end.LastIndex)
	}
	s.captured, s.joined = endOf(t.end), v == equal
	s.rel = releaser{}
	return s.openAt(s.captured.index + 1)
}
