package job

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
)

// write stores a result.
func write(t *testing.T, r *repository.Repository, job, slot string, good bool) {
	t.Helper()
	kind := repository.JobDone
	if !good {
		kind = repository.JobFailed
	}
	ok(t, r.WriteJob(t.Context(), repository.JobName{Job: job, Slot: slot, Kind: kind}, repository.JobRecord{Job: job, Slot: slot, Attempt: 1, Holder: "x", OK: good, Text: "of " + slot}))
}

func day(n int) string {
	return repository.SlotName(time.Date(1999, 1, 1, 1, 0, 0, 0, time.UTC).AddDate(0, 0, n))
}

// expect compares the slots of the newest runs of a job; empty for none.
func expect(t *testing.T, h *history, job, success, failure string) {
	t.Helper()
	slotOf := func(r *Run) string {
		if r == nil {
			return ""
		}
		return r.Slot
	}
	gotSuccess, gotFailure := h.newest(job)
	if got, want := [2]string{slotOf(gotSuccess), slotOf(gotFailure)}, [2]string{success, failure}; got != want {
		t.Errorf("success and failure are %q, want %q", got, want)
	}
}

func historyOf(t *testing.T, s sinks.Sink) *history {
	t.Helper()
	repo, err := repository.Open(t.Context(), s)
	ok(t, err)
	return &history{repo: repo, now: time.Now, known: map[string]*jobHistory{}}
}

// A long history costs few requests at first, and next to none afterwards; results
// of older slots that come late are found, and damage hides nothing else.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, repo := newRepo(t)
		for n := range 300 {
			write(t, repo, "full", day(n), n != 17 && n != 211)
			write(t, repo, "drill", day(n), false)
		}
		h := &host{Sink: m}
		faulty := sinktest.NewFaulty(h)
		b := historyOf(t, faulty)
		opened := faulty.Calls(sinktest.Open)
		err := b.read(t.Context())
		ok(t, err)
		expect(t, b, "full", day(299), day(211))
		if n := faulty.Calls(sinktest.Open) - opened; n > 300+2 { // drills that all failed are read, once
			t.Errorf("%d results were read", n)
		}
		expect(t, b, "drill", "", day(299))

		opened, lists := faulty.Calls(sinktest.Open), h.lists.Load()
		write(t, repo, "full", day(301), true)
		write(t, repo, "full", day(300), false) // an older slot, later
		write(t, repo, "prune", day(300), true)
		err = b.read(t.Context())
		ok(t, err)
		expect(t, b, "full", day(301), day(300))
		expect(t, b, "prune", day(300), "")
		err = b.read(t.Context())
		ok(t, err)
		expect(t, b, "full", day(301), day(300))
		if n := faulty.Calls(sinktest.Open) - opened; n != 3 || h.lists.Load()-lists != 2 {
			t.Errorf("%d results were read, %d lists", n, h.lists.Load()-lists)
		}

		_, err = sinks.Put(t.Context(), m, repository.JobName{Job: "full", Slot: day(302)}.String(), []byte("{"), sinks.CreateOptions{})
		require.NoError(t, err)
		err = b.read(t.Context())
		require.ErrorIs(t, err, repository.ErrAltered)
		expect(t, b, "full", day(301), day(300))
		err = b.read(t.Context())
		ok(t, err) // said once
		expect(t, b, "full", day(301), day(300))
		h.away.Store(true)
		err = b.read(t.Context())
		require.Error(t, err, "no error while the repository is away")
		expect(t, b, "full", day(301), day(300))
	})
}

// More old results than one request lists are jumped over.
func TestHistoryOfYears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, repo := newRepo(t)
		begin := time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
		for _, job := range []string{"full", "merge"} {
			for n := range 2500 {
				write(t, repo, job, repository.SlotName(begin.Add(time.Duration(n)*time.Hour)), true)
			}
		}
		h := &host{Sink: m}
		b := historyOf(t, h)
		for i, want := range []int64{1, 3, 3} {
			before := h.lists.Load()
			ok(t, b.read(t.Context()))
			expect(t, b, "merge", repository.SlotName(begin.Add(2499*time.Hour)), "")
			if got := h.lists.Load() - before; got != want {
				t.Errorf("round %d: %d lists, want %d", i, got, want)
			}
		}
	})
}
