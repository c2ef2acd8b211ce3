package walreplay

import (
	"reflect"
	"testing"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
)

// A second look at the ranges finds what is new, and reads only that.
func TestArchivesLookAgain(t *testing.T) {
	w := story(t)
	w.archive(2, 5, true)
	w.archive(8, 11, true, 11)
	const backup = "20260101T000000Z-aaaaaa"
	if _, err := w.repo.EnsureTimeline(t.Context(), repository.Timeline{ID: w.id, Created: clockStart, Reason: "first"}); err != nil {
		t.Fatal(err)
	}
	w.store(w.id, backup, 3)
	catalog, err := snapshot.ReadCatalog(t.Context(), w.repo)
	if err != nil || len(catalog.Manifests) != 1 {
		t.Fatal(catalog, err)
	}
	counted := sinktest.NewFaulty(w.repo.Sink())
	repo, err := repository.Open(t.Context(), counted)
	if err != nil {
		t.Fatal(err)
	}
	again := NewArchives(repo)
	look := func() (requests int) {
		t.Helper()
		before := counted.Calls(sinktest.Open)
		got, err := again.Ranges(t.Context(), catalog)
		if err != nil {
			t.Fatal(err)
		}
		requests = counted.Calls(sinktest.Open) - before
		want, err := Ranges(t.Context(), w.repo, catalog)
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
