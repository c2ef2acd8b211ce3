package archive

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/requorum/requorum/store/client"
)

// Alarm names a condition that somebody has to look at.
type Alarm string

// The alarms. Each is there as long as its condition is.
const (
	// AlarmStalled: the member applies entries, and its log, as it is read here,
	// does not grow. The usual reason is a wrong directory.
	AlarmStalled Alarm = "stalled"
	// AlarmBehind: committed entries are not durable in the repository although
	// they should be for long.
	AlarmBehind Alarm = "behind"
	// AlarmMember: the member does not answer.
	AlarmMember Alarm = "member"
	// AlarmRepository: the repository does not take or give objects.
	AlarmRepository Alarm = "repository"
	// AlarmSpool: four fifths of the spool's bound are used.
	AlarmSpool Alarm = "spool"
	// AlarmSpoolFull: the bound is reached, or the spool's disk is full; what the
	// member purges now may be lost.
	AlarmSpoolFull Alarm = "spool-full"
	// AlarmGap: entries are missing, and a full snapshot is due.
	AlarmGap Alarm = "gap"
	// AlarmClock: the host's clock jumped. Marks of then show wrong times.
	AlarmClock Alarm = "clock"
	// AlarmRolledBack: the member's log is older than what it held before: its
	// disk or machine was set back.
	AlarmRolledBack Alarm = "rolled-back"
	// AlarmTimeline: the cluster's history differs from the archived one; a new
	// timeline goes on.
	AlarmTimeline Alarm = "timeline"
	// AlarmLineage: the repository belongs to another cluster, and nothing is stored.
	AlarmLineage Alarm = "lineage"
	// AlarmDamaged: a segment was found damaged, and passed by.
	AlarmDamaged Alarm = "damaged"
	// AlarmForeign: somebody who is not trusted wrote under a name that a segment was to
	// get; it got another one.
	AlarmForeign Alarm = "foreign"
	// AlarmLog: the member's log cannot be read, so nothing is archived.
	AlarmLog Alarm = "log"
	// AlarmRestarted: the archiver met an error and began anew.
	AlarmRestarted Alarm = "restarted"
)

// Alarms are all of them.
func Alarms() []Alarm {
	return []Alarm{
		AlarmStalled, AlarmBehind, AlarmMember, AlarmRepository, AlarmSpool, AlarmSpoolFull, AlarmGap, AlarmClock, AlarmRolledBack,
		AlarmTimeline, AlarmLineage, AlarmDamaged, AlarmForeign, AlarmLog, AlarmRestarted,
	}
}

// Event reports that an alarm came or went. Its JSON form is stable.
type Event struct {
	Alarm  Alarm  `json:"alarm"`
	Raised bool   `json:"raised"` // false: it is over
	Text   string `json:"text"`   // why
}

// RaisedAlarm is an alarm that is there.
type RaisedAlarm struct {
	Alarm Alarm `json:"alarm"`
	// Since is when it was first raised: one that was over for a moment only goes
	// on.
	Since time.Time `json:"since"`
	Text  string    `json:"text"`
}

// backWithin is how soon an alarm comes again that was not over: what is tried
// again, and fails, works for a moment in between.
const backWithin = 2 * time.Minute

// alarms keeps which are raised.
type alarms struct {
	mu     sync.Mutex
	raised []RaisedAlarm
	over   map[Alarm]over
	now    func() time.Time
	events func(Event)
}

// over is when an alarm was raised, and when it was over.
type over struct{ since, at time.Time }

func (a *alarms) raise(name Alarm, text string) {
	a.mu.Lock()
	for i, r := range a.raised {
		if r.Alarm == name {
			a.raised[i].Text = text
			a.mu.Unlock()
			return
		}
	}
	now := a.now()
	since := now
	if last, ok := a.over[name]; ok && now.Sub(last.at).Abs() < backWithin {
		since = last.since
	}
	a.raised = append(a.raised, RaisedAlarm{name, since, text})
	a.mu.Unlock()
	a.report(Event{name, true, text})
}

func (a *alarms) clear(name Alarm) {
	a.mu.Lock()
	for i, r := range a.raised {
		if r.Alarm == name {
			a.raised = append(a.raised[:i:i], a.raised[i+1:]...)
			if a.over == nil {
				a.over = map[Alarm]over{}
			}
			a.over[name] = over{r.Since, a.now()}
			a.mu.Unlock()
			a.report(Event{name, false, r.Text})
			return
		}
	}
	a.mu.Unlock()
}

// when raises or clears.
func (a *alarms) when(name Alarm, is bool, text func() string) {
	if is {
		a.raise(name, text())
	} else {
		a.clear(name)
	}
}

func (a *alarms) report(e Event) {
	if a.events != nil {
		a.events(e)
	}
}

func (a *alarms) list() []RaisedAlarm {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]RaisedAlarm(nil), a.raised...)
}

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
	alarms.when(AlarmMember, !s.failing.IsZero() && now.Sub(s.failing) > memberAfter && !errors.Is(s.why, client.ErrOtherHistory), func() string {
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

// well reports that nothing is in the way of archiving.
func (s *session) well() bool {
	return (s.role == Writer || s.role == Follower) && s.away.IsZero() && s.failing.IsZero() && s.stalled.IsZero()
}

// lag is how old the oldest committed entry is that is not durable in the
// repository, as far as this archiver knows.
func (b *outbox) lag(now time.Time) time.Duration {
	oldest := b.queue.oldest()
	if b.backlog() && !b.spooledSince.IsZero() {
		oldest = b.spooledSince
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
		st.Applied, st.Released, st.Read = s.applied, max(s.released, s.queue.last(), s.captured.index), max(s.readTo, s.released, s.captured.index)
		if !s.confirmed.IsZero() {
			st.Confirmed = s.confirmed
		}
		st.Recoverable = s.recoverable()
		st.Behind, st.BehindEntries = s.lag(now), 0
		if s.position.Gap != nil {
			st.Behind = max(st.Behind, now.Sub(s.dueSince))
		}
		if s.applied > st.Recoverable {
			st.BehindEntries = s.applied - st.Recoverable
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
