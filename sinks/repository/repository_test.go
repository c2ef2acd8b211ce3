package repository_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
)

func newSink(t *testing.T) (sinks.Sink, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "repo")
	s, err := disk.New(dir)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s, dir
}

func newRepository(t *testing.T) *repository.Repository {
	t.Helper()
	s, _ := newSink(t)
	r, err := repository.Init(t.Context(), s, time.Now())
	require.NoError(t, err)
	return r
}

func TestOpenWhereThereIsNone(t *testing.T) {
	s, dir := newSink(t)
	_, err := repository.Open(t.Context(), s)
	require.ErrorIs(t, err, repository.ErrNoRepository)
	_, err = os.Stat(dir)
	require.ErrorIs(t, err, os.ErrNotExist, "opening for reading left a folder")
}

// Of several first writers all work in one repository.
func TestInitRace(t *testing.T) {
	s, _ := newSink(t)
	ids := make([]string, 8)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			r, err := repository.Init(context.Background(), s, time.Now())
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = r.ID()
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id == "" || id != ids[0] {
			t.Fatalf("different repositories: %v", ids)
		}
	}
}

func TestNewerFormatIsRefusedByName(t *testing.T) {
	s, _ := newSink(t)
	data, err := repository.Seal(repository.Marker{Format: 99, ID: "x"})
	require.NoError(t, err)
	_, err = sinks.Put(t.Context(), s, "requorum.json", data, sinks.CreateOptions{})
	require.NoError(t, err)
	if _, err := repository.Init(t.Context(), s, time.Now()); err == nil || !strings.Contains(err.Error(), "99") {
		t.Fatalf("got %v, want an error that names format 99", err)
	}
}

// Promise 6: a timeline is opened once, with one origin, whoever comes second.
func TestPromise6TimelineIsOpenedOnce(t *testing.T) {
	r := newRepository(t)
	id := repository.TimelineID{ClusterID: 7, N: 2}
	first, err := r.EnsureTimeline(t.Context(), repository.Timeline{ID: id, Reason: "first"})
	if err != nil || first.Reason != "first" {
		t.Fatalf("got %+v, %v", first, err)
	}
	second, err := r.EnsureTimeline(t.Context(), repository.Timeline{ID: id, Reason: "second"})
	if err != nil || second.Reason != "first" {
		t.Fatalf("got %+v, %v; want the first one's", second, err)
	}
	require.ErrorIs(t, r.OpenTimeline(t.Context(), repository.Timeline{ID: id}), sinks.ErrExists)
}

func TestTimelinesAreOrderedByNumber(t *testing.T) {
	r := newRepository(t)
	for _, n := range []int{10, 2, 1} {
		require.NoError(t, r.OpenTimeline(t.Context(), repository.Timeline{ID: repository.TimelineID{ClusterID: 7, N: n}}))
	}
	all, err := r.TimelineIDs(t.Context())
	if err != nil || len(all) != 3 || all[0].N != 1 || all[1].N != 2 || all[2].N != 10 {
		t.Fatalf("got %+v, %v", all, err)
	}
}

// A descriptor that was copied to another name is not taken for that timeline.
func TestMovedTimelineDescriptor(t *testing.T) {
	r := newRepository(t)
	one := repository.TimelineID{ClusterID: 7, N: 1}
	require.NoError(t, r.OpenTimeline(t.Context(), repository.Timeline{ID: one}))
	data, err := sinks.Get(t.Context(), r.Sink(), "timelines/"+one.String()+".json", 1<<20)
	require.NoError(t, err)
	other := repository.TimelineID{ClusterID: 7, N: 2}
	_, err = sinks.Put(t.Context(), r.Sink(), "timelines/"+other.String()+".json", data, sinks.CreateOptions{})
	require.NoError(t, err)
	_, err = r.Timeline(t.Context(), other)
	require.ErrorIs(t, err, repository.ErrAltered)
}

// Promise 1: without a manifest it is no backup, and said to be none.
func TestPromise1FullsNameIncompleteOnes(t *testing.T) {
	r := newRepository(t)
	timeline := repository.TimelineID{ClusterID: 7, N: 1}
	whole, half := "20260102T150405Z-000001", "20260102T150406Z-000002"
	for _, name := range []string{
		repository.SnapshotName(timeline, whole, 1, false), repository.ManifestName(timeline, whole),
		repository.SnapshotName(timeline, half, 1, true), timeline.String() + "/full/notes.txt",
	} {
		_, err := sinks.Put(t.Context(), r.Sink(), name, []byte("x"), sinks.CreateOptions{})
		require.NoError(t, err)
	}
	fulls, err := r.Fulls(t.Context(), timeline)
	if err != nil || len(fulls) != 2 {
		t.Fatalf("got %+v, %v", fulls, err)
	}
	if fulls[0].ID != whole || !fulls[0].Complete || fulls[1].ID != half || fulls[1].Complete {
		t.Fatalf("got %+v", fulls)
	}
}

// madeMeanwhile is a place where somebody makes a repository just after it was
// looked for.
type madeMeanwhile struct {
	sinks.Sink
	make func()
}

func (m *madeMeanwhile) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	r, err := m.Sink.Open(ctx, name, offset, length)
	if do := m.make; do != nil && errors.Is(err, sinks.ErrNotFound) {
		m.make = nil
		do()
	}
	return r, err
}

// A repository that is made while it is opened is no damaged one.
func TestOpenWhileItIsMade(t *testing.T) {
	memory := sinktest.NewMemory()
	s := &madeMeanwhile{Sink: memory}
	s.make = func() {
		r, err := repository.Init(t.Context(), memory, time.Now())
		require.NoError(t, err)
		require.NoError(t, r.OpenTimeline(t.Context(), repository.Timeline{Format: 1, ID: repository.TimelineID{ClusterID: 1, N: 1}, Reason: "test"}))
	}
	r, err := repository.Open(t.Context(), s)
	if err != nil || r.Damage() != nil || r.ID() == "" {
		t.Errorf("%v, %v", r, err)
	}
}
