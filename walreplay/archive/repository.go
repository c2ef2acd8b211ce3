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

// do starts a request to the repository on a goroutine of its own. What it
// returns is then done by the session's.
func (s *session) do(ctx context.Context, limit time.Duration, request func(context.Context) func() error) {
	busy := make(chan func() error, 1)
	s.busy, s.busySince = busy, time.Now()
	// Not ended by ctx: what was begun is given a moment when it ends.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	go func() {
		defer cancel()
		busy <- request(ctx)
	}()
}

func (s *session) finish(done func() error) error {
	s.busy, s.inFlight = nil, nil
	return done()
}

// unreachable notes that a request failed; the next waits longer each time. It
// returns the error if time does not heal it.
func (s *session) unreachable(err error) error {
	if fatal(err) {
		return err
	}
	now := time.Now()
	if s.away.IsZero() {
		s.away = now
	}
	s.retryWait = min(max(2*s.retryWait, 500*time.Millisecond), 15*time.Second)
	s.retryAt = now.Add(s.retryWait)
	// Before the next put: where does the archive stand?
	s.mustLook, s.lookAt, s.listed = true, time.Time{}, false
	s.a.failed(err)
	s.a.alarms.raise(AlarmRepository, err.Error())
	return nil
}

// reachable notes that a request was answered. Where the last put was refused (a
// full disk, a missing right), reading is no reason to put again at once, nor to
// say that all is well.
func (s *session) reachable() {
	if r := &s.a.refusal; r.wait > 0 {
		if s.away.IsZero() {
			s.away = time.Now()
		}
		s.retryAt = r.until
		return
	}
	if !s.away.IsZero() && !s.gapSince.IsZero() {
		s.gapSince = s.gapSince.Add(time.Since(s.away)) // nobody could store what is missing
	}
	s.away, s.retryAt, s.retryWait = time.Time{}, time.Time{}, 0
	s.a.alarms.clear(AlarmRepository)
}

// refusal is since the last put that failed; it outlives a session.
type refusal struct {
	wait  time.Duration // 0: none since the last that succeeded
	until time.Time     // nothing is put before
}

// putFailed notes that a put failed.
func (s *session) putFailed(err error) error {
	r := &s.a.refusal
	r.wait = min(max(2*r.wait, 500*time.Millisecond), 15*time.Second)
	r.until = time.Now().Add(r.wait)
	return s.unreachable(err)
}

// putSucceeded is reachable, after a put that succeeded.
func (s *session) putSucceeded() {
	s.a.refusal = refusal{}
	s.reachable()
}

// whyAway is why the repository could not be reached.
func (s *session) whyAway() error {
	for _, a := range s.a.alarms.list() {
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
		repo, err := s.probe(limited, s.timeline)
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

// openRepository opens the repository, and makes one only where this archiver never knew
// any: where one is gone, a new one in its stead would take the log from then on
// as if nothing had been before. An unmounted file system looks just like that.
func (s *session) openRepository(ctx context.Context) (*repository.Repository, error) {
	sink := s.a.sink
	known := s.position.Place
	if known.URL != sink.String() || known.Repository == "" {
		return repository.Init(ctx, sink, s.Now())
	}
	repo, err := repository.Open(ctx, sink)
	if err != nil {
		return nil, fmt.Errorf("the repository that was archived to is not there: %w; is its file system mounted? If it was given up on purpose, choose another --spool-dir", err)
	}
	// Without a marker, which its Damage reports, there is no ID to compare.
	if repo.ID() != "" && repo.ID() != known.Repository {
		return nil, fmt.Errorf("%s holds another repository (%s) than the one that was archived to (%s): is another file system mounted there? If it was replaced on purpose, choose another --spool-dir", sink, repo.ID(), known.Repository)
	}
	return repo, nil
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
	return fmt.Sprintf("%s stores a second object under a name that is taken (it ignores If-None-Match): of two archivers one would overwrite the other's log, unseen. Use a server with conditional puts, or run a single archiver for this repository and say so with --single-writer", e.Place)
}

// checkWriters refuses a place that several archivers cannot share.
func (s *session) checkWriters(ctx context.Context) error {
	if s.SingleWriter || s.a.exclusive {
		return nil
	}
	abilities, err := s.a.sink.Abilities(ctx)
	if err != nil {
		return err
	}
	if !abilities.ExclusiveCreate {
		return &SharedError{s.a.sink.String()}
	}
	s.a.exclusive = true
	return nil
}
