package disk

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/sinktest"
)

// Limits hold for what is written and read, and writing the object takes as long.
func TestLimitHolds(t *testing.T) {
	s, err := New(t.TempDir())
	require.NoError(t, err)
	s.Set(sinks.Options{Limits: sinks.Limits{Up: 1 << 20, Down: 2 << 20}})
	began := time.Now()
	_, err = sinks.Put(t.Context(), s, "a", sinktest.Random(1, 1<<20), sinks.CreateOptions{})
	require.NoError(t, err)
	up := time.Since(began)
	_, err = sinks.Get(t.Context(), s, "a", 1<<30)
	require.NoError(t, err)
	if down := time.Since(began) - up; up < 900*time.Millisecond || down < 450*time.Millisecond {
		t.Errorf("a MiB was written in %s and read in %s", up, down)
	}
}
