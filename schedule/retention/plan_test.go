package retention

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify/report"
)

// days makes a history: each day a backup, and log through the day.
func (r *rig) days(t repository.TimelineID, n int) {
	r.Helper()
	for range n {
		r.full(t)
		for range 4 {
			r.sleep(6 * time.Hour)
			r.log(t, 5)
		}
	}
}

// Promise 1: any point of the last days, and daily ones before; the log from
// before the window goes.
func TestPromise1AnyPoint(t *testing.T) {
	r := newDays(t, 20)
	policy := Policy{AnyPoint: 3 * day, Daily: 10, Grace: day}
	before := r.points(timelineA)
	plan := r.plan(policy)
	if len(plan.Log) != 1 || len(plan.Delete) == 0 || len(plan.Windows) != 1 {
		t.Fatalf("%+v", plan)
	}
	for range 3 { // the second waits for the grace time, the third does all
		r.prune(policy)
		r.sleep(25 * time.Hour)
	}
	after := r.points(timelineA)
	seen := r.read().Timelines[0].Seen
	for _, b := range r.read().Timelines[0].Backups {
		if b.Taken.Before(seen.Add(-policy.AnyPoint)) {
			for i := range before {
				if i < b.Index {
					delete(before, i)
				}
			}
		}
	}
	for i := range before {
		if !after[i] {
			t.Errorf("index %d can not be restored any more", i)
		}
	}
	if got := r.backups(timelineA); len(got) != 10 {
		t.Errorf("%d backups are left, want 10 daily ones", len(got))
	}
	if n := len(r.names("/l0/")); n > 5*4+1 {
		t.Errorf("%d segments are left", n)
	}
	if n := len(r.names("/full/")); n != 20 {
		t.Errorf("%d objects of backups are left, want 20", n)
	}
	if again := r.plan(policy); !again.Empty() {
		t.Errorf("there is more to do: %+v", again)
	}
}

// Without AnyPoint log goes with the full snapshots that it follows.
func TestLogGoesWithItsSnapshots(t *testing.T) {
	r := newDays(t, 10)
	r.prune(Policy{Last: 3})
	if got := len(r.backups(timelineA)); got != 3 {
		t.Errorf("%d backups, want 3", got)
	}
	ranges := r.ranges()
	if len(ranges) != 1 || ranges[0].FirstIndex != 5+7*20 || ranges[0].LastIndex != 5+10*20 {
		t.Errorf("%+v", ranges)
	}
	if n := len(r.names("/l0/")); n != 12 {
		t.Errorf("%d segments, want 12", n)
	}
}

// Promise 2: what never goes.
func TestPromise2Protected(t *testing.T) {
	r := newRig(t)
	var all []string
	pinned, proved := r.full(timelineA), r.fullAt(timelineA, 10)
	r.pin(pinned)
	r.verdict(report.Passed, pinned, proved)
	for i := range 6 {
		r.sleep(day)
		m := r.fullAt(timelineA, uint64(20+i))
		all = append(all, m.ID)
		if i >= 4 {
			r.verdict(report.Damaged, m) // the last two
		}
	}
	r.prune(Policy{Last: 1})
	got := r.backups(timelineA)
	// The newest is damaged: so the newest that is not stays as well, and the
	// newest that was proved.
	if want := []string{pinned.ID, proved.ID, all[3], all[5]}; !slices.Equal(got, want) {
		t.Errorf("left are %v, want %v", got, want)
	}
	reasons := map[string][]string{}
	for _, k := range r.plan(Policy{Last: 1}).Keep {
		reasons[k.Backup] = k.Reasons
	}
	for id, want := range map[string]string{pinned.ID: reasonPinned, proved.ID: reasonProved, all[3]: reasonGood, all[5]: reasonNewest} {
		if !slices.Contains(reasons[id], want) {
			t.Errorf("%s: %v, want %q", id, reasons[id], want)
		}
	}
}

// Promise 2: damage lets nothing go sooner, and takes nobody's place.
func TestPromise2Damaged(t *testing.T) {
	r := newRig(t)
	var all []string
	for i := range 6 {
		m := r.fullAt(timelineA, uint64(10+i))
		all = append(all, m.ID)
		if i == 4 {
			r.verdict(report.Damaged, m)
		}
		r.sleep(day)
	}
	r.prune(Policy{Daily: 3})
	if got, want := r.backups(timelineA), all[2:]; !slices.Equal(got, want) {
		t.Errorf("left are %v, want three good ones and the damaged: %v", got, want)
	}
}

// The rules, each by itself.
func TestRules(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	at := func(s string) time.Time {
		when, err := time.Parse("2006-01-02 15:04", s)
		require.NoError(t, err)
		return when
	}
	for name, c := range map[string]struct {
		policy Policy
		taken  []string // the oldest first
		want   []int
	}{
		"hourly":  {Policy{Hourly: 2}, []string{"2026-01-01 00:10", "2026-01-01 01:10", "2026-01-01 01:50", "2026-01-01 02:10"}, []int{2, 3}},
		"daily":   {Policy{Daily: 2}, []string{"2026-01-01 00:10", "2026-01-01 23:10", "2026-01-03 01:50", "2026-01-03 02:10"}, []int{1, 3}},
		"weekly":  {Policy{Weekly: 2}, []string{"2026-12-27 12:00", "2026-12-28 12:00", "2027-01-03 12:00", "2027-01-04 12:00"}, []int{2, 3}},
		"monthly": {Policy{Monthly: 2}, []string{"2026-01-31 12:00", "2026-03-01 12:00", "2026-03-31 12:00", "2026-04-01 12:00"}, []int{2, 3}},
		"within":  {Policy{Within: 36 * time.Hour}, []string{"2026-01-01 00:10", "2026-01-02 12:00", "2026-01-03 12:00"}, []int{1, 2}},
		// The day begins at 23:00 UTC there.
		"zone": {Policy{Daily: 2, Zone: zone}, []string{"2026-01-01 22:50", "2026-01-01 23:10", "2026-01-02 22:10"}, []int{0, 2}},
		// The hour from 2 to 3 comes twice.
		"summer time": {Policy{Hourly: 3, Zone: zone}, []string{"2026-10-25 00:10", "2026-10-25 00:30", "2026-10-25 01:30", "2026-10-25 02:30"}, []int{1, 2, 3}},
		"none":        {Policy{Minimum: 2}, []string{"2020-01-01 00:00", "2021-01-01 00:00", "2022-01-01 00:00"}, []int{1, 2}},
	} {
		inv := &Inventory{Timelines: []*Timeline{{ID: timelineA}}}
		line := inv.Timelines[0]
		for i, taken := range c.taken {
			line.Backups = append(line.Backups, Backup{Timeline: timelineA, ID: fmt.Sprint(i), Taken: at(taken), Finished: at(taken), Index: uint64(i + 1)})
			line.see(at(taken))
		}
		plan := NewPlan(inv, c.policy, line.Seen.Add(time.Hour))
		var got []int
		for _, k := range plan.Keep {
			i := slices.IndexFunc(line.Backups, func(b Backup) bool { return b.ID == k.Backup })
			got = append(got, i)
		}
		if !slices.Equal(got, c.want) || plan.Refused != "" {
			t.Errorf("%s: kept are %v, want %v (%s)", name, got, c.want, plan.Refused)
		}
	}
}

// A gap within the window: the backup behind it stays, whatever the rules say, and
// the gap's record as long as there is log around it.
func TestPromise1Gap(t *testing.T) {
	r := newRig(t)
	r.days(timelineA, 2)
	r.gap(timelineA, 3)
	behind := r.full(timelineA)
	for range 5 {
		r.sleep(time.Hour)
		r.log(timelineA, 2)
		r.full(timelineA)
	}
	policy := Policy{AnyPoint: 12 * time.Hour, Last: 1}
	before := r.points(timelineA)
	r.prune(policy)
	if !slices.Contains(r.backups(timelineA), behind.ID) {
		t.Errorf("the backup after the gap is gone")
	}
	after := r.points(timelineA)
	for i := range before {
		if i >= 20 && !after[i] {
			t.Errorf("index %d can not be restored any more", i)
		}
	}
	if len(r.names("/gaps/")) != 1 {
		t.Error("the gap's record is gone though there is log on both sides")
	}
	for range 3 {
		r.days(timelineA, 1)
		r.prune(policy)
	}
	if left := r.names("/gaps/"); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// Promise 5: while nothing new is stored, and whatever the planner's clock says,
// nothing goes.
func TestPromise5ClockAhead(t *testing.T) {
	r := newRig(t)
	r.days(timelineA, 10)
	policy := Policy{AnyPoint: 3 * day, Within: 5 * day, Daily: 4}
	r.prune(policy)
	inv := r.read()
	for _, ahead := range []time.Duration{0, day, 10 * 365 * day} {
		if plan := NewPlan(inv, policy, r.place.now.Add(ahead)); !plan.Empty() {
			t.Errorf("%s ahead: %+v", ahead, plan)
		}
	}
}

// A superseded timeline keeps its newest chain for as long as the window, and
// then, at last, one proved backup. Those that go on take over the places of its
// backups in all rules.
func TestSuperseded(t *testing.T) {
	r := newRig(t)
	r.days(timelineA, 5)
	proved := r.full(timelineA)
	r.verdict(report.Passed, proved)
	r.sleep(time.Hour)
	r.log(timelineA, 5)
	end := r.ends[timelineA]
	r.timeline(timelineB)
	r.must(r.repo.Supersede(t.Context(), repository.Superseded{Timeline: timelineA, By: timelineB, Created: r.place.now}))
	policy := Policy{AnyPoint: 3 * day, Daily: 6, Last: 2, Minimum: 2}
	r.days(timelineB, 2)
	r.prune(policy)
	if points := r.points(timelineA); !points[end] {
		t.Error("the end of the superseded timeline is gone already")
	}
	r.days(timelineB, 10)
	r.prune(policy)
	if got := r.backups(timelineA); !slices.Equal(got, []string{proved.ID}) {
		t.Errorf("left are %v, want %s alone", got, proved.ID)
	}
	if left := r.names(timelineA.String() + "/l0/"); len(left) > 0 {
		t.Errorf("left of its log: %v", left)
	}
	if got := len(r.backups(timelineB)); got != 6 {
		t.Errorf("%d backups in the timeline that goes on, want 6", got)
	}
}

// Objects of nobody go after a day by the place's clock; those that a manifest
// names anywhere, and those of a backup that was proved, stay.
func TestLeftovers(t *testing.T) {
	r := newRig(t)
	m := r.full(timelineA)
	r.verdict(report.Passed, m)
	lost := r.full(timelineA)
	r.verdict(report.Passed, lost)
	r.must(r.place.Memory.Delete(t.Context(), repository.ManifestName(timelineA, lost.ID)))
	half := r.newID(r.place.now)
	r.put(repository.SnapshotName(timelineA, half, 1, false), "half")
	late := repository.SnapshotName(timelineA, m.ID, 2, false)
	r.put(late, "late")
	r.sleep(23 * time.Hour)
	r.full(timelineA)
	policy := Policy{Last: 5}
	if plan := r.plan(policy); len(plan.Leftovers) != 0 || len(plan.Later) != 2 || len(plan.Notes) != 1 {
		t.Errorf("%+v", plan)
	}
	r.sleep(2 * time.Hour)
	r.full(timelineA)
	if got := r.prune(policy); got.Objects != 2 {
		t.Errorf("%+v", got)
	}
	if left := append(r.names(half), r.names(late)...); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
	if len(r.names(lost.ID+"/snapshot.zst")) != 1 || len(r.names(m.ID+"/snapshot.zst")) != 1 {
		t.Error("too much is gone")
	}
}

func TestMentions(t *testing.T) {
	body := map[string]any{"attachments": []any{map[string]any{"object": "a/b"}}}
	if !mentions(body, "a/b") || mentions(body, "a/c") {
		t.Error("names in fields that are not known are not found, or others are")
	}
}

// Verdicts go from the beginning, records when nobody misses what they are about.
func TestSweep(t *testing.T) {
	r := newRig(t)
	policy := Policy{Last: 2}
	for range 8 {
		r.verdict(report.Passed, r.full(timelineA))
		r.sleep(10 * day)
		r.prune(policy)
	}
	if got := len(r.names("verdicts/")); got > 5 {
		t.Errorf("%d verdicts are left", got)
	}
	if got := len(r.names("pruned/")); got > 5 {
		t.Errorf("%d records are left", got)
	}
	chain := r.read()
	if !chain.Sound || len(chain.Verdicts) == 0 {
		t.Errorf("the verdicts cannot be read, or are gone: %v", r.names("verdicts/"))
	}
}

// A policy without a rule, a plan for elsewhere, a plan that was refused.
func TestRefused(t *testing.T) {
	r := newRig(t)
	r.days(timelineA, 3)
	for _, p := range []Policy{{}, {Last: -1}, {Last: 1, Grace: -1}, {Grace: day}} {
		plan := NewPlan(r.read(), p, r.place.now)
		if plan.Refused == "" || !plan.Empty() {
			t.Errorf("%+v: %+v", p, plan)
		}
		var refused *RefusedError
		if _, err := Execute(t.Context(), r.repo, plan, Options{}); !errors.As(err, &refused) {
			t.Errorf("%+v: %v", p, err)
		}
	}
	plan := r.plan(Policy{Last: 1})
	plan.Repository = "elsewhere"
	_, err := Execute(t.Context(), r.repo, plan, Options{})
	require.ErrorContains(t, err, "elsewhere")
}

// Promise 1: whatever made a plan, one that would shorten the window is refused.
func TestPromise1Asserted(t *testing.T) {
	r := newRig(t)
	r.days(timelineA, 5)
	inv, policy := r.read(), Policy{AnyPoint: 2 * day, Last: 1}
	for name, spoil := range map[string]func(*Plan){
		"the log":     func(p *Plan) { p.Log = []LogCut{{Timeline: timelineA, Before: r.ends[timelineA]}} },
		"the backups": func(p *Plan) { p.Delete = append(p.Delete, Deletion{Timeline: timelineA, Backup: p.Keep[0].Backup}) },
		"the newest":  func(p *Plan) { p.Delete = []Deletion{{Timeline: timelineA, Backup: p.Keep[len(p.Keep)-1].Backup}} },
	} {
		plan := NewPlan(inv, policy, r.place.now)
		require.NoError(t, plan.holds(inv))
		spoil(plan)
		if err := plan.holds(inv); err == nil || !strings.Contains(err.Error(), "would break a promise") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A damaged marker, and what a newer version wrote: nothing is pruned beside it.
func TestRefusesToRead(t *testing.T) {
	r := newRig(t)
	m := r.full(timelineA)
	r.must(r.place.Memory.Delete(t.Context(), "requorum.json"))
	repo, err := repository.Open(t.Context(), r.place)
	r.must(err)
	_, err = Read(t.Context(), repo, r.place.now)
	require.ErrorContains(t, err, "marker")
	r.must(r.place.Memory.Delete(t.Context(), repository.ManifestName(timelineA, m.ID)))
	r.must(r.repo.WriteDocument(t.Context(), repository.ManifestName(timelineA, m.ID), map[string]any{"format": 2, "kind": "full"}))
	_, err = Read(t.Context(), r.repo, r.place.now)
	require.ErrorContains(t, err, "format 2")
}

var _ sinks.Sink = (*place)(nil)

// Each number of a policy is one of its counts: one that is not would be accepted and
// keep nothing.
func TestCountsAreWhole(t *testing.T) {
	p := &Policy{}
	counts := p.Counts()
	for i := range reflect.TypeFor[Policy]().NumField() {
		n, ok := reflect.ValueOf(p).Elem().Field(i).Addr().Interface().(*int)
		if ok && !slices.ContainsFunc(counts, func(c Count) bool { return c.N == n }) {
			t.Errorf("%s is no count", reflect.TypeFor[Policy]().Field(i).Name)
		}
	}
}

// What jobs leave goes by the repository's clock: never a job's newest results.
func TestSweepJobs(t *testing.T) {
	r := newRig(t)
	r.full(timelineA)
	begun := r.place.now
	slot := func(n int) string { return repository.SlotName(begun.AddDate(0, 0, n)) }
	result := func(slot string) string { return repository.JobName{Job: "full", Slot: slot}.String() }
	for n := range 10 {
		r.put(result(slot(n)), "x")
		r.put(repository.JobName{Job: "full", Slot: slot(n), Kind: repository.JobBegun, Attempt: 1}.String(), "x")
	}
	failed, demanded := repository.JobName{Job: "full", Slot: slot(3), Kind: repository.JobFailed}.String(), result(slot(1)+"-demand-3f9a2c")
	for _, name := range []string{failed, demanded, result(slot(1000))} {
		r.put(name, "x")
	}
	if s := r.plan(Policy{Last: 1}).Sweep; s.count() != 0 {
		t.Errorf("they go before their time: %+v", s)
	}
	r.sleep(resultsAfter + day)
	r.put("scratch/x", "x") // by which the repository's clock is known
	r.prune(Policy{Last: 1})
	want := []string{result(slot(7)), result(slot(8)), result(slot(9)), failed, demanded}
	slices.Sort(want)
	if got := r.names("jobs/"); !slices.Equal(got, want) {
		t.Errorf("left of results: %v, want %v", got, want)
	}
}
