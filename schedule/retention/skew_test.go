package retention

import (
	"testing"
	"time"

	"github.com/requorum/requorum/sinks/repository"
)

// Promise 1 with a host whose clock is days behind, such as one without a battery
// before it has found a time server: its backup is no older than those before it.
func TestPromise1ClockBehind(t *testing.T) {
	r := newDays(t, 10)
	policy := Policy{AnyPoint: 3 * day, Last: 1}
	r.sleep(-20 * day)
	r.full(timelineA)
	r.sleep(20 * day)
	r.log(timelineA, 5)
	before := r.points(timelineA)
	for range 3 {
		r.prune(policy)
		r.sleep(25 * time.Hour)
	}
	after := r.points(timelineA)
	// A day has 20 entries: of the last two days everything is there.
	for i := r.ends[timelineA] - 45; i <= r.ends[timelineA]; i++ {
		if before[i] && !after[i] {
			t.Fatalf("index %d, of the last two days, can not be restored any more", i)
		}
	}
}

// The log of a superseded timeline stays while nothing good is stored of the one
// that goes on: until then it is all there is.
func TestSupersededLogStaysWithoutSuccessor(t *testing.T) {
	r := newDays(t, 3)
	end := r.ends[timelineA]
	r.timeline(timelineB)
	r.must(r.repo.Supersede(t.Context(), repository.Superseded{Timeline: timelineA, By: timelineB, Created: r.place.now}))
	for range 20 { // its log is archived, and all its backups fail
		r.sleep(day)
		r.log(timelineB, 5)
	}
	policy := Policy{AnyPoint: 3 * day, Last: 1}
	r.prune(policy)
	if !r.points(timelineA)[end] {
		t.Fatal("the end of the log went, and there is no full snapshot after it")
	}
	r.full(timelineB)
	r.sleep(time.Hour)
	r.log(timelineB, 5)
	r.prune(policy)
	if r.points(timelineA)[end] {
		t.Error("the log of the superseded timeline stays for ever")
	}
}

// Promise 5 after a host's clock was ahead: what it stored does not let the rest
// go while nothing new is stored.
func TestPromise5ClockWasAhead(t *testing.T) {
	r := newDays(t, 5)
	r.sleep(400 * day)
	r.full(timelineA)
	r.sleep(-400 * day)
	policy := Policy{Within: 30 * day, Grace: day}
	r.sleep(100 * day)
	if plan := r.plan(policy); len(plan.Delete) > 0 {
		t.Errorf("%d backups go, and nothing was stored since them", len(plan.Delete))
	}
}
