package sinks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Clocks are compared with room for a request that takes long.
func TestClockOff(t *testing.T) {
	before, took := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC), 10*time.Second
	for given, want := range map[time.Time]time.Duration{
		{}:                            0,
		before.Add(-time.Second):      0,
		before.Add(5 * time.Second):   0,
		before.Add(12 * time.Second):  0,
		before.Add(-13 * time.Second): -13 * time.Second,
		before.Add(time.Hour):         time.Hour,
	} {
		require.Equal(t, want, clockOff(given, before, took), given)
	}
}
