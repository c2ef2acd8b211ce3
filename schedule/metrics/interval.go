package metrics

import (
	"time"

	"github.com/robfig/cron/v3"
)

// A schedule's longest interval is looked for in a week, so that one with pauses
// at night or at weekends has theirs, and over a year of monthly runs.
const (
	intervalWindow = 8 * 24 * time.Hour
	intervalRuns   = 13
)

// interval is the longest time between two runs of a cron schedule; 0 for one
// that never runs again, or is no schedule.
func interval(schedule string) time.Duration {
	if schedule == "" {
		return 0
	}
	parsed, err := cron.ParseStandard(schedule)
	if err != nil {
		return 0 // the configuration was checked: this is a schedule of another sort
	}
	// Any moment will do; always the same one gives always the same answer.
	start := parsed.Next(time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC))
	var longest time.Duration
	at := start
	for n := 0; n < intervalRuns || at.Sub(start) < intervalWindow; n++ {
		next := parsed.Next(at)
		if next.IsZero() {
			break
		}
		longest = max(longest, next.Sub(at))
		at = next
	}
	return longest
}
