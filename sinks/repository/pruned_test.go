package repository

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/sinktest"
)

// The record of a pruned backup is written once, by whoever is first, and is found
// by its name.
func TestPruned(t *testing.T) {
	r, err := Init(t.Context(), sinktest.NewMemory(), time.Now())
	require.NoError(t, err)
	line := TimelineID{ClusterID: 0xcdf818194e3a8c32, N: 2}
	p := Pruned{Timeline: line, Backup: "20260102T150405Z-3f9a2c", Reason: "older than 30 days", Created: time.Unix(1, 0).UTC()}
	name := PrunedName(p.Timeline, p.Backup)
	_, err = r.ReadPruned(t.Context(), name)
	require.ErrorIs(t, err, sinks.ErrNotFound, "before")
	for _, reason := range []string{p.Reason, "another one"} {
		again := p
		again.Reason = reason
		require.NoError(t, r.RecordPruned(t.Context(), again))
	}
	p.Format = Format
	if got, err := r.ReadPruned(t.Context(), name); err != nil || got != p {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = sinks.Put(t.Context(), r.Sink(), prunedPrefix+line.String()+"/other.json", nil, sinks.CreateOptions{})
	require.NoError(t, err)
	if names, err := r.PrunedNames(t.Context()); err != nil || !slices.Equal(names, []string{name}) {
		t.Errorf("%q, %v", names, err)
	}
	require.Error(t, r.RecordPruned(t.Context(), Pruned{Timeline: line, Backup: "../x"}), "what is no backup's ID was recorded")
	if ids, err := r.TimelineIDs(t.Context()); err != nil || len(ids) > 0 {
		t.Errorf("a record alone makes timelines %v, %v", ids, err)
	}
}
