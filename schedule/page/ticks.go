package page

import "time"

// tick is a mark on the time axis.
type tick struct {
	At    time.Time
	Label string
}

// steps are the distances that ticks may have, beside whole months.
var steps = []time.Duration{
	time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	day, 2 * day, week,
}

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// ticks are at most limit round UTC times from from to to, the finest that fit.
func ticks(from, to time.Time, limit int) []tick {
	from, to = from.UTC(), to.UTC()
	if limit < 1 || !from.Before(to) {
		return nil
	}
	for _, step := range steps {
		if to.Sub(from)/step >= time.Duration(limit) {
			continue
		}
		var all []tick
		// Truncate counts from a Monday, the first of year 1, so that weeks begin
		// on Mondays.
		for at := from.Truncate(step); !at.After(to); at = at.Add(step) {
			if !at.Before(from) {
				all = append(all, tick{at, clock(at, step)})
			}
		}
		return all
	}
	for _, months := range []int{1, 2, 3, 6, 12, 24, 60, 120} {
		var all []tick
		first := time.Date(from.Year(), 1, 1, 0, 0, 0, 0, time.UTC)
		for at := first; !at.After(to) && len(all) <= limit; at = at.AddDate(0, months, 0) {
			if !at.Before(from) {
				all = append(all, tick{at, month(at)})
			}
		}
		if len(all) <= limit {
			return all
		}
	}
	return nil
}

// clock labels a tick by what tells it from its neighbours; the first of a day
// says the day.
func clock(at time.Time, step time.Duration) string {
	switch {
	case step >= day || at.Equal(at.Truncate(day)):
		return at.Format("2 Jan")
	case step < time.Minute:
		return at.Format("15:04:05")
	default:
		return at.Format("15:04")
	}
}

func month(at time.Time) string {
	if at.Month() == time.January {
		return at.Format("2006")
	}
	return at.Format("Jan")
}
