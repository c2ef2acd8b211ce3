package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync/atomic"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
)

// link is the connection to the repository.
//
// One request is under way at most; its result is handled by the session's goroutine.
// After a failure each attempt waits longer, and nothing is put before it was looked up
// where the archive ends.
type link struct {
	*base
	repo      *repository.Repository // nil while it cannot be reached
	busy      chan func() error      // the request that is under way
	busySince time.Time
	inFlight  *cut      // the segment whose put is under way
	away      time.Time // since when the repository fails; zero when it does not
	retryAt   time.Time
	retryWait time.Duration
	mustLook  bool      // before the next put
	lookAt    time.Time // when the next segment is looked for
	listed    bool      // since the repository is back
	gapSince  time.Time // since when a gap is left to others; the time away does not count
}

// do starts a request to the repository on a goroutine of its own. What it
// returns is then done by the session's.
func (l *link) do(ctx context.Context, limit time.Duration, request func(context.Context) func() error) {
	busy := make(chan func() error, 1)
	l.busy, l.busySince = busy, time.Now()
	// Not ended by ctx: what was begun is given a moment when it ends.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	go func() {
		defer cancel()
		busy <- request(ctx)
	}()
}

func (l *link) finish(done func() error) error {
	l.busy, l.inFlight = nil, nil
	return done()
}

// unreachable notes that a request failed; the next waits longer each time. It
// returns the error if time does not heal it.
func (l *link) unreachable(err error) error {
	if fatal(err) {
		return err
	}
	now := time.Now()
	if l.away.IsZero() {
		l.away = now
	}
	l.retryWait = min(max(2*l.retryWait, 500*time.Millisecond), 15*time.Second)
	l.retryAt = now.Add(l.retryWait)
	// Before the next put: where does the archive stand?
	l.mustLook, l.lookAt, l.listed = true, time.Time{}, false
	l.a.failed(err)
	l.a.alarms.raise(AlarmRepository, err.Error())
	return nil
}

// reachable notes that a request was answered. Where the last put was refused (a
// full disk, a missing right), reading is no reason to put again at once, nor to
// say that all is well.
func (l *link) reachable() {
	if r := &l.a.refusal; r.wait > 0 {
		if l.away.IsZero() {
			l.away = time.Now()
		}
		l.retryAt = r.until
		return
	}
	if !l.away.IsZero() && !l.gapSince.IsZero() {
		l.gapSince = l.gapSince.Add(time.Since(l.away)) // nobody could store what is missing
	}
	l.away, l.retryAt, l.retryWait = time.Time{}, time.Time{}, 0
	l.a.alarms.clear(AlarmRepository)
}

// refusal is since the last put that failed; it outlives a session.
type refusal struct {
	wait  time.Duration // 0: none since the last that succeeded
	until time.Time     // nothing is put before
}

// putFailed notes that a put failed.
func (l *link) putFailed(err error) error {
	r := &l.a.refusal
	r.wait = min(max(2*r.wait, 500*time.Millisecond), 15*time.Second)
	r.until = time.Now().Add(r.wait)
	return l.unreachable(err)
}

// putSucceeded is reachable, after a put that succeeded.
func (l *link) putSucceeded() {
	l.a.refusal = refusal{}
	l.reachable()
}

// whyAway is why the repository could not be reached.
func (b *base) whyAway() error {
	for _, a := range b.a.alarms.list() {
		if a.Alarm == AlarmRepository {
			return errors.New(a.Text)
		}
	}
	return errors.New("it does not answer")
}

// reconnect looks anew where the archive stands once the repository is back.
func (s *session) reconnect(ctx context.Context) {
	s.do(ctx, putLimit, func(limited context.Context) func() error {
		// Nothing is lost by ending it at once.
		limited, cancel := context.WithCancel(limited)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		repo, err := s.probe(limited, s.position.Place, s.timeline)
		return func() error {
			switch {
			case err != nil:
				return s.unreachable(err)
			case s.backlog() || !s.queue.empty():
				s.resume(repo)
				return nil
			}
			return errAgain
		}
	})
}

// resume uses a repository that is back. What is in the outbox is stored first: there
// may be no room for it in the spool, and it would go with the session. That ends
// then, and the next one looks anew where to begin.
func (s *session) resume(repo *repository.Repository) {
	s.repo, s.resumed = repo, true
	s.reachable()
	s.mustLook, s.lookAt, s.listed = true, time.Time{}, false
	if !s.backlog() {
		s.role = Follower // until it is known that nobody else writes
	}
}

// Requests counts what was asked of the repository.
type Requests struct {
	Puts  int64 `json:"puts"`
	Gets  int64 `json:"gets"`
	Lists int64 `json:"lists"` // one listing may be several requests
}

// counting is a sink that counts.
type counting struct {
	sinks.Sink
	puts, gets, lists atomic.Int64
}

// Unwrap returns the sink that is counted.
func (c *counting) Unwrap() sinks.Sink { return c.Sink }

// Create counts as the put that it becomes.
func (c *counting) Create(ctx context.Context, name string, opts sinks.CreateOptions) (sinks.Writer, error) {
	c.puts.Add(1)
	return c.Sink.Create(ctx, name, opts)
}

// Open counts as a get.
func (c *counting) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	c.gets.Add(1)
	return c.Sink.Open(ctx, name, offset, length)
}

// Stat counts as a get.
func (c *counting) Stat(ctx context.Context, name string) (sinks.Object, error) {
	c.gets.Add(1)
	return c.Sink.Stat(ctx, name)
}

// List counts as a listing.
func (c *counting) List(ctx context.Context, prefix, after string) iter.Seq2[sinks.Object, error] {
	c.lists.Add(1)
	return c.Sink.List(ctx, prefix, after)
}

func (c *counting) requests() Requests {
	return Requests{Puts: c.puts.Load(), Gets: c.gets.Load(), Lists: c.lists.Load()}
}

// place is a repository that an archiver knows: its URL, and its own ID.
type place struct {
	URL        string `json:"url"`
	Repository string `json:"repository"`
}

// OpenRepository opens the repository of the archiver whose spool is in a directory. It makes
// one only if that archiver never used one at this URL: a new one in place of a deleted or
// unmounted one would take the log from then on as if nothing had been before.
func OpenRepository(ctx context.Context, sink sinks.Sink, spoolDir string, now time.Time) (*repository.Repository, error) {
	p, err := readPosition(spoolDir)
	if err != nil {
		return nil, err
	}
	return p.Place.open(ctx, sink, now)
}

func (p place) open(ctx context.Context, sink sinks.Sink, now time.Time) (*repository.Repository, error) {
	if p.URL != sink.String() || p.Repository == "" {
		return repository.Init(ctx, sink, now)
	}
	repo, err := repository.OpenKnown(ctx, sink, p.Repository)
	if errors.As(err, new(*repository.GoneError)) {
		err = fmt.Errorf("%w: mount it, or put it back from a copy; to start a new repository on purpose, choose another archive.spool-dir", err)
	}
	return repo, err
}

// remember notes which repository it is, at once: the next start may find none.
func (s *session) remember(repo *repository.Repository) error {
	now := place{s.a.sink.String(), repo.ID()}
	if repo.ID() == "" || now == s.position.Place {
		return nil
	}
	s.position.Place = now
	return s.savePosition(true)
}

// SharedError says that the repository's place does not decide between several
// writers of one name, and that nobody said that there is one only.
type SharedError struct{ Place string }

func (e *SharedError) Error() string {
	return fmt.Sprintf("%s stores a second object under a name that is taken (it ignores If-None-Match): of two archivers one would overwrite the other's log, unseen. Use a server with conditional puts, or run a single agent for this repository and set repository.lease: off", e.Place)
}

// checkWriters refuses a place that several archivers cannot share.
func (b *base) checkWriters(ctx context.Context) error {
	if b.SingleWriter || b.a.exclusive {
		return nil
	}
	abilities, err := b.a.sink.Abilities(ctx)
	if err != nil {
		return err
	}
	if !abilities.ExclusiveCreate {
		return &SharedError{b.a.sink.String()}
	}
	b.a.exclusive = true
	return nil
}
