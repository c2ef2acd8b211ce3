package web

import (
	"testing"
	"time"
)

// TestSpanIsNeverLess: what would be lost is rounded up.
func TestSpanIsNeverLess(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                              "nothing",
		-time.Hour:                     "nothing",
		1:                              "1 second",
		time.Second:                    "1 second",
		1001 * time.Millisecond:        "2 seconds",
		119 * time.Second:              "119 seconds",
		119*time.Second + 1:            "2 minutes",
		2 * time.Minute:                "2 minutes",
		42*time.Minute + time.Second:   "43 minutes",
		119*time.Minute + time.Second:  "2 hours",
		47 * time.Hour:                 "47 hours",
		47*time.Hour + time.Nanosecond: "2 days",
		400 * 24 * time.Hour:           "400 days",
		1<<63 - 1:                      "106752 days",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestShort(t *testing.T) {
	now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		0:                   "now",
		-30 * time.Second:   "30 s ago",
		-90 * time.Minute:   "90 min ago",
		27 * time.Minute:    "in 27 min",
		14 * time.Hour:      "in 14 h",
		-9 * 24 * time.Hour: "9 days ago",
	} {
		if got := short(now.Add(d), now); got != want {
			t.Errorf("short(%v) = %q, want %q", d, got, want)
		}
	}
}
