package repository_test

import (
	"encoding/json"
	"math"
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

// The newest heartbeat is found in few requests, however many there are and
// whether or not the first ones were removed.
func TestNewestLease(t *testing.T) {
	for _, removed := range []uint64{0, 700} {
		s := sinktest.NewFaulty(sinktest.NewMemory())
		r := claimRepo(t, s)
		if n, stray, err := r.NewestLease(t.Context(), 0); n != 0 || stray != "" || err != nil {
			t.Fatal(n, err)
		}
		written := removed
		for _, upTo := range []uint64{removed + 1, removed + 999, removed + 1000, removed + 1001, removed + 2000, removed + 2001, removed + 5555, removed + 9000} {
			for ; written < upTo; written++ {
				require.NoError(t, r.WriteLease(t.Context(), repository.Lease{Number: written + 1, Epoch: 1, Holder: "a", Process: "p"}))
			}
			for _, from := range []uint64{0, removed + 1, upTo - 1, upTo} {
				before := s.Calls(sinktest.List)
				if n, stray, err := r.NewestLease(t.Context(), from); n != upTo || stray != "" || err != nil {
					t.Errorf("%d removed, %d written, from %d: got %d, %v", removed, upTo, from, n, err)
				}
				if lists := s.Calls(sinktest.List) - before; lists > 12 || from >= upTo-1 && lists != 1 {
					t.Errorf("%d written, from %d: %d requests", upTo, from, lists)
				}
			}
		}
		require.ErrorIs(t, r.WriteLease(t.Context(), repository.Lease{Number: 5 + removed}), sinks.ErrExists)
		if l, err := r.ReadLease(t.Context(), 5+removed); err != nil || l.Holder != "a" || l.Process != "p" {
			t.Errorf("%+v, %v", l, err)
		}
	}
}

// What somebody plants among the heartbeats does not count, and is named, wherever it is.
func TestStrayHeartbeats(t *testing.T) {
	r := claimRepo(t, sinktest.NewMemory())
	write := func(numbers ...uint64) {
		for _, n := range numbers {
			require.NoError(t, r.WriteLease(t.Context(), repository.Lease{Number: n, Epoch: 1, Holder: "a", Process: "p"}))
		}
	}
	write(41, 42, 43, 44) // older ones were removed
	write(3, 1000, 1002, math.MaxUint64)
	for _, from := range []uint64{0, 41, 43, 44} {
		n, stray, err := r.NewestLease(t.Context(), from)
		if n != 44 || err != nil || stray != repository.LeaseName(1000) {
			t.Errorf("from %d: %d, %q, %v", from, n, stray, err)
		}
	}
}

// What names say of a slot, step by step.
func TestReadSlot(t *testing.T) {
	r := claimRepo(t, sinktest.NewMemory())
	must := func(err error) {
		t.Helper()
		require.NoError(t, err)
	}
	is := func(want repository.SlotState) {
		t.Helper()
		if got, err := r.ReadSlot(t.Context(), "full", slot); err != nil || got != want {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
	}
	is(repository.SlotState{Next: 1})
	// Neighbours that are no concern of it.
	must(r.WriteClaim(t.Context(), repository.Claim{Job: "full", Slot: slot + "-demand-3f9a2c", Attempt: 7}))
	must(r.WriteJobResult(t.Context(), repository.JobResult{Job: "full", Slot: slot + "-demand-3f9a2c"}))
	is(repository.SlotState{Next: 1})
	must(r.WriteClaim(t.Context(), repository.Claim{Job: "full", Slot: slot, Attempt: 1}))
	is(repository.SlotState{Attempt: 1, Next: 2})
	must(r.WriteJobFailed(t.Context(), repository.JobResult{Job: "full", Slot: slot, Attempt: 1}))
	is(repository.SlotState{Attempt: 1, Next: 2, Failed: true})
	must(r.WriteClaim(t.Context(), repository.Claim{Job: "full", Slot: slot, Attempt: 2}))
	is(repository.SlotState{Attempt: 2, Next: 3})
	must(r.WriteJobResult(t.Context(), repository.JobResult{Job: "full", Slot: slot, Attempt: 2, OK: true}))
	is(repository.SlotState{Attempt: 2, Next: 3, Done: true})
}

// A result is written once, comes back as it was, and is refused elsewhere.
func TestJobResult(t *testing.T) {
	s := sinktest.NewMemory()
	r := claimRepo(t, s)
	want := repository.JobResult{Job: "full", Slot: slot, Attempt: 2, Holder: "m1", OK: true, Text: "done", Bytes: 5, Detail: json.RawMessage(`{"a":1}`)}
	require.NoError(t, r.WriteJobResult(t.Context(), want))
	require.ErrorIs(t, r.WriteJobResult(t.Context(), want), sinks.ErrExists)
	name := repository.JobResultName("full", slot)
	got, err := r.ReadJobResult(t.Context(), name)
	if err != nil || got.Format != repository.Format || got.Text != want.Text {
		t.Fatalf("got %+v, %v", got, err)
	}
	data, err := sinks.Get(t.Context(), s, name, 1<<20)
	require.NoError(t, err)
	for _, elsewhere := range []string{repository.JobResultName("prune", slot), repository.JobFailedName("full", slot, 1)} {
		_, err = sinks.Put(t.Context(), s, elsewhere, data, sinks.CreateOptions{})
		require.NoError(t, err)
		_, err = r.ReadJobResult(t.Context(), elsewhere)
		require.ErrorIs(t, err, repository.ErrAltered, elsewhere)
	}
}
