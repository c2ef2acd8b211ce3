package walreplay

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/signing"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
)

// What was seen of a repository is compared with what it holds, and nothing else is.
func TestReached(t *testing.T) {
	dir := t.TempDir()
	keys := sinktest.NewKeys(t)
	place := sinktest.NewMemory()
	repo, err := repository.Init(t.Context(), repository.WithKeys(place, keys), clockStart)
	require.NoError(t, err)
	w := story(t)
	w.repo = repo
	other := repository.TimelineID{ClusterID: w.id.ClusterID, N: w.id.N + 1}
	for _, id := range []repository.TimelineID{w.id, other} {
		require.NoError(t, repo.OpenTimeline(t.Context(), repository.Timeline{ID: id, Created: clockStart, Reason: "first"}))
	}
	w.archive(2, 5, true)

	var unkept error
	m := &signing.Memory{Dir: filepath.Join(dir, "state", "seen"), Unkept: func(err error) { unkept = err }}
	keys.Memory = m
	repo, err = repository.Open(t.Context(), repository.WithKeys(place, keys))
	require.NoError(t, err)
	file := filepath.Join(m.Dir, repo.ID()+".json")
	check := func(repo *repository.Repository, timelines ...repository.TimelineID) error {
		t.Helper()
		all, err := ReadInventory(t.Context(), repo)
		require.NoError(t, err)
		return all.CheckReached(t.Context(), timelines...)
	}
	remembers := func(index uint64) {
		t.Helper()
		all, err := readReached(file)
		require.NoError(t, err)
		require.Equal(t, index, all[w.id].Index)
	}
	remember := func(all map[repository.TimelineID]reached) {
		t.Helper()
		require.NoError(t, writeReached(file, all))
	}
	less := func(is uint64, timelines ...repository.TimelineID) {
		t.Helper()
		before, err := os.ReadFile(file)
		require.NoError(t, err)
		var less *RolledBackError
		if err := check(repo, timelines...); !errors.As(err, &less) || less.Is != is || less.File != file {
			t.Fatalf("error %v, want an end at %d", err, is)
		}
		after, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, before, after)
	}

	unchecked, err := repository.Open(t.Context(), repository.WithKeys(place, signing.Keys{Memory: m}))
	require.NoError(t, err)
	require.NoError(t, check(unchecked, w.id))
	require.NoFileExists(t, file)
	require.NoError(t, check(repo, w.id))
	remembers(5)
	w.archive(6, 9, false)
	require.NoError(t, check(repo, w.id))
	remembers(9)
	// What is in the clear behind an encrypted full snapshot is refused, and hides nothing that
	// was deleted.
	encrypted := &snapshot.Manifest{Timeline: w.id, ID: "encrypted", Facts: snapshot.Facts{RaftIndex: 7}}
	encrypted.Object.Codecs = []string{codec.Age}
	plain := &snapshot.Manifest{Timeline: w.id, ID: "plain", Facts: snapshot.Facts{RaftIndex: 8}}
	catalog := &snapshot.Catalog{Manifests: []*snapshot.Manifest{encrypted, plain}, EncryptedSince: map[repository.TimelineID]*snapshot.Manifest{w.id: encrypted}}
	end, err := NewInventory(repo, catalog).end(t.Context(), w.id)
	require.NoError(t, err)
	require.Equal(t, uint64(7), end)
	// What comes after a gap does not make up for what is missing there.
	w.archive(11, 12, true)
	require.NoError(t, check(repo, w.id))
	remembers(9)

	remember(map[repository.TimelineID]reached{w.id: {10, clockStart}, other: {}})
	less(9, w.id)
	// Another timeline is none of it.
	require.NoError(t, check(repo, other))
	// One that is gone is missed where it was the last that grew.
	gone := repository.TimelineID{ClusterID: 0xdead, N: 1}
	remember(map[repository.TimelineID]reached{w.id: {9, clockStart}, gone: {7, clockStart.Add(time.Hour)}})
	less(0, w.id)
	remember(map[repository.TimelineID]reached{w.id: {9, clockStart.Add(time.Hour)}, gone: {7, clockStart}})
	require.NoError(t, check(repo, w.id))

	// Taken as it is, and remembered so.
	remember(map[repository.TimelineID]reached{w.id: {10, clockStart}, gone: {7, clockStart.Add(time.Hour)}})
	m.Allow = true
	require.NoError(t, check(repo, w.id))
	remembers(9)
	m.Allow = false
	require.NoError(t, check(repo, w.id))

	// The end of one that was superseded may have been pruned.
	remember(map[repository.TimelineID]reached{w.id: {10, clockStart}})
	less(9, w.id)
	require.NoError(t, repo.Supersede(t.Context(), repository.Superseded{Timeline: w.id, By: other, Reason: "it was recovered", Created: clockStart}))
	require.NoError(t, check(repo, w.id))

	// What cannot be kept stops nobody.
	require.NoError(t, os.RemoveAll(m.Dir))
	require.NoError(t, os.WriteFile(m.Dir, nil, 0o600))
	m.Allow = true // what stands there is no folder to read from either
	require.NoError(t, check(repo, w.id))
	require.ErrorContains(t, unkept, "is not remembered")
}

// The ID that a repository gives itself names no file elsewhere.
func TestReached_IDOfTheRepository(t *testing.T) {
	dir := t.TempDir()
	keys := sinktest.NewKeys(t)
	for _, id := range []string{"../../victim", "a/b", "zz", "", "."} {
		place := sinktest.NewMemory()
		data, err := repository.Seal(repository.Marker{Format: repository.Format, ID: id, Created: clockStart})
		require.NoError(t, err)
		_, err = sinks.Put(t.Context(), place, repository.MarkerName, data, sinks.CreateOptions{})
		require.NoError(t, err)
		keys.Memory = &signing.Memory{Dir: filepath.Join(dir, "a", "b")}
		repo, err := repository.Open(t.Context(), repository.WithKeys(place, keys))
		require.NoError(t, err)
		require.ErrorContains(t, NewInventory(repo, &snapshot.Catalog{}).CheckReached(t.Context()), "which requorum writes nowhere")
	}
}
