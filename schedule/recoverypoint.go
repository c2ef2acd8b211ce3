package schedule

import (
	"sync"
	"time"
)

// sampleLimit bounds what waits to become durable. At one sample each
// sampleEvery that is a day of an outage; past it every second one goes, which
// makes the answer coarser, and never too good.
const (
	sampleLimit = 4096
	sampleEvery = 250 * time.Millisecond
)

// sample is one confirmation: what was acknowledged up to time is among the
// entries up to index.
type sample struct {
	index uint64
	time  time.Time
}

// recoveryPoint follows up to which time everything can be restored from the
// repository alone. It stands still while nothing is confirmed or nothing
// becomes durable, and goes back when what was taken for durable turns out not
// to be.
type recoveryPoint struct {
	mu      sync.Mutex
	waiting []sample // ordered by time, and so by index
	passed  []sample // the last of them is the answer
	history string   // whose indexes these are
	highest uint64   // that is known to be applied anywhere
	every   time.Duration
}

// reached tells that a member has applied index: one that has applied less confirms
// nothing until it has caught up.
func (r *recoveryPoint) reached(index uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.highest = max(r.highest, index)
}

// confirm adds that everything acknowledged until at is among the entries up to
// index.
func (r *recoveryPoint) confirm(index uint64, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if index == 0 || at.IsZero() || index < r.highest {
		return
	}
	r.highest = index
	if n := len(r.waiting); n > 0 {
		last := &r.waiting[n-1]
		switch {
		case !at.After(last.time) || index < last.index:
			return // a slower answer
		case index == last.index:
			last.time = at
			return
		case n > 1 && at.Sub(r.waiting[n-2].time) < max(r.every, sampleEvery):
			*last = sample{index, at} // the later one, with the larger index, is the harder to meet
			return
		}
	}
	r.waiting = append(r.waiting, sample{index, at})
	if len(r.waiting) > sampleLimit {
		r.thin()
	}
}

// thin drops every second sample, and from now on takes half as many.
func (r *recoveryPoint) thin() {
	r.waiting = everySecond(r.waiting)
	r.every = max(2*r.every, 2*sampleEvery)
}

// everySecond keeps half of the samples, the last one among them.
func everySecond(all []sample) []sample {
	kept := all[:0]
	for i, s := range all {
		if (len(all)-1-i)%2 == 0 {
			kept = append(kept, s)
		}
	}
	return kept
}

// durable tells that all entries of a history up to index can be restored from
// the repository, and no later one. Indexes of another history mean something
// else: what is known is forgotten.
func (r *recoveryPoint) durable(history string, index uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.history != history {
		if r.history != "" {
			r.waiting, r.passed, r.highest = nil, nil, 0
		}
		r.history = history
	}
	for len(r.passed) > 0 && r.passed[len(r.passed)-1].index > index {
		r.passed = r.passed[:len(r.passed)-1]
	}
	n := 0
	for n < len(r.waiting) && r.waiting[n].index <= index {
		n++
	}
	r.passed = append(r.passed, r.waiting[:n]...)
	r.waiting = append(r.waiting[:0], r.waiting[n:]...)
	if len(r.passed) > sampleLimit {
		r.passed = everySecond(r.passed)
	}
	if len(r.waiting) == 0 {
		r.every = sampleEvery
	}
}

// at is up to when everything can be restored; zero where that is not known.
func (r *recoveryPoint) at() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.passed) == 0 {
		return time.Time{}
	}
	return r.passed[len(r.passed)-1].time
}
