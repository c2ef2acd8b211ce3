package archive

import (
	"context"
	"errors"
	"time"
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
	s.busy, s.flying = nil, nil
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
	s.away, s.retryAt, s.retryWait = time.Time{}, time.Time{}, 0
	s.a.alarms.clear(AlarmRepository)
}

// refusal is since the last put that failed; it outlives a session.
type refusal struct {
	wait  time.Duration // 0: none since the last that succeeded
	until time.Time     // nothing is put before
}

// refused is unreachable, of a put.
func (s *session) refused(err error) error {
	r := &s.a.refusal
	r.wait = min(max(2*r.wait, 500*time.Millisecond), 15*time.Second)
	r.until = time.Now().Add(r.wait)
	return s.unreachable(err)
}

// taken is reachable, after a put that succeeded.
func (s *session) taken() {
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
			case s.crowded && (len(s.lane) > 0 || !s.queue.empty()):
				s.goOn(repo)
				return nil
			}
			return errAgain // still away: what is in memory goes to the spool
		}
	})
}
