package walreplay

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// A second look at the ranges finds what is new, and reads only that.
func TestArchivesLookAgain(t *testing.T) {
	w := story(t)
	w.archive(2, 5, true)
	w.archive(8, 11, true, 11)
	const backup = "20260101T000000Z-aaaaaa"
	_, err := w.repo.EnsureTimeline(t.Context(), repository.Timeline{ID: w.id, Created: clockStart, Reason: "first"})
	require.NoError(t, err)
	w.store(w.id, backup, 3)
	catalog, err := snapshot.ReadCatalog(t.Context(), w.repo)
	if err != nil || len(catalog.Manifests) != 1 {
		t.Fatal(catalog, err)
	}
	counted := sinktest.NewFaulty(w.repo.Sink())
	repo, err := repository.Open(t.Context(), counted)
	require.NoError(t, err)
	again := NewInventory(repo, catalog)
	look := func() (requests int) {
		t.Helper()
		before := counted.Calls(sinktest.Open)
		got, err := again.Ranges(t.Context())
		require.NoError(t, err)
		requests = counted.Calls(sinktest.Open) - before
		want, err := NewInventory(w.repo, catalog).Ranges(t.Context())
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v (%v)", got, want, err)
		}
		return requests
	}
	first := look()
	size := again.Size()
	if n := look(); n >= first || first < 2 {
		t.Errorf("%d reads for a second look, %d for the first", n, first)
	}
	w.archive(12, 12, false)
	if n := look(); n == 0 || n >= first {
		t.Errorf("%d reads for one new segment, %d for the first look", n, first)
	}
	if now := again.Size(); size == 0 || now <= size {
		t.Errorf("%d bytes of log, then %d", size, now)
	}
}

// What is behind an index is counted once, also where merged segments repeat it.
func TestArchivesSince(t *testing.T) {
	w := story(t)
	w.archive(2, 5, true)
	w.archive(6, 9, false)
	w.archive(10, 12, false)
	_, err := w.repo.EnsureTimeline(t.Context(), repository.Timeline{ID: w.id, Created: clockStart, Reason: "first"})
	require.NoError(t, err)
	w.store(w.id, "20260101T000000Z-aaaaaa", 3)
	a := NewInventory(w.repo, nil)
	if bytes, entries := a.Since(w.id, 3); bytes != 0 || entries != 0 {
		t.Errorf("before a look: %d bytes, %d entries", bytes, entries)
	}
	look := func() {
		t.Helper()
		require.NoError(t, a.Refresh(t.Context()))
		_, err = a.Ranges(t.Context())
		require.NoError(t, err)
	}
	look()
	var before int64
	for index, want := range map[uint64]uint64{1: 11, 3: 9, 5: 7, 9: 3, 12: 0, 100: 0} {
		bytes, entries := a.Since(w.id, index)
		if entries != want || (bytes == 0) != (want == 0) || bytes > a.Size() {
			t.Errorf("behind %d: %d bytes, %d entries, want %d", index, bytes, entries, want)
		}
		if index == 1 {
			before = bytes
		}
	}
	if before != a.Size() {
		t.Errorf("behind the beginning: %d bytes of %d", before, a.Size())
	}
	// A merged segment beside those that it was made of is what a restore reads.
	merged := segment.Batch{Entries: w.entries[1:9]}
	h, data, err := segment.Encode(t.Context(), w.id, raftlog.Sum{}, true, merged, segment.Meta{Member: 1, Cut: timeOf(9)}, segment.Options{Tool: "test", Level: 1})
	require.NoError(t, err)
	require.NoError(t, segment.Put(t.Context(), w.repo, h, data))
	look()
	if bytes, entries := a.Since(w.id, 1); entries != 11 || bytes >= before || bytes <= h.Size() {
		t.Errorf("with a merged segment of %d bytes: %d bytes, %d entries; before %d", h.Size(), bytes, entries, before)
	}
	if bytes, entries := a.Since(repository.TimelineID{ClusterID: 99, N: 1}, 1); bytes != 0 || entries != 0 {
		t.Errorf("of another timeline: %d bytes, %d entries", bytes, entries)
	}
}
