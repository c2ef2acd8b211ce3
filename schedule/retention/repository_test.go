package retention

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// TestPropertyRepository does to real repositories what TestPropertyRetention
// does to an inventory: weeks of segments of all lengths, backups in the middle of
// them, gaps, merged levels left out. The code that restores says what can be
// restored before and after, and the code that lists that all listed is whole.
func TestPropertyRepository(t *testing.T) {
	cuts, backups := 0, 0
	seeds := []uint64{0, 1, 2, 3, 4, 5}
	if testing.Short() {
		seeds = seeds[3:]
	}
	for _, seed := range seeds {
		r, random := newRig(t), rand.New(rand.NewPCG(seed, 2))
		policy := Policy{Last: 1 + random.IntN(4), Daily: random.IntN(6), AnyPoint: time.Duration(random.IntN(5)) * day, Grace: time.Duration(random.IntN(30)) * time.Hour}
		times := map[uint64]time.Time{}
		var last *snapshot.Manifest
		for range 25 {
			for range 1 + random.IntN(4) {
				r.sleep(time.Duration(1+random.IntN(8)) * time.Hour)
				from := r.ends[timelineA]
				if random.IntN(15) == 0 && from > 0 {
					r.gap(timelineA, 1+random.IntN(3))
				}
				r.log(timelineA, 1+random.IntN(4))
				end := r.ends[timelineA]
				for i := from + 1; i <= end; i++ {
					times[i] = r.place.now
				}
				if random.IntN(2) == 0 { // in the middle of a segment
					last = r.fullAt(timelineA, end-uint64(random.IntN(int(min(3, end)))))
				}
				if last != nil && random.IntN(6) == 0 {
					r.verdict(report.Passed, last)
				}
				if random.IntN(9) == 0 {
					r.mark(timelineA)
				}
			}
			before, seen := r.points(timelineA), r.read().Timelines[0].Seen
			got := r.prune(policy)
			cuts, backups = cuts+got.Segments, backups+got.Backups
			after := r.points(timelineA)
			newest := uint64(0)
			for i := range before {
				newest = max(newest, i)
				if policy.AnyPoint > 0 && times[i].After(seen.Add(-policy.AnyPoint)) && !after[i] {
					t.Fatalf("seed %d, %+v: index %d of %s can not be restored any more", seed, policy, i, times[i])
				}
			}
			if newest > 0 && !after[newest] {
				t.Fatalf("seed %d, %+v: the newest point, index %d, can not be restored any more", seed, policy, newest)
			}
			r.backups(timelineA)
		}
	}
	if n := len(seeds); cuts < 16*n || backups < 8*n {
		t.Errorf("%d segments and %d backups went: too little was tried", cuts, backups)
	}
}

// Promise 5: one observation from a clock that is ahead does not move the window.
func TestPromise5WriterAhead(t *testing.T) {
	r := newRig(t)
	r.days(timelineA, 6)
	policy := Policy{AnyPoint: 2 * day, Within: 3 * day}
	want := r.plan(policy)
	now := r.place.now
	r.place.now = now.Add(365 * day)
	r.mark(timelineA)
	r.place.now = now
	r.place.times = map[string]time.Time{}
	got := NewPlan(r.read(), policy, now)
	if len(want.Delete) == 0 || !slices.Equal(got.Delete, want.Delete) || !slices.Equal(got.Log, want.Log) {
		t.Errorf("got %+v %+v, want %+v %+v", got.Delete, got.Log, want.Delete, want.Log)
	}
}

// A segment that holds the entry right behind the oldest needed backup stays.
func TestSegmentBehindTheCut(t *testing.T) {
	r := newRig(t)
	for range 8 {
		r.log(timelineA, 1)
		r.sleep(time.Hour)
	}
	m := r.fullAt(timelineA, 5)
	r.prune(Policy{Last: 1})
	ranges := r.ranges()
	if len(ranges) != 1 || ranges[0].FirstBackup != m.ID || ranges[0].LastIndex != 8 || len(r.names("/l0/")) != 3 {
		t.Errorf("%+v, %v", ranges, r.names("/l0/"))
	}
}

// What a restore needs that began before its backup was pruned stays for the
// grace time.
func TestGrace(t *testing.T) {
	r := newRig(t)
	for range 4 {
		r.log(timelineA, 2)
		r.sleep(time.Hour)
		r.full(timelineA)
	}
	policy := Policy{Last: 1, Grace: day}
	objects, log := len(r.names("/snapshot.zst")), len(r.names("/l0/"))
	r.prune(policy)
	for range 2 {
		if got := len(r.backups(timelineA)); got != 1 {
			t.Errorf("%d backups are listed", got)
		}
		// Before the oldest that was pruned nothing is left to restore.
		if len(r.names("/snapshot.zst")) != objects || len(r.names("/l0/")) != log-1 {
			t.Errorf("left are %v, %v", r.names("/snapshot.zst"), r.names("/l0/"))
		}
		r.sleep(11 * time.Hour)
		r.prune(policy)
	}
	r.sleep(3 * time.Hour)
	r.prune(policy)
	if len(r.names("/snapshot.zst")) != 1 || len(r.names("/l0/")) > 0 {
		t.Errorf("left are %v, %v", r.names("/snapshot.zst"), r.names("/l0/"))
	}
}
