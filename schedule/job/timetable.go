package job

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/robfig/cron/v3"
)

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
