package repository

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/sinktest"
)

var pinned = TimelineID{ClusterID: 7, N: 1}

const pinnedBackup = "20260102T150405Z-3f9a2c"

// A pin is written once, read with its place checked, counts when it is damaged,
// and can be taken away.
func TestPins(t *testing.T) {
	s := sinktest.NewMemory()
	r, err := Init(t.Context(), s, time.Now())
	require.NoError(t, err)
	p := Pin{Timeline: pinned, Backup: pinnedBackup, Reason: "before the upgrade", By: "m1"}
	require.NoError(t, r.WritePin(t.Context(), p))
	require.ErrorIs(t, r.WritePin(t.Context(), p), sinks.ErrExists, "again")
	moved := PinName(pinned, "20260102T150405Z-000000")
	data, err := sinks.Get(t.Context(), s, PinName(pinned, pinnedBackup), 1<<20)
	if err == nil {
		_, err = sinks.Put(t.Context(), s, moved, data, sinks.CreateOptions{})
	}
	require.NoError(t, err)
	_, err = r.ReadPin(t.Context(), moved)
	require.ErrorIs(t, err, ErrAltered, "moved")
	all, err := r.Pins(t.Context())
	if err != nil || len(all) != 2 || all[moved].Backup != "20260102T150405Z-000000" || all[PinName(pinned, pinnedBackup)].Reason != p.Reason {
		t.Errorf("%+v, %v", all, err)
	}
	for range 2 {
		require.NoError(t, r.RemovePin(t.Context(), pinned, pinnedBackup))
	}
	if names, err := r.PinNames(t.Context()); err != nil || len(names) != 1 {
		t.Error(names, err)
	}
	require.Error(t, r.WritePin(t.Context(), Pin{Timeline: pinned, Backup: "latest"}), "a pin of nothing")
}
