package schedule

import (
	"math/rand/v2"
	"testing"
	"time"
)

// What is called recoverable up to a time holds everything that was
// acknowledged by then (promise 4: silence is not success).
func TestRecoveryPoint(t *testing.T) {
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	after := func(s float64) time.Time { return begin.Add(time.Duration(s * float64(time.Second))) }
	var r recoveryPoint
	expect := func(what string, want time.Time) {
		t.Helper()
		if got := r.at(); !got.Equal(want) {
			t.Errorf("%s: recoverable until %s, want %s", what, got.Sub(begin), want.Sub(begin))
		}
	}
	r.durable("a", 10)
	expect("nothing confirmed", time.Time{})
	r.confirm(10, after(1))
	r.confirm(12, after(2))
	expect("nothing stored since", time.Time{})
	r.durable("a", 11)
	expect("stored to 11", after(1))
	r.durable("a", 12)
	expect("all stored", after(2))
	r.confirm(12, after(60))
	r.durable("a", 12)
	expect("idle for a minute", after(60))
	r.confirm(13, after(61))
	r.confirm(12, after(59)) // a slow answer
	r.durable("a", 12)
	expect("one entry is not stored", after(60))
	r.durable("a", 10)
	expect("entries were found missing", after(1))
	r.durable("a", 9)
	expect("more were", time.Time{})
	r.durable("a", 13)
	expect("filled again", after(61))
	r.durable("b", 13)
	expect("another history", time.Time{})
}

// The same against a model that remembers everything, over outages that are far
// longer than what is remembered here.
func TestRecoveryPointIsNeverTooGood(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var r recoveryPoint
	var all []sample
	index, durable := uint64(1), uint64(0)
	now := begin
	exact := 0
	for range 40_000 {
		now = now.Add(time.Duration(random.IntN(300)) * time.Millisecond)
		index += uint64(random.IntN(3))
		r.confirm(index, now)
		all = append(all, sample{index, now})
		away := now.Sub(begin)%(40*time.Minute) > 5*time.Minute // for 35 minutes of 40
		if !away && random.IntN(10) == 0 {
			durable = index - uint64(random.IntN(int(min(index, 5))))
		}
		r.durable("a", durable)
		var best time.Time
		for len(all) > 0 && all[0].index <= durable {
			best, all = all[0].time, all[1:]
		}
		if best.IsZero() {
			continue // the model knows nothing new
		}
		if got := r.at(); got.After(best) {
			t.Fatalf("recoverable until %s, and the truth is %s", got.Sub(begin), best.Sub(begin))
		} else if best.Sub(got) <= 2*sampleEvery {
			exact++
		}
	}
	if exact < 300 {
		t.Errorf("only %d answers were exact", exact)
	}
	if len(r.waiting) > sampleLimit || len(r.passed) > sampleLimit {
		t.Errorf("%d and %d samples are kept", len(r.waiting), len(r.passed))
	}
}

// A member that lags behind what was applied elsewhere confirms nothing, though all
// that it has itself is stored.
func TestRecoveryPointOfALaggingMember(t *testing.T) {
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var r recoveryPoint
	r.durable("a", 100)
	r.confirm(100, begin)
	r.durable("a", 100)
	r.reached(500) // a survey of the others
	for s := range 60 {
		r.confirm(100+uint64(s), begin.Add(time.Duration(s)*time.Second))
		r.durable("a", 200)
	}
	if got := r.at(); !got.Equal(begin) {
		t.Errorf("it lags, and the point went on by %s", got.Sub(begin))
	}
	r.confirm(500, begin.Add(time.Hour))
	r.durable("a", 500)
	if got := r.at(); !got.Equal(begin.Add(time.Hour)) {
		t.Errorf("it has caught up, and the point is %s on", got.Sub(begin))
	}
	// Indexes of another history say nothing of this one.
	r.durable("b", 3)
	r.confirm(3, begin.Add(2*time.Hour))
	r.durable("b", 3)
	if got := r.at(); !got.Equal(begin.Add(2 * time.Hour)) {
		t.Errorf("in another history the point is %s on", got.Sub(begin))
	}
}
