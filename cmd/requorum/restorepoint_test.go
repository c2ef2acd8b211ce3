package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What the clocks of a zone showed twice, or never, is refused with the instants
// that may be meant; what they showed once is that instant, also on such a day.
func TestAtWhereTheZoneChanges(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	for in, want := range map[string]string{
		"2026-10-25 01:59:59": "2026-10-24T23:59:59Z",
		"2026-10-25 02:00:00": "twice: say which, 2026-10-25T02:00:00+02:00 or 2026-10-25T02:00:00+01:00",
		"2026-10-25 02:59:59": "twice",
		"2026-10-25 03:00:00": "2026-10-25T02:00:00Z",
		"2026-10-25 23:00:00": "2026-10-25T22:00:00Z",
		"2026-03-29 01:59:59": "2026-03-29T00:59:59Z",
		"2026-03-29 02:30:00": "never showed that: give the time with its zone, such as 2026-03-29T03:30:00+02:00 or 2026-03-29T01:30:00+01:00",
		"2026-03-29 03:00:00": "2026-03-29T01:00:00Z",
		"2026-07-01 12:00:00": "2026-07-01T10:00:00Z",
	} {
		wall, err := time.Parse(time.DateTime, in)
		require.NoError(t, err)
		got, err := onTheWall(wall, berlin, in)
		text := got.UTC().Format(time.RFC3339)
		if err != nil {
			text = err.Error()
		}
		if !strings.Contains(text, want) {
			t.Errorf("%s: %s, want %s", in, text, want)
		}
	}
}

// The times that --at takes.
func TestParseInstant(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	for in, want := range map[string]time.Time{
		"2026-01-02T15:04:05Z":         time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC),
		"2026-01-02T15:04:05.25+01:00": time.Date(2026, 1, 2, 14, 4, 5, 250e6, time.UTC),
		"2026-01-02 15:04:05":          time.Date(2026, 1, 2, 15, 4, 5, 0, time.Local),
		"2026-01-02 15:04":             time.Date(2026, 1, 2, 15, 4, 0, 0, time.Local),
		"-10m":                         now.Add(-10 * time.Minute),
		"-1h30m":                       now.Add(-90 * time.Minute),
		"-10d":                         now.Add(-240 * time.Hour),
		"-1w2h":                        now.Add(-170 * time.Hour),
		"yesterday":                    {},
		"10m":                          {},
		"2026-01-02":                   {},
		"2026-13-02T15:04:05Z":         {},
		"1767366245":                   {},
	} {
		got, err := parseInstant(in, now)
		if (err != nil) != want.IsZero() || !got.Equal(want) {
			t.Errorf("%q: %v, %v; want %v", in, got, err, want)
		}
	}
}
