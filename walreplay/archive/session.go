package archive

import (
	"context"
	"errors"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// point is a place in the log.
type point struct {
	index, term uint64
	sum         raftlog.Sum // the chain's value there
	revision    int64
}

func endOf(h segment.Header) point {
	return point{index: h.LastIndex, term: h.LastTerm, sum: h.After, revision: h.Revision}
}

// session is one stretch of archiving: from looking where the archive stands to
// the next reason to look anew. Everything in it is done by one goroutine,
// except the requests, of which one to the repository and one to the member are
// under way at most, and now and then a look through the archive.
type session struct {
	Config
	a    *Archiver
	once bool

	id   Identity
	log  Log
	repo *repository.Repository // nil while the repository cannot be reached

	// What the member said.
	rel         releaser
	asked       time.Time // when it was asked last
	asking      bool
	answers     chan answer
	failing     time.Time // since when it does not answer; zero when it does
	why         error     // the last reason
	status      store.MemberStatus
	applied     uint64
	confirmed   time.Time    // what was acknowledged until then is applied
	committed   uint64       // what was committed when it was asked at committedAt, and was not applied yet
	committedAt time.Time    // zero where nothing waits
	seen        *observation // the last that agreed with the log
	marked      observation  // the last that became a mark
	hinted      observation
	readTo      uint64 // the last entry in the log
	released    uint64
	stalled     time.Time // since when the log lacks what was applied
	lost        held      // what the log ends before, and held before
	rolledBack  uint64    // the member's log has to come back to here

	// Where the archive stands.
	// identified says that the member has answered, as the one whose log it is.
	identified bool
	timeline   repository.TimelineID
	archived   segment.Header // scratch of choose
	end        point          // of the archive
	tip        point          // of the archive and the spooled lane behind it: what is cut next comes after it
	joined     bool           // the log was compared up to tip, so the chain goes on
	fresh      bool           // there is no log yet that could be joined to
	advanced   time.Time      // when end moved last, as seen from here
	ahead      *segment.Header
	waiting    waiting // for the log to come to ahead
	gapSince   time.Time
	crossing   *Gap // of the anchor whose put is under way
	unwritten  []segment.GapRecord
	mustLook   bool   // before the next put
	listed     bool   // since the repository is back
	passed     uint64 // the name of level 0 that begins there is of a damaged segment
	branched   *Gap   // of a timeline that has just been opened
	fill       *filler

	role      Role
	queue     queue
	spool     *spool
	lane      []segment.Header // spooled, in order, behind end
	overlaps  bool             // the first one in it begins before end
	laneSince time.Time        // when the first entry in it came
	flying    *cut             // a segment whose put is under way
	busy      chan func() error
	busySince time.Time
	away      time.Time // since when the repository fails; zero when it does not
	retryAt   time.Time
	retryWait time.Duration
	lookAt    time.Time
	alive     time.Time
	stamped   time.Time
	checked   time.Time // when superseded was looked up last

	// What the archive lacks.
	searching chan found // a look through it that is under way
	endSearch context.CancelFunc
	searchAt  time.Time
	searches  int
	stored    uint64 // the last entry that was seen to be stored
	holes     []*hole
	full      uint64    // the index of the newest full snapshot, when the archive was looked through
	some      bool      // whether there was one
	dueSince  time.Time // since when a full snapshot is due

	position position
	saved    time.Time
	dueAt    time.Time
	clock    clock
	target   uint64 // of Once
	began    time.Time
	fullAt   time.Time // when the spool was seen full last
	unbound  bool      // the spool may exceed its bound
	crowded  bool      // the spool's disk was full, and no segment was spooled since
	roomAt   time.Time // no segment is spooled before
	goneOn   bool      // the session began while the repository was away, and uses it now
	ranWell  bool
	failure  error // ends the session
}

type answer struct {
	status store.MemberStatus
	at     time.Time
	took   time.Duration
	err    error
}

func newSession(a *Archiver, once bool) *session {
	now := time.Now()
	return &session{
		Config: a.config, a: a, once: once, role: Starting, began: now, advanced: now, alive: now, checked: now, stamped: now, dueSince: now, fullAt: now,
		answers: make(chan answer, 1),
	}
}

// next is the index that the next segment begins with.
func (s *session) nextIndex() uint64 { return s.tip.index + 1 }

func (s *session) run(ctx context.Context) error {
	if err := s.start(ctx); err != nil {
		return err
	}
	ticker := time.NewTicker(s.Poll)
	defer ticker.Stop()
	for {
		if err := s.step(ctx); err != nil {
			return s.leave(ctx, err)
		}
		if s.once && s.target > 0 && s.end.index >= s.target && s.settled() {
			return s.leave(ctx, nil)
		}
		select {
		case <-ctx.Done():
			return s.flush(ctx)
		case done := <-s.busy:
			if err := s.finish(done); err != nil {
				return s.leave(ctx, err)
			}
		case a := <-s.answers:
			if err := s.answered(a); err != nil {
				return s.leave(ctx, err)
			}
		case f := <-s.searching:
			if err := s.searched(f); err != nil {
				return s.leave(ctx, err)
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
		if err := s.spoolAlive(s.seen.mark(), nil); err != nil {
			return err
		}
	}
	s.clock.check(s.a.alarms, now, s.Now())
	s.ask(ctx, now)
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
	case len(s.unwritten) > 0:
		s.writeGap(ctx)
	case s.ahead != nil:
		return s.meet(*s.ahead)
	case s.lookDue(now):
		s.look(ctx, now)
	case len(s.lane) > 0:
		return s.drain(ctx)
	case s.holed():
		return s.crossGap(ctx, now)
	case s.role == Writer && s.cutDue(now):
		return s.put(ctx, false)
	case s.role == Follower && s.late(now):
		s.takeOver(ctx)
	default:
		return s.small(ctx, now)
	}
	return nil
}

// small are the requests that can wait.
func (s *session) small(ctx context.Context, now time.Time) error {
	switch {
	case s.aliveDue(now):
		s.writeAlive(ctx, s.seen.mark(), nil)
	case len(s.spool.marks) > 0:
		s.drainMark(ctx)
	case s.stampDue(now):
		s.takeStamp(ctx)
	case now.Sub(s.checked) > supersededEvery:
		s.checkSuperseded(ctx, now)
	default:
		if h := s.nextHole(now); h != nil {
			return s.mend(ctx, h, now)
		}
	}
	return nil
}

// close lets go of the files, and ends what is under way beside the loop.
func (s *session) close() error {
	if s.searching != nil {
		s.endSearch()
		s.searching, s.a.cover = nil, nil // it may take a moment to end
	}
	return errors.Join(s.endFill(), s.closeLog())
}

func (s *session) closeLog() error {
	if s.log == nil {
		return nil
	}
	err := s.log.Close()
	s.log = nil
	return err
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
