package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/safedir"
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

// session is one period of archiving: from looking where the archive stands to
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
	status      client.MemberStatus
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
	lost        uint64    // what the log ends before, and held before; 0: nothing
	rolledBack  uint64    // the member's log has to come back to here

	// Where the archive stands.
	// identified says that the member has answered, as the one whose log it is.
	identified bool
	timeline   repository.TimelineID
	end        point     // of the archive
	captured   point     // of the archive and what is spooled behind it: what is in memory comes after it
	joined     bool      // the log was compared up to captured, so the chain goes on
	fresh      bool      // there is no log yet that could be joined to
	advanced   time.Time // when end moved last, as seen from here
	ahead      *segment.Header
	waiting    waiting // for the log to come to ahead
	gapSince   time.Time
	crossing   *Gap                             // of the segment behind it whose put is under way
	otherChain bool                             // what is spooled continues another chain than the archive's end
	compared   map[repository.TimelineID]uint64 // the archives' ends when the spool was compared with them
	mustLook   bool                             // before the next put
	listed     bool                             // since the repository is back
	skipped    uint64                           // the name of level 0 that begins there is of a damaged segment
	branched   *Gap                             // of a timeline that has just been opened

	role             Role
	queue            queue
	spool            *spool
	spooledSince     time.Time // when the first entry in the backlog came
	inFlight         *cut      // a segment whose put is under way
	busy             chan func() error
	busySince        time.Time
	away             time.Time // since when the repository fails; zero when it does not
	retryAt          time.Time
	retryWait        time.Duration
	lookAt           time.Time
	alive            time.Time
	checkpointHashed time.Time
	checked          time.Time // when superseded was looked up last

	// What the archive lacks.
	searching chan inventory // a look through it that is under way
	endSearch context.CancelFunc
	searchAt  time.Time
	searches  int
	stored    uint64    // the last entry that was seen to be stored
	full      uint64    // the index of the newest full snapshot, when the archive was looked through
	some      bool      // whether there was one
	dueSince  time.Time // since when a full snapshot is due

	position  position
	saved     time.Time
	dueAt     time.Time
	elsewhere int // how often OnGap said that another archiver is at it
	clock     clock
	target    uint64 // of Once
	began     time.Time
	fullAt    time.Time // when the spool was seen full last
	unbound   bool      // the spool may exceed its bound
	spaceAt   time.Time // no segment is spooled before
	resumed   bool      // the repository was away, and is back
	ranWell   bool
	failure   error // ends the session
}

type answer struct {
	status client.MemberStatus
	at     time.Time
	took   time.Duration
	err    error
}

func newSession(a *Archiver, once bool) *session {
	now := time.Now()
	return &session{
		Config: a.config, a: a, once: once, role: Starting, began: now, advanced: now, alive: now, checked: now, checkpointHashed: now, dueSince: now, fullAt: now,
		answers: make(chan answer, 1), compared: map[repository.TimelineID]uint64{},
	}
}

// next is the index that the next segment begins with.
func (s *session) nextIndex() uint64 { return s.captured.index + 1 }

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
	case s.ahead != nil:
		return s.compare(*s.ahead)
	case s.lookDue(now):
		s.look(ctx, now)
	case s.backlog():
		return s.drain(ctx, now)
	case s.beyondGap():
		return s.crossGap(ctx, now, s.queue.first(), func() error { return s.put(ctx) })
	case s.role == Writer && s.cutDue(now):
		return s.put(ctx)
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
		s.writeAlive(ctx, s.seen.mark(), nil)
	case len(s.spool.marks) > 0:
		s.drainMark(ctx)
	case s.checkpointHashDue(now):
		s.takeCheckpointHash(ctx)
	case now.Sub(s.checked) > supersededEvery:
		s.checkSuperseded(ctx, now)
	}
}

// close releases the files, and ends what is under way beside the loop.
func (s *session) close() error {
	s.dropSearch()
	return s.closeLog()
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
	if s.lost > max(s.released, s.readTo) {
		s.reportLost(s.timeline)
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
	if err == nil {
		s.identified = true
		return checkIdentity(s.id, status)
	}
	var other *IdentityError
	if errors.As(err, &other) {
		return err
	}
	s.identified = false
	return nil // why it does not answer, the loop reports
}

// unstarted reports a member that a restore or a recovery built, and that does not
// answer: it may never have run. Who built it opens its timeline, which has a parent.
func (s *session) unstarted() bool {
	if s.identified || s.DataDir == "" {
		return false
	}
	entries, err := safedir.ReadDir(filepath.Join(s.DataDir, "member"))
	return err == nil && slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		match, _ := filepath.Match("requorum-*.json", e.Name())
		return match
	})
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
