package config

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// checkSchedule tells whether s is a schedule whose slots all agents agree about.
func checkSchedule(s string, zone *time.Location) error {
	switch {
	case strings.HasPrefix(s, "TZ=") || strings.HasPrefix(s, "CRON_TZ="):
		return errors.New("a time zone does not stand here: write time-zone, which holds for all jobs")
	case strings.HasPrefix(s, "@every"):
		return errors.New("@every counts from an agent's start, and agents would not agree: write \"0 */6 * * *\" for every 6 hours")
	}
	parsed, err := cron.ParseStandard(s)
	if err != nil {
		return fmt.Errorf("%q is no cron expression (%w): write minute, hour, day of the month, month, day of the week, such as \"0 1 * * *\" for 01:00 each day", s, err)
	}
	if parsed.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, zone)).IsZero() {
		return fmt.Errorf("%q names a day that never comes", s)
	}
	return nil
}

// Periods are the shortest and the longest time between two runs of a schedule,
// as far as a year and 200 runs tell; 0 where there is none.
func Periods(schedule string, zone *time.Location) (shortest, longest time.Duration) {
	parsed, err := cron.ParseStandard(schedule)
	if err != nil {
		return 0, 0
	}
	at := parsed.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, zone))
	end := at.AddDate(1, 0, 7)
	for range 200 {
		next := parsed.Next(at)
		if next.IsZero() || next.After(end) && longest > 0 {
			break
		}
		d := next.Sub(at)
		if longest = max(longest, d); shortest == 0 || d < shortest {
			shortest = d
		}
		at = next
	}
	return shortest, longest
}
