package archive

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// supersededEvery is how often a running archiver looks whether a recovery has
// ended its timeline.
const supersededEvery = 10 * time.Minute

// handOver ends a session. What the repository did not take goes to the spool: the
// next session finds it there, and the member may purge its log.
func (s *session) handOver(ctx context.Context, cause error) error {
	s.settleRequest()
	var failed error
	if errors.Is(cause, errAgain) {
		failed = s.spoolHeld(ctx)
	} else if !s.away.IsZero() || s.backlog() {
		failed = s.spoolAll(ctx)
	}
	if s.position.End.Entries > 0 {
		failed = errors.Join(failed, s.savePosition(true))
	}
	s.publish()
	return errors.Join(cause, failed)
}

// spoolHeld moves to the spool what no other place may hold any more: while the
// repository was away, or files were kept from purging, the member may have
// purged it. The bound does not count for that moment: it protects the disk from
// what grows for days.
func (s *session) spoolHeld(ctx context.Context) error {
	if s.away.IsZero() && !s.backlog() && s.log.Pinned() == 0 {
		return nil
	}
	s.unbound = true
	defer func() { s.unbound = false }()
	for {
		read := s.released
		if err := s.spoolAll(ctx); err != nil {
			return err
		}
		// The log releases purged files when it is closed.
		if s.log.Pinned() == 0 || !s.queue.empty() {
			return nil
		}
		if err := s.read(context.WithoutCancel(ctx), time.Now()); err != nil || s.released == read {
			return nil // why it cannot be read is known, or reported by the next session
		}
	}
}

// settleRequest waits a moment for the request that is under way.
func (l *link) settleRequest() {
	if l.busy == nil {
		return
	}
	select {
	case done := <-l.busy:
		if err := l.finish(done); err != nil && !errors.Is(err, errAgain) {
			l.a.failed(err)
		}
	case <-time.After(flushLimit):
		if err := l.unreachable(errors.New("the last request to the repository did not end in time")); err != nil {
			l.a.failed(err)
		}
	}
}

// flush stores what is committed and read when the archiver is stopped; in the
// spool where the repository does not take it at once. A follower leaves it to
// the writer.
func (s *session) flush(ctx context.Context) error {
	s.settleRequest()
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushLimit)
	defer cancel()
	for moves := true; moves && s.role == Writer && s.away.IsZero() && !s.backlog() && !s.queue.empty() && !s.beyondGap() && s.busy == nil; {
		end := s.end.index
		s.put(limited)
		s.settleRequest()
		moves = s.end.index > end
	}
	if s.role == Follower {
		s.queue = queue{}
	}
	return s.handOver(limited, nil)
}

// spoolAll moves the queue to the spool, as far as it can be.
func (s *session) spoolAll(ctx context.Context) error {
	for !s.queue.empty() && !s.beyondGap() && s.timeline.N > 0 {
		if kept, err := s.spoolNext(context.WithoutCancel(ctx)); err != nil || !kept {
			return err
		}
	}
	return nil
}

// setTarget finds what Once has to archive: what was committed when it was
// called, as a quorum confirms, or what this member has applied.
func (s *session) setTarget(ctx context.Context) error {
	if !s.once || s.a.target > 0 {
		s.target = s.a.target
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	if reach, err := s.cluster.Reached(limited, s.id); err == nil {
		s.target = reach.Index
	} else {
		status, errStatus := s.cluster.Status(limited, s.id)
		if errStatus != nil {
			return fmt.Errorf("neither a quorum nor the member says what is committed: %w", errors.Join(err, errStatus))
		}
		s.target = status.AppliedIndex
	}
	s.a.target = s.target
	return nil
}

// checkSuperseded looks whether a recovery has ended the timeline.
func (s *session) checkSuperseded(ctx context.Context, now time.Time) {
	s.checked = now
	s.do(ctx, lookLimit, func(ctx context.Context) func() error {
		ended, is, err := s.repo.Superseded(ctx, s.timeline)
		return func() error {
			switch {
			case err != nil:
				return s.unreachable(err)
			case is:
				return &SupersededError{ended, s.id}
			}
			return nil
		}
	})
}
