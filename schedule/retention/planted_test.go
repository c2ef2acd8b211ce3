package retention

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/logtest"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// plant stores a full snapshot as somebody else may who can add objects.
func (r *rig) plant(index uint64, taken time.Time, encrypted bool) *snapshot.Manifest {
	r.Helper()
	return r.store(timelineA, index, taken, encrypted)
}

// keeps fails if a plan deletes one of the genuine backups.
func (p *Plan) keeps(t *testing.T, own []string, about ...any) {
	t.Helper()
	for _, d := range p.Delete {
		require.NotContains(t, own, d.Backup, about...)
	}
}

// audited is a policy with every kind of rule.
var audited = Policy{AnyPoint: 7 * day, Daily: 35, Weekly: 8, Monthly: 12, Minimum: 3, Last: 3}

// Ten daily backups stay, although somebody has added ten of a later state that say they
// are of the same days, and a verifier has proved them: these were stored today.
func TestBackDated(t *testing.T) {
	r := newRig(t)
	r.log(timelineA, 1)
	var own []string
	for range 10 {
		m := r.full(timelineA)
		own = append(own, m.ID)
		r.verdict(report.Passed, m)
		r.sleep(day)
		r.log(timelineA, 1)
	}
	require.Empty(t, r.plan(audited).Delete)
	for i := range 10 {
		r.verdict(report.Passed, r.plant(1000+uint64(i), dawn.Add(time.Duration(i)*day+8*time.Hour), false))
	}
	r.plan(audited).keeps(t, own, "a genuine one goes")
	// Nor where only the newest are kept, nor the log after them.
	for _, p := range []Policy{{Last: 10}, {Daily: 10}, {AnyPoint: 7 * day}} {
		plan := r.plan(p)
		if p.AnyPoint == 0 {
			plan.keeps(t, own, "%+v", p)
		}
		before := r.on(r.place.clone(t))
		points := before.points(timelineA)
		_, err := Execute(t.Context(), before.repo, before.plan(p), Options{Confirm: plan.Confirm})
		require.NoError(t, err)
		after := before.points(timelineA)
		for index := uint64(4); index <= 11; index++ { // of the last seven days
			require.Equal(t, points[index], after[index], "index %d with %+v", index, p)
		}
	}
}

// A repository that was copied elsewhere was stored late as a whole, and is pruned there as
// it was before.
func TestCopiedRepositoryIsPruned(t *testing.T) {
	r := newRig(t)
	for range 10 {
		r.verdict(report.Passed, r.full(timelineA))
		r.ends[timelineA]++
		r.sleep(day)
	}
	was := r.plan(Policy{Last: 4})
	to := newPlace(r.place.now.Add(day))
	for o, err := range r.place.List(t.Context(), "", "") {
		require.NoError(t, err)
		data, err := sinks.Get(t.Context(), r.place, o.Name, 1<<20)
		require.NoError(t, err)
		_, err = sinks.Put(t.Context(), to, o.Name, data, sinks.CreateOptions{})
		require.NoError(t, err)
	}
	ids := func(p *Plan) (all []string) {
		for _, d := range p.Delete {
			all = append(all, d.Backup)
		}
		return all
	}
	copied := r.on(to)
	require.Len(t, ids(was), 6)
	require.Equal(t, ids(was), ids(copied.plan(Policy{Last: 4})))
	copied.full(timelineA)
	require.Len(t, ids(copied.plan(Policy{Last: 4})), 7)
}

// What is in the clear in a timeline with older backups that are encrypted takes nobody's
// place, neither full snapshots nor log, and the plan names it.
func TestPlantedInTheClear(t *testing.T) {
	r := newRig(t)
	var own []string
	for i := range 4 {
		m := r.plant(uint64(10*i+11), r.place.now, true)
		own = append(own, m.ID)
		r.verdict(report.Passed, m)
		r.sleep(day)
	}
	before := r.plant(1, dawn.Add(-time.Hour), false) // of before there was encryption
	for i := range 4 {
		r.verdict(report.Passed, r.plant(1000+uint64(i), r.place.now, false))
	}
	b := segment.Batch{}
	for i := range uint64(2000) {
		b.Entries = append(b.Entries, raftlog.Entry{Index: 2 + i, Term: 2, Data: []byte("x")})
	}
	unsigned, err := repository.Open(t.Context(), r.place)
	require.NoError(t, err)
	logtest.Archive(t, unsigned, timelineA, raftlog.Sum{}, b, r.place.now, codec.Options{})

	inv := r.read()
	require.Empty(t, inv.Timelines[0].Coverage)
	for _, b := range inv.Timelines[0].Backups {
		require.Equal(t, slices.Contains(own, b.ID) || b.ID == before.ID, b.good(), b.ID)
	}
	for _, p := range []Policy{{Last: 4}, {AnyPoint: 30 * day}} {
		plan := r.plan(p)
		plan.keeps(t, own)
		require.Contains(t, fmt.Sprint(plan.Notes), "is not encrypted, though older full snapshots there are, such as "+own[0])
		require.Contains(t, fmt.Sprint(plan.Notes), "find out who made it, then remove it")
	}
}

// Without trust, somebody who adds one encrypted full snapshot below all that are in the
// clear, and there were none, has nothing of these deleted: they count for nothing, and stay.
func TestPlantedBelowTheClear(t *testing.T) {
	r := newRig(t)
	var own []string
	for i := range 8 {
		m := r.plant(uint64(10*i+11), r.place.now, false)
		own = append(own, m.ID)
		r.verdict(report.Passed, m)
		r.sleep(day)
	}
	require.Equal(t, 7, r.plan(Policy{Last: 1}).Confirm)
	r.plant(1, dawn.Add(-time.Hour), true)
	for _, p := range []Policy{{Last: 1}, {Hourly: 24, Daily: 35}, {AnyPoint: day}} {
		plan := r.plan(p)
		plan.keeps(t, own)
		require.Contains(t, fmt.Sprint(plan.Notes), "find out who made it, then remove it")
	}
}
