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
