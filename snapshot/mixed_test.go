package snapshot_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

// Promise 6: with a timeline of another cluster than the one that answers nothing
// is stored: there, or anywhere else.
func TestPromise6TimelineOfAnotherCluster(t *testing.T) {
	s := newSource(t, 1)
	d := newDisk(t)
	repo, err := repository.Init(t.Context(), d, time.Now())
	require.NoError(t, err)
	other := repository.TimelineID{ClusterID: s.cluster.Members()[0].ClusterID() + 1, N: 1}
	require.NoError(t, repo.OpenTimeline(t.Context(), repository.Timeline{ID: other}))
	before := len(objects(t, d))
	_, err = s.take(t, snapshot.Request{Sink: d, Timeline: other})
	require.ErrorContains(t, err, "name the endpoints of that cluster")
	if after := objects(t, d); len(after) != before {
		t.Errorf("stored: %q", after)
	}
}

// Promise 6: a backup whose snapshot is of another cluster than its timeline is
// damaged to whoever looks for one. Manifests of older versions name no cluster.
func TestPromise6BackupOfAnotherCluster(t *testing.T) {
	s, d, m := newTaken(t)
	if got := uint64(m.Source.ClusterID); got == 0 || got != m.Timeline.ClusterID || got != s.cluster.Members()[0].ClusterID() {
		t.Fatalf("the manifest says cluster %s, in timeline %s", m.Source.ClusterID, m.Timeline)
	}
	repo, err := repository.Open(t.Context(), d)
	require.NoError(t, err)
	for id, cluster := range map[string]snapshot.ID{"20990102T020000Z-000001": 0, "20990102T020000Z-000002": m.Source.ClusterID + 1} {
		m.ID, m.Source.ClusterID, m.Object.Name = id, cluster, repository.SnapshotName(m.Timeline, id, 1, false)
		_, err = sinks.Put(t.Context(), d, m.Object.Name, make([]byte, m.Object.StoredSize), sinks.CreateOptions{})
		require.NoError(t, err)
		require.NoError(t, repo.WriteDocument(t.Context(), repository.ManifestName(m.Timeline, id), m))
	}
	c := catalogOf(t, d)
	if len(c.Manifests) != 2 || len(c.Damaged) != 1 || c.Damaged[0].ID != "20990102T020000Z-000002" {
		t.Fatalf("backups %+v, damaged %+v", c.Manifests, c.Damaged)
	}
	var damaged *snapshot.Unusable
	if _, err := c.Find("20990102T020000Z-000002", ""); !errors.As(err, &damaged) || !strings.Contains(err.Error(), "of another one") {
		t.Errorf("got %v", err)
	}
}

func objects(t *testing.T, s sinks.Sink) (names []string) {
	t.Helper()
	for o, err := range s.List(t.Context(), "", "") {
		require.NoError(t, err)
		names = append(names, o.Name)
	}
	return names
}
