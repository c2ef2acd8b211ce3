package retention

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// More than a third of what is proved, and more than two, goes at once only where
// somebody has seen how many.
func TestConfirm(t *testing.T) {
	for _, c := range []struct{ proved, last, confirm int }{{6, 1, 5}, {9, 6, 0}, {9, 5, 4}, {3, 1, 0}, {0, 1, 0}} {
		r := newRig(t)
		const backups = 9
		for i := range backups {
			m := r.fullAt(timelineA, uint64(10*i+1))
			if i >= backups-c.proved {
				r.verdict(report.Passed, m)
			}
			r.sleep(day)
		}
		plan := r.plan(Policy{Last: c.last})
		require.Equal(t, c.confirm, plan.Confirm, "%+v", c)
		if c.confirm == 0 {
			_, err := Execute(t.Context(), r.repo, plan, Options{})
			require.NoError(t, err)
			require.Len(t, r.backups(timelineA), c.last)
			continue
		}
		for _, given := range []int{0, c.confirm - 1, c.confirm + 1} {
			_, err := Execute(t.Context(), r.repo, plan, Options{Confirm: given})
			var refused *RefusedError
			require.ErrorAs(t, err, &refused)
			require.ErrorContains(t, err, "--confirm")
			require.Len(t, r.backups(timelineA), backups)
		}
		_, err := Execute(t.Context(), r.repo, plan, Options{Confirm: c.confirm})
		require.NoError(t, err)
		require.Len(t, r.backups(timelineA), c.last)
	}
}

// A record that somebody else wrote is not believed, and keeps nobody from pruning.
func TestForeignRecord(t *testing.T) {
	r := newRig(t)
	foreign := r.repo
	var err error
	r.repo, err = repository.Open(t.Context(), repository.WithKeys(r.place, sinktest.NewKeys(t)))
	require.NoError(t, err)
	r.timeline(timelineB)
	first := r.fullAt(timelineB, 1)
	require.NoError(t, foreign.RecordPruned(t.Context(), repository.Pruned{Timeline: timelineB, Backup: first.ID, Created: r.place.now}))
	r.sleep(day)
	last := r.fullAt(timelineB, 2)
	r.prune(Policy{Last: 1})
	require.Equal(t, []string{last.ID}, r.backups(timelineB))
	record, err := r.repo.ReadPruned(t.Context(), repository.PrunedName(timelineB, first.ID))
	require.NoError(t, err)
	require.Equal(t, "no rule keeps it", record.Reason)
}

// No backup is later than its manifest was stored, whatever that says: it would take the
// place of those that are.
func TestClockOfManifest(t *testing.T) {
	r := newRig(t)
	m := r.fullAt(timelineA, 1)
	m.ID, m.Started, m.Finished = "20270101T120000Z-00ffff", r.place.now.AddDate(1, 0, 0), r.place.now.AddDate(1, 0, 0)
	m.Object.Name = repository.SnapshotName(timelineA, m.ID, 1, false)
	r.put(m.Object.Name, "x")
	require.NoError(t, r.repo.WriteDocument(t.Context(), repository.ManifestName(timelineA, m.ID), m))
	_, err := snapshot.ReadManifest(t.Context(), r.repo, timelineA, m.ID)
	require.NoError(t, err)
	for _, b := range r.read().Timelines[0].Backups {
		require.False(t, b.Taken.After(r.place.now.Add(clockMargin)) || b.Finished.After(r.place.now.Add(clockMargin)), "%s of %s", b.ID, b.Taken)
	}
}
