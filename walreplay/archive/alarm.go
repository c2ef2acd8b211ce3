package archive

import (
	"sync"
	"time"
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
	// AlarmClock: the host's clock jumped. Marks of then tell wrong times.
	AlarmClock Alarm = "clock"
	// AlarmRolledBack: the member's log is older than what it held before: its
	// disk or machine was set back.
	AlarmRolledBack Alarm = "rolled-back"
	// AlarmTimeline: the cluster's history differs from the archived one; a new
	// timeline goes on.
	AlarmTimeline Alarm = "timeline"
	// AlarmDamaged: a segment was found damaged, and passed by.
	AlarmDamaged Alarm = "damaged"
	// AlarmLog: the member's log cannot be read, so nothing is archived.
	AlarmLog Alarm = "log"
	// AlarmRestarted: the archiver met an error and began anew.
	AlarmRestarted Alarm = "restarted"
)

// Event tells that an alarm came or went.
type Event struct {
	Alarm  Alarm
	Raised bool
	Text   string // why
	Time   time.Time
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
	a.tell(Event{name, true, text, now})
}

func (a *alarms) clear(name Alarm) {
	a.mu.Lock()
	for i, r := range a.raised {
		if r.Alarm == name {
			now := a.now()
			a.raised = append(a.raised[:i:i], a.raised[i+1:]...)
			if a.over == nil {
				a.over = map[Alarm]over{}
			}
			a.over[name] = over{r.Since, now}
			a.mu.Unlock()
			a.tell(Event{name, false, r.Text, now})
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

func (a *alarms) tell(e Event) {
	if a.events != nil {
		a.events(e)
	}
}

func (a *alarms) list() []RaisedAlarm {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]RaisedAlarm(nil), a.raised...)
}
