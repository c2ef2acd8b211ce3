package archive

import (
	"context"
	"time"

	"github.com/requorum/requorum/walreplay/segment"
)

func (s *session) takeover() time.Duration { return s.takeoverOf(s.id.MemberID) }

// late tells that the writer is: something is to be archived for several
// intervals, and nobody did, by this host's monotonic clock alone.
func (s *session) late(now time.Time) bool {
	if s.queue.empty() {
		return false
	}
	since := s.queue.oldest()
	if s.advanced.After(since) {
		since = s.advanced
	}
	return now.Sub(since) > s.takeover()
}

// takeOver makes a writer of a follower, after one listing: the archive may end
// elsewhere than where the next segment was looked for.
func (s *session) takeOver(ctx context.Context) {
	s.whenEndIsKnown(ctx, func() error {
		s.role = Writer
		return nil
	})
}

// whenEndIsKnown lists, and goes on with then when the archive ends where it
// was thought to.
func (s *session) whenEndIsKnown(ctx context.Context, then func() error) {
	s.do(ctx, putLimit, func(ctx context.Context) func() error {
		h, found, err := segment.Newest(ctx, s.repo, s.timeline)
		return func() error {
			switch {
			case err != nil:
				return s.unreachable(err)
			case !found || h.LastIndex <= s.end.index:
				s.reachable()
				return then()
			case h.FirstIndex == s.end.index+1:
				s.reachable()
				return s.meet(h)
			}
			s.reachable()
			return errAgain
		}
	})
}
