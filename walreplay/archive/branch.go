package archive

import (
	"context"
	"slices"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay/segment"
)

// branchSteps bounds how many segments are compared to find a branch point.
const branchSteps = 256

// branchLimit bounds the reading of all headers of a timeline.
const branchLimit = 5 * time.Minute

// findBranch finds the last segment of a timeline that the member's log holds,
// walking back. What a member kept of its log bounds the way; where nothing is
// common to both the index is 0: not known.
func (s *session) findBranch(ctx context.Context, parent repository.TimelineID) (repository.Branch, error) {
	branch := repository.Branch{Timeline: parent}
	var log *segment.Log
	err := s.inTime(ctx, branchLimit, func(ctx context.Context) (err error) {
		log, err = segment.OpenLog(ctx, s.repo, parent)
		return err
	})
	if err != nil {
		return branch, err
	}
	for i, h := range slices.Backward(log.Headers()) {
		if len(log.Headers())-i > branchSteps {
			break
		}
		v, err := s.holds(ctx, h)
		if err != nil {
			return branch, err
		}
		if v == unproven {
			break
		}
		if v == equal {
			branch.RaftIndex, branch.Revision, branch.Chain = h.LastIndex, h.Revision, h.After.String()
			break
		}
	}
	return branch, nil
}

// holds compares one segment with what the member's log holds now, without
// waiting for more.
func (s *session) holds(ctx context.Context, h segment.Header) (verdict, error) {
	t := &trial{timeline: h.Timeline, end: h, sum: h.Before, want: h.FirstIndex}
	if err := s.openAt(h.FirstIndex); err != nil {
		return 0, err
	}
	s.rel = releaser{}
	for quiet := 0; quiet < 3; {
		entries, err := s.readCommitted(ctx)
		if err != nil {
			return 0, err
		}
		if v, done := t.feed(ctx, entries); done {
			return v, nil
		}
		if len(entries) > 0 {
			quiet = 0
			continue
		}
		quiet++
		if err := s.pause(ctx); err != nil {
			return 0, err
		}
	}
	return differs, nil // it ends before the segment does
}
