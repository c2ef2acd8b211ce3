package archive

import (
	"fmt"
	"time"
)

const (
	// memberAfter is how long a member may not answer: a restart takes less.
	memberAfter = 15 * time.Second
	// behindTakeovers is how many takeover times an entry may wait for the
	// archive.
	behindTakeovers = 4
	// restartedFor is how long a restart after an error is shown at most, if no
	// other follows; calmAtLeast, how long the archiver has to run well for it to be
	// over. It doubles each time that running well did not last.
	restartedFor = time.Minute
	calmAtLeast  = 5 * time.Second
)

// watch raises what does not advance.
func (s *session) watch(now time.Time) {
	alarms := s.a.alarms
	alarms.when(AlarmMember, !s.failing.IsZero() && now.Sub(s.failing) > memberAfter, func() string {
		return fmt.Sprintf("%s does not answer since %s: %v", s.id, s.failing.UTC().Format(time.RFC3339), s.why)
	})

	// What is applied stands in the log: now, or in a moment.
	if s.applied <= max(s.readTo, s.released, s.log.Last()) || s.log.Full() {
		s.stalled = time.Time{}
	} else if s.stalled.IsZero() {
		s.stalled = now
	}
	alarms.when(AlarmStalled, !s.stalled.IsZero() && now.Sub(s.stalled) > stalledAfter, func() string {
		return fmt.Sprintf("%s has applied entry %d, and its log as read from %s ends at %d: is it the directory that this member writes to?", s.id, s.applied, s.WALDir, max(s.readTo, s.released))
	})
	if !s.stalled.IsZero() && now.Sub(s.stalled) > 3*stalledAfter {
		// The files may have been replaced under their names.
		s.failure = errAgain
	}

	well := s.well()
	s.ranWell = s.ranWell || well
	if ran := now.Sub(s.began); ran > restartedFor || ran > s.a.calm && well {
		alarms.clear(AlarmRestarted)
	}
	lag := s.lag(now)
	alarms.when(AlarmBehind, lag > behindTakeovers*s.takeover(), func() string {
		return fmt.Sprintf("entry %d is committed since %s and not durable in the repository", s.end.index+1, lag.Round(time.Second))
	})
	if s.spool == nil {
		return
	}
	used := s.spool.bytes + s.log.Pinned()
	alarms.when(AlarmSpool, used > s.SpoolLimit/5*4, func() string {
		return fmt.Sprintf("the spool %s and the WAL files kept from purging take %d of %d bytes", s.SpoolDir, used, s.SpoolLimit)
	})
}

// well tells that nothing is in the way of archiving.
func (s *session) well() bool {
	return (s.role == Writer || s.role == Follower) && s.away.IsZero() && s.failing.IsZero() && s.stalled.IsZero()
}

// lag is how old the oldest committed entry is that is not durable in the
// repository, as far as this archiver knows.
func (s *session) lag(now time.Time) time.Duration {
	oldest := s.queue.oldest()
	if len(s.lane) > 0 && !s.laneSince.IsZero() {
		oldest = s.laneSince
	}
	if oldest.IsZero() {
		return 0
	}
	return now.Sub(oldest)
}

// clock compares the host's clock with the monotonic one.
type clock struct {
	wall, monotonic time.Time
	jumped          time.Time
}

const (
	clockTolerance = 2 * time.Second
	// clockAlarm is how long a jump is shown.
	clockAlarm = 10 * time.Minute
)

func (c *clock) check(alarms *alarms, monotonic, wall time.Time) {
	wall = wall.Round(0)
	if !c.wall.IsZero() {
		jump := wall.Sub(c.wall) - monotonic.Sub(c.monotonic)
		if jump.Abs() > clockTolerance {
			c.jumped = monotonic
			alarms.raise(AlarmClock, fmt.Sprintf("the host's clock jumped by %s at %s: marks from before and after do not fit together", jump.Round(time.Second), wall.UTC().Format(time.RFC3339)))
		}
	}
	if !c.jumped.IsZero() && monotonic.Sub(c.jumped) > clockAlarm {
		c.jumped = time.Time{}
		alarms.clear(AlarmClock)
	}
	c.wall, c.monotonic = wall, monotonic
}

// publish shows what is known.
func (s *session) publish() {
	now := time.Now()
	s.a.update(func(st *State) {
		st.Role, st.Timeline = s.role, s.timeline
		if s.end.index != st.Archived {
			st.ArchivedTime = s.Now()
		}
		st.Archived, st.ArchivedTerm = s.end.index, s.end.term
		st.ArchivedRevision = s.end.revision
		st.Applied, st.Released, st.Read = s.applied, max(s.released, s.queue.last(), s.tip.index), max(s.readTo, s.released, s.tip.index)
		if !s.confirmed.IsZero() {
			st.Confirmed = s.confirmed
		}
		st.Recoverable = s.recoverable()
		st.Behind, st.BehindEntries = max(s.lag(now), s.exposed(now)), 0
		if s.applied > st.Recoverable {
			st.BehindEntries = s.applied - st.Recoverable
		}
		st.Holes = st.Holes[:0:0]
		for _, h := range s.holes {
			if !h.reported { // those are among Gaps
				st.Holes = append(st.Holes, Hole{h.First, h.Last, h.due})
			}
		}
		st.Queued, st.Dropped = s.queue.bytes, int64(s.rel.dropped)
		st.SpoolLimit = s.SpoolLimit
		if s.spool != nil {
			st.Spooled = s.spool.bytes
		}
		if s.log != nil {
			st.Pinned = s.log.Pinned()
		}
		st.SnapshotDue = ""
		if s.position.Gap != nil {
			st.SnapshotDue = s.position.Gap.Reason
		}
	})
}
