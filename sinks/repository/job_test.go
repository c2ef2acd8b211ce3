package repository_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
)

func TestSlotNames(t *testing.T) {
	at := time.Date(2026, 1, 2, 2, 0, 0, 0, time.FixedZone("", 3600))
	if got := repository.SlotName(at); got != slot {
		t.Error(got)
	}
	if back, demand, err := repository.ParseSlot(slot); err != nil || demand || !back.Equal(at) {
		t.Error(back, demand, err)
	}
	asked := repository.NewDemandSlot(at)
	if back, demand, err := repository.ParseSlot(asked); err != nil || !demand || !back.Equal(at) {
		t.Error(asked, back, demand, err)
	}
	if asked == repository.NewDemandSlot(at) {
		t.Error("two demands have one slot")
	}
	for _, bad := range []string{"", "x", "20260102T010000", slot + "-", slot + "-demand-", slot + "-demand-12345", slot + "-demand-12345G", "20261302T010000Z", slot + "/", slot + ".json"} {
		_, _, err := repository.ParseSlot(bad)
		require.Error(t, err, "%q is taken for a slot", bad)
	}
}

// A slot's backup has an ID that follows from job and slot, and a valid one.
func TestSlotBackupID(t *testing.T) {
	seen := map[string]bool{}
	for _, job := range []string{"full", "drill"} {
		for _, s := range []string{slot, "20260102T010000Z-demand-3f9a2c", "20260103T010000Z"} {
			id, err := repository.SlotBackupID(job, s)
			if err != nil || repository.ValidBackupID(id) != nil || !strings.HasPrefix(id, s[:16]) {
				t.Error(id, err)
			}
			if again, _ := repository.SlotBackupID(job, s); again != id || seen[id] {
				t.Errorf("%s, then %s; seen: %v", id, again, seen[id])
			}
			seen[id] = true
		}
	}
	if id, err := repository.SlotBackupID("full", slot); err != nil || id != "20260102T010000Z-24cfaf" {
		t.Error("the ID changed, which the format does not allow:", id, err)
	}
	_, err := repository.SlotBackupID("full", "x")
	require.Error(t, err, "no slot, and yet a backup")
}

// What names say of a slot, step by step.
func TestReadSlots(t *testing.T) {
	r := jobRepo(t, sinktest.NewMemory())
	must := func(err error) {
		t.Helper()
		require.NoError(t, err)
	}
	is := func(want repository.SlotState) {
		t.Helper()
		want.Slot = slot
		all, err := r.ReadSlots(t.Context(), "full", slot, slot)
		require.NoError(t, err)
		require.Equal(t, want, all[len(all)-1])
	}
	record := func(slot string, kind repository.JobKind, attempt, beat int) {
		t.Helper()
		name := repository.JobName{Job: "full", Slot: slot, Kind: kind, Attempt: attempt, Beat: beat}
		must(r.WriteJob(t.Context(), name, repository.JobRecord{Job: "full", Slot: slot, Attempt: attempt, OK: kind == repository.JobDone}))
	}
	is(repository.SlotState{Next: 1})
	// Neighbours that are no concern of it.
	record(slot+"-demand-3f9a2c", repository.JobBegun, 7, 0)
	record(slot+"-demand-3f9a2c", repository.JobDone, 0, 0)
	is(repository.SlotState{Next: 1})
	record("20260102T020000Z", repository.JobBegun, 1, 0)
	is(repository.SlotState{Next: 1})
	record(slot, repository.JobBegun, 1, 0)
	is(repository.SlotState{Attempts: 1, Newest: 1, Next: 2})
	record(slot, repository.JobBeat, 1, 1)
	record(slot, repository.JobBeat, 1, 2)
	is(repository.SlotState{Attempts: 1, Newest: 1, Beats: 2, Next: 2})
	record(slot, repository.JobFailed, 1, 0)
	is(repository.SlotState{Attempts: 1, Newest: 1, Beats: 2, Ended: true, Next: 2})
	record(slot, repository.JobBegun, 2, 0)
	is(repository.SlotState{Attempts: 2, Newest: 2, Next: 3})
	record(slot, repository.JobStopped, 2, 0)
	is(repository.SlotState{Attempts: 1, Newest: 2, Ended: true, Next: 3})
	record(slot, repository.JobBegun, 10, 0)
	record(slot, repository.JobBeat, 10, 1)
	is(repository.SlotState{Attempts: 2, Newest: 10, Beats: 1, Next: 3})
	record(slot, repository.JobFailed, 0, 0)
	is(repository.SlotState{Attempts: 2, Newest: 10, Beats: 1, Next: 3, Done: true})
	record(slot, repository.JobDone, 0, 0)
	is(repository.SlotState{Attempts: 2, Newest: 10, Beats: 1, Next: 3, Done: true, OK: true})
	all, err := r.ReadSlots(t.Context(), "full", "20260102T000000Z", "20260102T030000Z")
	require.NoError(t, err)
	var slots []string
	for _, s := range all {
		slots = append(slots, s.Slot)
	}
	require.Equal(t, []string{slot + "-demand-3f9a2c", slot, "20260102T020000Z", "20260102T030000Z"}, slots)
}

// A record is written once, comes back as it was, and is refused elsewhere.
func TestJobRecord(t *testing.T) {
	s := sinktest.NewMemory()
	r := jobRepo(t, s)
	want := repository.JobRecord{Job: "full", Slot: slot, Attempt: 2, Holder: "m1", OK: true, Text: "done", Bytes: 5, Detail: json.RawMessage(`{"a":1}`)}
	name := repository.JobName{Job: "full", Slot: slot}
	require.NoError(t, r.WriteJob(t.Context(), name, want))
	require.ErrorIs(t, r.WriteJob(t.Context(), name, want), sinks.ErrExists)
	got, err := r.ReadJob(t.Context(), name)
	if err != nil || got.Format != repository.Format || got.Text != want.Text {
		t.Fatalf("got %+v, %v", got, err)
	}
	data, err := sinks.Get(t.Context(), s, name.String(), 1<<20)
	require.NoError(t, err)
	for _, elsewhere := range []repository.JobName{{Job: "prune", Slot: slot}, {Job: "full", Slot: slot, Kind: repository.JobFailed}, {Job: "full", Slot: slot, Kind: repository.JobBegun, Attempt: 2}} {
		_, err = sinks.Put(t.Context(), s, elsewhere.String(), data, sinks.CreateOptions{})
		require.NoError(t, err)
		_, err = r.ReadJob(t.Context(), elsewhere)
		require.ErrorIs(t, err, repository.ErrAltered, elsewhere.String())
	}
}

func jobRepo(t *testing.T, s sinks.Sink) *repository.Repository {
	t.Helper()
	r, err := repository.Init(t.Context(), s, time.Now())
	require.NoError(t, err)
	return r
}
