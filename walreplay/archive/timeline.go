package archive

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// SupersededError says that a recovery ended the member's timeline: the cluster
// goes on elsewhere, and this member must not serve any more.
type SupersededError struct {
	Superseded repository.Superseded
	Member     Identity
}

func (e *SupersededError) Error() string {
	return fmt.Sprintf("%s belongs to timeline %s, which was superseded by %s (%s): stop this member; its cluster was recovered elsewhere", e.Member, e.Superseded.Timeline, e.Superseded.By, e.Superseded.Reason)
}

// choose finds the cluster's timeline: of those of its ID, from the newest on,
// the one whose archived end the member's committed log holds. One that the log
// contradicts, or that the cluster is behind of, is another history. Where
// several cannot be told from each other for want of entries, the newest is
// taken, and continuity is unproven. Where none is left a new one is opened.
func (s *session) choose(ctx context.Context) error {
	var ids []repository.TimelineID
	err := s.inTime(ctx, putLimit, func(ctx context.Context) (err error) {
		ids, err = s.repo.TimelineIDs(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if err := s.storeOrphans(ctx, ids); err != nil {
		return err
	}
	ids = slices.DeleteFunc(ids, func(id repository.TimelineID) bool { return id.ClusterID != s.id.ClusterID })
	if len(ids) == 0 {
		return s.openFirst(ctx)
	}
	var other *trial // of another history, the newest
	var reason string
	var fallback *trial
	for _, id := range slices.Backward(ids) {
		var t *trial
		err := s.inTime(ctx, putLimit, func(ctx context.Context) (err error) {
			t, err = s.lastOf(ctx, id)
			return err
		})
		if err != nil {
			return err
		}
		s.reachable()
		if t == nil { // nothing is in it yet
			t = &trial{timeline: id}
		} else {
			v, err := s.try(ctx, t)
			if err != nil {
				return err
			}
			switch v {
			case equal:
				return s.settle(ctx, t, true)
			case differs:
				reason = fmt.Sprintf("the log of %s differs from the archived one at or before index %d", s.id, t.end.LastIndex)
			case unproven:
			case behind:
				reason = fmt.Sprintf("the cluster is behind the archive, which ends at index %d, term %d: its history restarted", t.end.LastIndex, t.end.LastTerm)
			}
			if v == differs || v == behind {
				if err := s.storeSpooled(ctx, id, false); err != nil {
					return err
				}
				if other == nil {
					other = t
				}
				continue
			}
		}
		if fallback == nil {
			fallback = t
		}
	}
	if fallback != nil {
		return s.settle(ctx, fallback, false)
	}
	if err := s.mayBranch(ctx, other.timeline); err != nil {
		return err
	}
	return s.openBranch(ctx, other, ids[len(ids)-1].N+1, reason)
}

// mayBranch refuses to go on from a timeline that a recovery ended: old members
// that come back, and have another log than was archived, are no new history.
func (s *session) mayBranch(ctx context.Context, parent repository.TimelineID) error {
	return s.inTime(ctx, lookLimit, func(ctx context.Context) error {
		ended, is, err := s.repo.Superseded(ctx, parent)
		if err == nil && is {
			return &SupersededError{ended, s.id}
		}
		return err
	})
}

// lastOf is the last thing known of a timeline: what is spooled for it, else
// its newest segment, else its newest full snapshot; nil where there is nothing.
func (s *session) lastOf(ctx context.Context, id repository.TimelineID) (*trial, error) {
	end, found, err := segment.Newest(ctx, s.repo, id)
	if err != nil {
		return nil, err
	}
	if found {
		t := &trial{timeline: id, end: end}
		t.body = func(ctx context.Context) ([]raftlog.Entry, error) {
			ctx, cancel := context.WithTimeout(ctx, putLimit)
			defer cancel()
			_, b, err := segment.Read(ctx, s.repo.Sink(), end.Name(), s.Identities...)
			return b.Entries, err
		}
		s.archived = end
		if lane := s.spool.lane(id, end.LastIndex, end.After); len(lane) > 0 {
			t.end, t.body = lane[len(lane)-1], nil
		}
		return t, nil
	}
	s.archived = segment.Header{}
	if lane := s.spool.firstLane(id); len(lane) > 0 {
		return &trial{timeline: id, end: lane[len(lane)-1]}, nil
	}
	index, term, _, err := newestFull(ctx, s.repo, id)
	if err != nil || index == 0 {
		return nil, err
	}
	return &trial{timeline: id, end: segment.Header{Timeline: id, FirstIndex: index, LastIndex: index, LastTerm: term}}, nil
}

// settle goes on in a timeline, behind its end.
func (s *session) settle(ctx context.Context, t *trial, joined bool) error {
	end := s.archived
	err := s.inTime(ctx, putLimit, func(ctx context.Context) error {
		if ended, is, err := s.repo.Superseded(ctx, t.timeline); err != nil {
			return err
		} else if is {
			return &SupersededError{ended, s.id}
		}
		if end.Timeline == t.timeline {
			return nil
		}
		end = segment.Header{} // read of another candidate
		found, ok, err := segment.Newest(ctx, s.repo, t.timeline)
		if ok {
			end = found
		}
		return err
	})
	if err != nil {
		return err
	}
	s.timeline = t.timeline
	s.end, s.stored = endOf(end), end.LastIndex
	switch {
	case t.bare() && t.end.LastIndex == 0:
		return s.begin(ctx, t.timeline)
	case t.bare(): // full snapshots only: the chain begins behind the newest
		s.tip, s.joined, s.fresh = point{index: t.end.LastIndex, term: t.end.LastTerm}, false, joined
		s.end = s.tip
	default:
		s.tip, s.joined = endOf(t.end), joined
	}
	s.role = Follower
	if (end.Entries == 0 || uint64(end.Member) == s.id.MemberID) && !s.a.yields {
		s.role = Writer
	}
	s.a.yields = false
	s.lane = s.spool.lane(s.timeline, s.end.index, s.end.sum)
	if len(s.lane) == 0 && !joined && !t.bare() {
		// The log does not reach back to what the archive ends with. The spool may.
		if s.lane = s.spool.overlapping(s.timeline, s.end.index); len(s.lane) > 0 {
			proved, err := s.proveLane(ctx)
			if err != nil {
				return err
			}
			joined = proved
		}
	}
	// What the spool holds and the archive covers was compared by way of the log.
	if joined {
		s.a.alarms.clear(AlarmRolledBack)
		if s.position.Gap == nil {
			s.a.alarms.clear(AlarmTimeline)
		}
		if err := s.spool.removeThrough(s.timeline, s.end.index); err != nil {
			return err
		}
	}
	return s.openAt(s.tip.index + 1)
}

// proveLane goes on behind an overlapping lane. It may reach as far as the
// member's log begins, which then continues it.
func (s *session) proveLane(ctx context.Context) (bool, error) {
	s.overlaps = true
	last := s.lane[len(s.lane)-1]
	s.tip = endOf(last)
	v, err := s.try(ctx, &trial{timeline: s.timeline, end: last})
	s.joined = v == equal
	return s.joined, err
}

// begin starts the log of a timeline in which there is nothing yet: behind its
// branch point, where that is known, else with the oldest entry there is. A cluster
// that was restored has an ID of its own, and its log begins with small indexes
// again: the branch point is in another log then.
func (s *session) begin(ctx context.Context, id repository.TimelineID) error {
	var t repository.Timeline
	err := s.inTime(ctx, lookLimit, func(ctx context.Context) (err error) {
		t, err = s.repo.Timeline(ctx, id)
		if errors.Is(err, sinks.ErrNotFound) || errors.Is(err, repository.ErrAltered) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	s.role, s.fresh = Writer, true
	if t.Parent != nil {
		if t.Parent.Timeline.ClusterID == id.ClusterID {
			s.tip = point{index: t.Parent.RaftIndex}
		}
		s.branched = &Gap{Timeline: id.String(), Reason: "timeline " + id.String() + " was opened: " + t.Reason}
	}
	s.end = s.tip
	return s.openAt(s.tip.index + 1)
}

// openFirst opens the first timeline of a cluster.
func (s *session) openFirst(ctx context.Context) error {
	if s.unstarted() {
		return s.tell(fmt.Errorf("%s was restored, and has not answered since: its timeline is opened once it does, so that what it goes on from can be recorded first", s.id))
	}
	t := repository.Timeline{
		ID: repository.TimelineID{ClusterID: s.id.ClusterID, N: 1}, Created: s.Now().UTC(),
		Reason: "first archive of this cluster here", Members: s.memberNames(ctx),
	}
	err := s.inTime(ctx, lookLimit, func(ctx context.Context) error {
		_, err := s.repo.EnsureTimeline(ctx, t)
		return err
	})
	if err != nil {
		return err
	}
	return errAgain
}

// memberNames are the names in the cluster's member list, where a quorum tells.
func (s *session) memberNames(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	reach, err := s.cluster.Reached(ctx, s.id)
	if err != nil {
		return nil
	}
	return reach.Members
}

// openBranch opens a timeline for a history that left the one of parent.
func (s *session) openBranch(ctx context.Context, parent *trial, n int, reason string) error {
	branch, err := s.findBranch(ctx, parent.timeline)
	if err != nil {
		return err
	}
	t := repository.Timeline{
		ID: repository.TimelineID{ClusterID: s.id.ClusterID, N: n}, Created: s.Now().UTC(),
		Reason: reason, Parent: &branch, Members: s.memberNames(ctx),
	}
	err = s.inTime(ctx, lookLimit, func(ctx context.Context) error {
		if err := s.repo.OpenTimeline(ctx, t); !errors.Is(err, sinks.ErrExists) {
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.a.alarms.raise(AlarmTimeline, fmt.Sprintf("timeline %s goes on from %s after index %d: %s; a full snapshot is due", t.ID, parent.timeline, branch.RaftIndex, reason))
	return errAgain
}

// recentFulls is how many of the newest full snapshots by name are read: names
// follow the clocks of several writers.
const recentFulls = 8

// newestFull is the furthest state that a full snapshot of a timeline holds, and
// whether there is one at all: a database of 3.4 that nobody wrote to yet knows no
// index, and counts as one at 0.
func newestFull(ctx context.Context, repo *repository.Repository, id repository.TimelineID) (index, term uint64, is bool, err error) {
	fulls, err := repo.Fulls(ctx, id)
	if err != nil {
		return 0, 0, false, err
	}
	fulls = slices.DeleteFunc(fulls, func(f repository.Full) bool { return !f.Complete })
	for _, f := range fulls[max(0, len(fulls)-recentFulls):] {
		m, err := snapshot.ReadManifest(ctx, repo, id, f.ID)
		var damaged *snapshot.DamagedError
		switch {
		case errors.As(err, &damaged), errors.Is(err, snapshot.ErrNewerFormat), errors.Is(err, sinks.ErrNotFound):
		case err != nil:
			return 0, 0, false, err
		case !slices.ContainsFunc(f.Objects, func(o sinks.Object) bool { return o.Name == m.Object.Name && o.Size == m.Object.StoredSize }):
			// It was lost, or cut short.
		default:
			if is = true; m.Facts.RaftIndex > index {
				index, term = m.Facts.RaftIndex, m.Facts.RaftTerm
			}
		}
	}
	return index, term, is, nil
}

// Reached is how far the archived log of a timeline goes: the last entry's
// index and term, and the highest revision known to be reached there (0: none
// is). Index 0 is a timeline without an archived log. Full snapshots choose
// their timeline with it.
func Reached(ctx context.Context, repo *repository.Repository, timeline repository.TimelineID) (index, term uint64, revision int64, err error) {
	h, _, err := segment.Newest(ctx, repo, timeline)
	return h.LastIndex, h.LastTerm, h.Revision, err
}
