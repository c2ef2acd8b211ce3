package retention

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify/report"
)

// Promise 4: the power goes at every single call. Whatever call it was, no backup
// is listed that cannot be restored, no promised point is lost, every backup that
// is gone is on record; and the next runs come to the same end.
func TestPromise4KilledAnywhere(t *testing.T) {
	r := newDays(t, 4)
	r.gap(timelineA, 3)
	r.days(timelineA, 3)
	r.mark(timelineA)
	r.verdict(report.Passed, r.full(timelineA))
	r.put(repository.SnapshotName(timelineA, r.newID(r.place.now), 1, false), "half")
	policy := Policy{AnyPoint: day, Last: 2, Grace: time.Hour}
	r.sleep(25 * time.Hour)
	r.log(timelineA, 5)
	r.prune(policy) // what it prunes waits for the grace time
	r.sleep(2 * time.Hour)
	r.log(timelineA, 5)
	r.full(timelineA)

	promised := r.points(timelineA)
	after := r.on(r.place.clone(t))
	after.prune(policy)
	begin := after.read().Timelines[0].Seen.Add(-policy.AnyPoint)
	var from uint64
	for _, b := range r.read().Timelines[0].Backups {
		if !b.Finished.After(begin) {
			from = b.Index
		}
	}
	want := settled(after, policy)
	whole := r.on(r.place.clone(t))
	whole.place.calls = 0
	whole.prune(policy)
	calls := whole.place.calls
	if calls < 50 || from == 0 || len(r.backups(timelineA)) == len(after.backups(timelineA)) {
		t.Fatalf("%d calls, window from %d: too little to see", calls, from)
	}
	killed := 0
	for k := 1; k <= calls; k++ {
		one := r.on(r.place.clone(t))
		plan := one.plan(policy)
		one.place.cutAt = k
		if _, err := Execute(t.Context(), one.repo, plan, Options{}); err != nil {
			killed++
		}
		one.place.dead, one.place.cutAt = false, 0
		left := one.points(timelineA)
		for i := range promised {
			if i >= from && !left[i] {
				t.Fatalf("killed at call %d: index %d can not be restored any more", k, i)
			}
		}
		if before, now := r.read().Timelines[0].Coverage, one.read().Timelines[0].Coverage; len(now) > len(before) {
			t.Fatalf("killed at call %d: the log has holes: %v, was %v", k, now, before)
		}
		listed, pruned := one.backups(timelineA), one.names("pruned/")
		for _, id := range r.backups(timelineA) {
			if !slices.Contains(listed, id) && !slices.Contains(pruned, repository.PrunedName(timelineA, id)) {
				t.Fatalf("killed at call %d: backup %s is gone without a record", k, id)
			}
		}
		if got := settled(one, policy); got != want {
			t.Fatalf("killed at call %d: the next runs come to\n%s\nnot to\n%s", k, got, want)
		}
	}
	if killed < calls*2/3 {
		t.Errorf("only %d of %d runs were killed", killed, calls)
	}
}

// settled prunes until nothing is left to do, and says what stays.
func settled(r *rig, policy Policy) string {
	r.Helper()
	for range 4 {
		r.prune(policy)
		r.sleep(2 * time.Hour)
	}
	if plan := r.plan(policy); len(plan.Delete)+len(plan.Log)+len(plan.Leftovers) > 0 {
		r.Fatalf("there is always more to do: %+v", plan)
	}
	return strings.Join(append(r.names("/full/"), append(r.names("/l0/"), r.names("/gaps/")...)...), "\n")
}

// Promise 3: what was pinned since the plan was made stays, also where that
// happens after the records were written; and its record is taken back.
func TestPromise3PinnedMeanwhile(t *testing.T) {
	r := newRig(t)
	var all []string
	first := r.full(timelineA)
	r.sleep(time.Hour)
	second := r.fullAt(timelineA, 10)
	r.sleep(time.Hour)
	for i := range 3 {
		all = append(all, r.fullAt(timelineA, uint64(20+i)).ID)
		r.sleep(time.Hour)
	}
	plan := r.plan(Policy{Last: 3})
	r.pin(first)
	pinned := false
	r.place.before = func(name string) {
		// The scratch object is deleted before the second look, the record of the
		// interrupted run here after it and before the pins are listed.
		if strings.HasPrefix(name, "pruned/") && !pinned {
			pinned = true
			r.pin(second)
		}
	}
	r.must(r.repo.RecordPruned(t.Context(), repository.Pruned{Timeline: timelineA, Backup: second.ID, Reason: "interrupted"}))
	result, err := Execute(t.Context(), r.repo, plan, Options{})
	r.must(err)
	if !pinned || len(result.Spared) != 2 || result.Backups != 0 {
		t.Errorf("%+v", result)
	}
	if got, want := r.backups(timelineA), append([]string{first.ID, second.ID}, all...); !slices.Equal(got, want) {
		t.Errorf("left are %v, want %v", got, want)
	}
	if left := r.names("pruned/"); len(left) > 0 {
		t.Errorf("%v would hide a loss", left)
	}
}

// Promise 3: what a plan relied on is gone or damaged since.
func TestPromise3ChangedMeanwhile(t *testing.T) {
	r := newRig(t)
	old := r.full(timelineA)
	r.sleep(time.Hour)
	relied := r.fullAt(timelineA, 10)
	r.sleep(time.Hour)
	last := r.fullAt(timelineA, 20)
	plan := r.plan(Policy{Last: 2})
	r.verdict(report.Damaged, relied)
	result, err := Execute(t.Context(), r.repo, plan, Options{})
	r.must(err)
	if got := r.backups(timelineA); len(got) != 3 || len(result.Spared) != 1 || result.Spared[0].Backup != old.ID {
		t.Errorf("left are %v: %+v", got, result)
	}
	// A new backup makes a plan no larger.
	plan = r.plan(Policy{Last: 2})
	r.sleep(time.Hour)
	r.fullAt(timelineA, 30)
	_, err = Execute(t.Context(), r.repo, plan, Options{})
	r.must(err)
	if got := r.backups(timelineA); !slices.Contains(got, last.ID) || len(got) != 4 {
		t.Errorf("left are %v", got)
	}
}

// What is locked is left for later, and is no error; when the lock has ended it
// goes. A lock that nobody reported is found when the object is to go.
func TestLocked(t *testing.T) {
	r := newRig(t)
	locked, held := r.full(timelineA), r.fullAt(timelineA, 2)
	until := r.place.now.Add(10 * day)
	r.place.locked[repository.ManifestName(timelineA, locked.ID)] = until
	r.sleep(time.Hour)
	r.fullAt(timelineA, 10)
	policy := Policy{Last: 1}
	plan := r.plan(policy)
	if len(plan.Later) != 1 || !plan.Later[0].Until.Equal(until) || len(plan.Delete) != 1 {
		t.Errorf("%+v", plan)
	}
	r.place.locked[repository.ManifestName(timelineA, held.ID)] = until
	result, err := Execute(t.Context(), r.repo, plan, Options{})
	r.must(err)
	if result.Backups != 0 {
		t.Errorf("%+v", result)
	}
	if got := r.backups(timelineA); len(got) != 3 {
		t.Errorf("left are %v", got)
	}
	r.sleep(11 * day)
	r.fullAt(timelineA, 11)
	r.prune(policy)
	if got := r.backups(timelineA); len(got) != 1 {
		t.Errorf("left are %v", got)
	}
}

// Deletions are few: of a year that is pruned each day, each object goes once.
func TestFewCalls(t *testing.T) {
	r := newRig(t)
	policy := Policy{AnyPoint: 3 * day, Daily: 5, Monthly: 3}
	deleted := map[string]int{}
	r.place.before = func(name string) { deleted[name]++ }
	for range 60 {
		r.days(timelineA, 1)
		r.prune(policy)
	}
	for name, n := range deleted {
		if n > 1 {
			t.Errorf("%s was deleted %d times", name, n)
		}
	}
	if left := len(r.names("")); left > 150 {
		t.Errorf("%d objects are left", left)
	}
	if deleted[""] > 0 || len(deleted) < 60 {
		t.Errorf("%d objects were deleted", len(deleted))
	}
}
