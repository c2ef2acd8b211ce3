package archive

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
	"github.com/requorum/requorum/walreplay/walfile"
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
// several cannot be distinguished from each other for want of entries, the newest is
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
	if err := s.storeLeft(ctx, ids); err != nil {
		return err
	}
	ids = slices.DeleteFunc(ids, func(id repository.TimelineID) bool { return id.ClusterID != s.id.ClusterID })
	if len(ids) == 0 {
		return s.openFirst(ctx)
	}
	var other *matchCheck // of another history, the newest
	var reason string
	var fallback *matchCheck
	for _, id := range slices.Backward(ids) {
		var t *matchCheck
		err := s.inTime(ctx, putLimit, func(ctx context.Context) (err error) {
			t, err = s.lastOf(ctx, id)
			return err
		})
		if err != nil {
			return err
		}
		s.reachable()
		if t == nil { // nothing is in it yet
			t = &matchCheck{timeline: id}
		} else {
			v, err := s.try(ctx, t)
			if err != nil {
				return err
			}
			switch v {
			case equal:
				return s.adopt(ctx, t, true)
			case differs:
				reason = fmt.Sprintf("the log of %s differs from the archived one at or before index %d", s.id, t.end.LastIndex)
			case unproven:
			case behind:
				reason = fmt.Sprintf("the cluster is behind the archive, which ends at index %d, term %d: its history restarted", t.end.LastIndex, t.end.LastTerm)
			}
			if v == differs || v == behind {
				if err := s.storeUncovered(ctx, id, t.archived, math.MaxUint64); err != nil {
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
		return s.adopt(ctx, fallback, false)
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
func (s *session) lastOf(ctx context.Context, id repository.TimelineID) (*matchCheck, error) {
	end, found, err := segment.Newest(ctx, s.repo, id)
	if err != nil {
		return nil, err
	}
	if found {
		t := &matchCheck{timeline: id, archived: end, end: end}
		t.body = func(ctx context.Context) ([]raftlog.Entry, error) {
			ctx, cancel := context.WithTimeout(ctx, putLimit)
			defer cancel()
			_, b, err := segment.Read(ctx, s.repo, end.Name(), s.Identities...)
			return b.Entries, err
		}
		if spooled := s.spool.following(id, end); len(spooled) > 0 {
			t.end, t.body = spooled[len(spooled)-1], nil
		}
		return t, nil
	}
	if spooled := s.spool.following(id, segment.Header{}); len(spooled) > 0 {
		return &matchCheck{timeline: id, end: spooled[len(spooled)-1]}, nil
	}
	m, err := newestFull(ctx, s.repo, id)
	if err != nil || m == nil {
		return nil, err
	}
	index := m.Facts.RaftIndex
	return &matchCheck{timeline: id, end: segment.Header{Timeline: id, FirstIndex: index, LastIndex: index, LastTerm: m.Facts.RaftTerm}}, nil
}

// adopt goes on in a timeline, behind its end.
func (s *session) adopt(ctx context.Context, t *matchCheck, joined bool) error {
	end := t.archived
	err := s.inTime(ctx, putLimit, func(ctx context.Context) error {
		if ended, is, err := s.repo.Superseded(ctx, t.timeline); err != nil {
			return err
		} else if is {
			return &SupersededError{ended, s.id}
		}
		return s.checkPlain(ctx, s.repo, t.timeline)
	})
	if err != nil {
		return err
	}
	s.a.alarms.clear(AlarmLineage)
	s.timeline = t.timeline
	s.end, s.stored = endOf(end), end.LastIndex
	switch {
	case t.bare() && t.end.LastIndex == 0:
		return s.begin(ctx, t.timeline)
	case t.bare(): // full snapshots only: the chain begins behind the newest
		s.captured, s.joined, s.fresh = point{index: t.end.LastIndex, term: t.end.LastTerm}, false, joined
		s.end = s.captured
	default:
		s.captured, s.joined = endOf(t.end), joined
	}
	s.role = Follower
	if (end.Entries == 0 || uint64(end.Member) == s.id.MemberID) && !s.a.yields {
		s.role = Writer
	}
	s.a.yields = false
	if spooled := s.spool.behind(s.timeline, s.captured.index); !joined && !t.bare() && len(spooled) > 0 {
		// The log does not reach back to what the archive ends with. The spool may
		// reach as far as the log begins, which then continues it.
		last := spooled[len(spooled)-1]
		s.captured = endOf(last)
		v, err := s.try(ctx, &matchCheck{timeline: s.timeline, end: last})
		if err != nil {
			return err
		}
		joined = v == equal
		s.joined = joined
	}
	// What the spool holds and the archive covers was compared by way of the log.
	if joined {
		s.a.alarms.clear(AlarmRolledBack)
		if s.position.Gap == nil {
			s.a.alarms.clear(AlarmTimeline)
		}
		if slices.ContainsFunc(s.spool.of(s.timeline), func(h segment.Header) bool {
			return s.compared[s.timeline] < h.LastIndex && h.LastIndex <= s.end.index
		}) {
			return errAgain // the archive went on since: it may lack what is in that one
		}
		if err := s.spool.removeThrough(s.timeline, s.end.index); err != nil {
			return err
		}
	}
	if err := s.findChain(ctx); err != nil {
		return err
	}
	return s.openAt(s.captured.index + 1)
}

// checkPlain refuses to store segments that are not encrypted in a timeline that is: a reader
// calls them damaged.
func (b *base) checkPlain(ctx context.Context, repo *repository.Repository, id repository.TimelineID) error {
	if len(b.Codec.Recipients) > 0 {
		return nil
	}
	if err := snapshot.CheckPlain(ctx, repo, id); err != nil {
		return fmt.Errorf("%s: %w", repo, err)
	}
	return nil
}

// findChain finds out whether what is spooled behind the archive's end is of another
// chain: where the archive's began anew, behind a gap, and the spool's did not.
func (s *session) findChain(ctx context.Context) error {
	spooled := s.spool.behind(s.timeline, s.end.index)
	if len(spooled) == 0 || s.end.first == 0 || !s.backlog() {
		return nil
	}
	began := spooled[0].FirstIndex
	for _, h := range slices.Backward(s.spool.of(s.timeline)) {
		if h.FirstIndex > began || h.FirstIndex < began && h.LastIndex+1 < began {
			continue
		}
		if began = h.FirstIndex; h.ChainStart {
			break
		}
	}
	return s.inTime(ctx, putLimit, func(ctx context.Context) error {
		merged, err := s.repo.MergedSegments(ctx, s.timeline)
		if err != nil {
			return err
		}
		small, err := s.repo.SmallSegments(ctx, s.timeline, began+1)
		s.otherChain = slices.ContainsFunc(append(merged, small...), func(a repository.Segment) bool {
			return a.First > began && (a.Start || a.Level == 0 && a.Previous == 0)
		})
		return err
	})
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
			s.captured = point{index: t.Parent.RaftIndex}
		}
		// Another archiver may have had the full snapshot taken before this one noticed.
		s.branched = &Gap{Timeline: id.String(), Found: t.Created, Reason: "timeline " + id.String() + " was opened: " + t.Reason}
	}
	s.end = s.captured
	return s.openAt(s.captured.index + 1)
}

// openFirst opens the first timeline of a cluster.
func (s *session) openFirst(ctx context.Context) error {
	if s.unstarted() {
		return s.reported(fmt.Errorf("%s was restored, and has not answered since: its timeline is opened once it does, so that what it goes on from can be recorded first", s.id))
	}
	t := repository.Timeline{
		ID: repository.TimelineID{ClusterID: s.id.ClusterID, N: 1}, Reason: "first archive of this cluster here", Members: s.memberNames(ctx),
	}
	var parent repository.TimelineID
	if s.Origin != nil {
		if restored, ok := s.Origin(s.id.ClusterID); ok {
			t, parent = restored, restored.Parent.Timeline
		}
	}
	t.Created = s.Now().UTC()
	var other error
	err := s.inTime(ctx, branchLimit, func(ctx context.Context) error {
		// Where the repository does not have what the cluster was restored from, it is
		// one of its own, or another cluster's.
		if ids, err := s.repo.TimelineIDs(ctx); err != nil {
			return err
		} else if !slices.Contains(ids, parent) {
			parent, t.Parent = repository.TimelineID{}, nil
		}
		var err error
		if t.ID, err = s.repo.FreeTimeline(ctx, t.ID); err != nil {
			return err
		}
		err = snapshot.CheckLineage(ctx, s.repo, s.id.ClusterID, t.Members, parent)
		if errors.Is(err, snapshot.ErrOtherLineage) {
			other, err = err, nil
		} else if err == nil {
			_, err = s.repo.EnsureTimeline(ctx, t)
		}
		return err
	})
	if other != nil {
		s.a.alarms.raise(AlarmLineage, other.Error())
		return s.reported(other)
	}
	if err != nil {
		return err
	}
	return errAgain
}

// openBranch opens a timeline for a history that left the one of parent.
func (s *session) openBranch(ctx context.Context, parent *matchCheck, n int, reason string) error {
	branch, err := s.findBranch(ctx, parent.timeline)
	if err != nil {
		return err
	}
	t := repository.Timeline{
		ID: repository.TimelineID{ClusterID: s.id.ClusterID, N: n}, Created: s.Now().UTC(),
		Reason: reason, Parent: &branch, Members: s.memberNames(ctx),
	}
	err = s.inTime(ctx, lookLimit, func(ctx context.Context) (err error) {
		if t.ID, err = s.repo.FreeTimeline(ctx, t.ID); err != nil {
			return err
		}
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

// newestFull is the manifest of the furthest state that a full snapshot of a timeline
// holds; nil where there is none.
func newestFull(ctx context.Context, repo *repository.Repository, id repository.TimelineID) (*snapshot.Manifest, error) {
	recent, err := snapshot.RecentStates(ctx, repo, id)
	if err != nil {
		return nil, err
	}
	if len(recent) == 0 {
		return nil, nil
	}
	return recent[len(recent)-1], nil
}

// Reached is how far the archived log of a timeline goes: the last entry's
// index and term, and the highest revision known to be reached there (0: none
// is). Index 0 is a timeline without an archived log. Full snapshots choose
// their timeline with it.
func Reached(ctx context.Context, repo *repository.Repository, timeline repository.TimelineID) (index, term uint64, revision int64, err error) {
	h, _, err := segment.Newest(ctx, repo, timeline)
	return h.LastIndex, h.LastTerm, h.Revision, err
}

// verdict of comparing a member's log with the end of what is archived.
type verdict int

const (
	// equal: the log holds the last segment, entry by entry.
	equal verdict = iota
	// differs: a committed entry is another one than the archived one.
	differs
	// behind: the cluster, as a quorum confirmed, is not as far as the archive.
	behind
	// unproven: the log does not reach back far enough to compare.
	unproven
)

// matchCheck compares a member's committed log with the last thing known of a
// timeline: a segment, or a full snapshot (an index and its term alone).
type matchCheck struct {
	timeline repository.TimelineID
	archived segment.Header                                 // the last segment there; zero where there is none
	end      segment.Header                                 // the last thing known: archived, one that is spooled, or a full snapshot's index and term
	body     func(context.Context) ([]raftlog.Entry, error) // of the segment, where it can be read; or nil

	sum     raftlog.Sum
	want    uint64
	partial bool // entries at the beginning are missing in the log
	pending []raftlog.Entry
}

// bare reports that only an index and its term are known.
func (t *matchCheck) bare() bool { return t.end.Entries == 0 }

// feed takes committed entries, in order; done when it is decided.
func (t *matchCheck) feed(ctx context.Context, entries []raftlog.Entry) (v verdict, done bool) {
	for _, e := range entries {
		switch {
		case e.Index < t.end.FirstIndex:
			continue
		case e.Index > t.end.LastIndex:
			return unproven, true // it was passed over: a gap
		case e.Index != t.want:
			t.partial = true
		}
		t.want = e.Index + 1
		if t.partial {
			t.pending = append(t.pending, e)
		} else {
			t.sum = t.sum.Next(e)
		}
		if e.Index == t.end.LastIndex {
			return t.decide(ctx, e), true
		}
	}
	return 0, false
}

func (t *matchCheck) decide(ctx context.Context, last raftlog.Entry) verdict {
	switch {
	case last.Term != t.end.LastTerm:
		return differs
	case t.bare():
		return equal
	case !t.partial && t.sum == t.end.After:
		return equal
	case !t.partial:
		return differs
	case t.body == nil:
		return unproven
	}
	archived, err := t.body(ctx)
	if err != nil {
		return unproven // no identity, or damage: it was a chance to know more
	}
	for _, e := range t.pending {
		if i := e.Index - t.end.FirstIndex; i >= uint64(len(archived)) || !archived[i].Equal(e) {
			return differs
		}
	}
	return equal
}

// try reads the member's log from where the last segment begins, until it is
// decided whether this is the member's timeline. A member that lags is waited
// for.
func (s *session) try(ctx context.Context, t *matchCheck) (verdict, error) {
	t.sum, t.want = t.end.Before, t.end.FirstIndex
	if err := s.openAt(t.end.FirstIndex); err != nil {
		return 0, err
	}
	s.rel = releaser{}
	judged := time.Now()
	for {
		entries, err := s.readCommitted(ctx)
		if err != nil {
			return 0, err
		}
		if v, done := t.feed(ctx, entries); done {
			return v, nil
		}
		if len(entries) > 0 {
			continue
		}
		// The whole log is read, and ends before the archive does.
		// Other members may say how far the cluster is where this one does not
		// answer: one that was set back serves only once it has caught up.
		if (s.applied < t.end.LastIndex || !s.failing.IsZero()) && time.Since(judged) > judgePolls*s.Poll {
			judged = time.Now()
			v, err := s.judge(ctx, t)
			if v == behind || err != nil {
				return v, err
			}
		}
		if s.repo == nil && time.Now().After(s.retryAt) {
			limited, cancel := context.WithTimeout(ctx, putLimit)
			_, err := s.probe(limited, s.position.Place, t.timeline)
			cancel()
			if err == nil {
				return 0, errAgain
			}
			if err := s.unreachable(err); err != nil {
				return 0, err
			}
		}
		if err := s.pause(ctx); err != nil {
			return 0, err
		}
	}
}

// judgePolls is after how many polls a quorum is asked while the log lags.
const judgePolls = 4

// branchSteps bounds how many segments are compared to find a branch point.
const branchSteps = 256

// branchLimit bounds the reading of all headers of a timeline.
const branchLimit = 5 * time.Minute

// findBranch finds the last segment of a timeline that the member's log holds, as it
// is now. What a member kept of its log bounds the way; where nothing is common to
// both the index is 0: not known.
func (s *session) findBranch(ctx context.Context, parent repository.TimelineID) (repository.Branch, error) {
	branch := repository.Branch{Timeline: parent}
	if err := s.openAt(0); err != nil {
		return branch, err
	}
	// This is only to know from where on headers can matter. Damage in an old file,
	// which etcd itself does not read any more, keeps no timeline from being opened:
	// all of them are read then.
	var first uint64
	switch err := s.log.Poll(ctx); {
	case ctx.Err() != nil:
		return branch, context.Cause(ctx)
	case err == nil || walfile.IsHole(err):
		first = s.log.First()
	}
	var headers []segment.Header
	err := s.inTime(ctx, branchLimit, func(ctx context.Context) (err error) {
		headers, err = segment.Headers(ctx, s.repo, parent, first, math.MaxUint64) // a small one may be all that the member's log still holds
		return err
	})
	if err != nil {
		return branch, err
	}
	headers = headers[max(0, len(headers)-branchSteps):]
	var open []*matchCheck
	for _, h := range headers {
		open = append(open, &matchCheck{timeline: parent, end: h, sum: h.Before, want: h.FirstIndex})
	}
	if len(open) == 0 {
		return branch, nil
	}
	if err := s.openAt(headers[0].FirstIndex); err != nil {
		return branch, err
	}
	s.rel = releaser{}
	for quiet := 0; len(open) > 0 && quiet < 3; {
		entries, err := s.readCommitted(ctx)
		if err != nil {
			return branch, err
		}
		open = slices.DeleteFunc(open, func(t *matchCheck) bool {
			v, done := t.feed(ctx, entries)
			if done && v == equal && t.end.LastIndex > branch.RaftIndex {
				branch.RaftIndex, branch.Revision, branch.Chain = t.end.LastIndex, t.end.Revision, t.end.After.String()
			}
			return done
		})
		if len(entries) > 0 {
			quiet = 0
			continue
		}
		quiet++
		if err := s.pause(ctx); err != nil {
			return branch, err
		}
	}
	return branch, nil
}
