package repository

import (
	"slices"
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
	if err != nil || len(all) != 2 || all[0].Backup != "20260102T150405Z-000000" || all[1].Reason != p.Reason {
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

// Of several records that a log was pruned the highest comes first.
func TestPrunedLogs(t *testing.T) {
	r, err := Init(t.Context(), sinktest.NewMemory(), time.Now())
	require.NoError(t, err)
	for _, index := range []uint64{5, 300, 20, 300} {
		require.NoError(t, r.RecordPrunedLog(t.Context(), PrunedLog{Timeline: pinned, Index: index}))
	}
	require.NoError(t, r.RecordPruned(t.Context(), Pruned{Timeline: pinned, Backup: pinnedBackup}))
	require.NoError(t, r.RecordPrunedLog(t.Context(), PrunedLog{Timeline: TimelineID{ClusterID: pinned.ClusterID, N: pinned.N + 1}, Index: 900}))
	all, err := r.PrunedLogs(t.Context(), pinned)
	if err != nil || !slices.Equal(all, []string{PrunedLogName(pinned, 300), PrunedLogName(pinned, 20), PrunedLogName(pinned, 5)}) {
		t.Error(all, err)
	}
	if names, err := r.PrunedNames(t.Context()); err != nil || len(names) != 1 {
		t.Error(names, err)
	}
	if p, err := r.ReadPrunedLog(t.Context(), PrunedLogName(pinned, 20)); err != nil || p.Index != 20 {
		t.Error(p, err)
	}
}

// Names have one spelling.
func TestRetentionNames(t *testing.T) {
	for _, name := range []string{
		"", "pins/", "pins/x.json", "pins/0000000000000007-1/latest.json", "pins/0000000000000007-1/" + pinnedBackup,
		"Pins/0000000000000007-1/" + pinnedBackup + ".json", "0000000000000007-1/" + pinnedBackup + ".json",
		"pruned/0000000000000007-1/log-5.json", "pruned/0000000000000007-1/log-000000000000000A.json", "0000000000000007-1/log-000000000000000a.json",
	} {
		if _, _, err := ParsePinName(name); err == nil {
			t.Errorf("%q is taken for a pin", name)
		}
		if _, _, err := ParsePrunedLogName(name); err == nil {
			t.Errorf("%q is taken for a record", name)
		}
	}
	_, _, err := ParsePrunedName(PrunedLogName(pinned, 5))
	require.Error(t, err, "a log's record is taken for a backup's")
	if at, err := BackupTime(pinnedBackup); err != nil || !at.Equal(time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)) {
		t.Error(at, err)
	}
}
