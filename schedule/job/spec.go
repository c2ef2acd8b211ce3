package job

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/requorum/requorum/sinks/repository"
)

// Spec says when a job is to be run.
type Spec struct {
	// Name is part of object names: lower-case letters, digits and dashes.
	Name string
	// Schedule is in the five fields of cron, or one of @hourly, @daily, @weekly,
	// @monthly, @yearly. Empty: the job runs on demand only.
	Schedule string
	// Zone is whose wall time the schedule is in; UTC where nil.
	Zone *time.Location
	// Jitter is the longest time by which slots come later than the schedule says:
	// by how much depends on the seed and the name only, so that all agents of one
	// repository agree and those of many clusters don't come at once.
	Jitter time.Duration
}

// Timetable works out the slots. Seed is the repository's ID.
func (s Spec) Timetable(seed string) (*Timetable, error) {
	if err := repository.ValidJob(s.Name); err != nil {
		return nil, err
	}
	if s.Jitter < 0 {
		return nil, fmt.Errorf("job %s: a jitter of %v is not possible: write 0s or more", s.Name, s.Jitter)
	}
	if s.Schedule == "" {
		return &Timetable{}, nil
	}
	schedule, err := parse(s.Schedule)
	if err != nil {
		return nil, fmt.Errorf("job %s: schedule %q: %w", s.Name, s.Schedule, err)
	}
	zone := s.Zone
	if zone == nil {
		zone = time.UTC
	}
	return &Timetable{walls: schedule, zone: zone, offset: offset(seed, s.Name, s.Jitter)}, nil
}

// CheckSchedule says what is wrong with a schedule, and what to write.
func CheckSchedule(schedule string) error {
	_, err := parse(schedule)
	return err
}

// parse reads a schedule of wall times, which it gives as if they were UTC.
func parse(text string) (cron.Schedule, error) {
	switch {
	case strings.HasPrefix(text, "@every"):
		return nil, errors.New("@every counts from the start of each agent, so that no two would agree on when a run is due: write for example \"*/15 * * * *\" or \"0 */6 * * *\"")
	case strings.HasPrefix(text, "@reboot"):
		return nil, errors.New("@reboot is no time: missed runs are made up at the start anyway")
	case strings.Contains(text, "TZ="):
		return nil, errors.New("the time zone is not part of it: use the key time-zone")
	}
	s, err := cron.ParseStandard(text)
	if err != nil {
		return nil, fmt.Errorf("%q is no cron expression (%w): write five fields (minute, hour, day of month, month, day of week), such as \"0 1 * * *\", or @daily", text, err)
	}
	spec, ok := s.(*cron.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("a schedule of the type %T has no fixed times", s)
	}
	spec.Location = time.UTC
	if spec.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, errors.New("no such day ever comes")
	}
	return spec, nil
}

// Timetable gives a job's slots. Where clocks are put forward, wall times that
// don't exist are all the first moment after them; where they are put back, a
// wall time that exists twice is the first of the two.
type Timetable struct {
	walls  cron.Schedule // in wall times, written as if they were UTC; nil: no slots
	zone   *time.Location
	offset time.Duration
}

// longest is more than lies between two slots: from one 29 February to the next,
// round a year like 2100.
const longest = 9 * 366 * 24 * time.Hour

// Next is the first slot after a time; zero where there is none.
func (t *Timetable) Next(after time.Time) time.Time {
	if t.walls == nil {
		return time.Time{}
	}
	after = after.Add(-t.offset).In(t.zone)
	// Moments follow one another as their wall times do, so none is passed over.
	// After clocks were put back there are many that were already.
	for wall := wallOf(after); ; {
		wall = t.walls.Next(wall)
		if wall.IsZero() {
			return time.Time{}
		}
		if at := moment(wall, t.zone); at.After(after) {
			return at.Add(t.offset).UTC()
		}
	}
}

// Previous is the newest slot at or before a time; zero where there is none.
func (t *Timetable) Previous(at time.Time) time.Time {
	if t.walls == nil {
		return time.Time{}
	}
	for back := time.Minute; back < longest; back *= 2 {
		slot := t.Next(at.Add(-back))
		if slot.IsZero() || slot.After(at) {
			continue
		}
		for {
			next := t.Next(slot)
			if next.IsZero() || next.After(at) {
				return slot
			}
			slot = next
		}
	}
	return time.Time{}
}

// wallOf is what a clock on the wall shows, written as UTC.
func wallOf(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// moment is when the clocks of a zone first show a wall time, or jump over it.
func moment(wall time.Time, zone *time.Location) time.Time {
	t := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), 0, zone)
	start, end := t.ZoneBounds()
	switch shown := wallOf(t); {
	case shown.After(wall): // never shown; t is behind the jump
		return start
	case shown.Before(wall): // never shown; t is before it
		return end
	case start.IsZero():
		return t
	}
	_, before := start.Add(-time.Second).Zone()
	if first := wall.Add(-time.Duration(before) * time.Second); first.Before(start) {
		return first // shown before the clocks were put back, too
	}
	return t
}

// offset is a job's share of its jitter, in whole seconds.
func offset(seed, job string, jitter time.Duration) time.Duration {
	seconds := uint64(jitter / time.Second)
	if seconds == 0 {
		return 0
	}
	sum := sha256.Sum256([]byte(seed + "/" + job))
	return time.Duration(binary.BigEndian.Uint64(sum[:])%seconds) * time.Second
}
