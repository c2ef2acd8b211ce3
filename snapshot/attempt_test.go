package snapshot_test

import (
	"errors"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
)

const slotID = "20260102T010000Z-0a1b2c"

// Somebody who may add objects takes the name of the manifest of a backup that is to be
// made: it is made under another. Where that comes while it is being made, it fails, and
// leaves nothing; the next attempt makes it.
func TestForeignManifestAhead(t *testing.T) {
	s := newSource(t, 1)
	d := newDisk(t)
	keyed := repository.WithKeys(d, sinktest.NewKeys(t))
	take := func(id string, progress func(snapshot.Progress)) (*snapshot.Manifest, error) {
		r, err := s.take(t, snapshot.Request{Sink: keyed, ID: id, Attempt: 1, Progress: progress})
		if err != nil {
			return nil, err
		}
		return r.Manifest, nil
	}
	first, err := take("", nil)
	require.NoError(t, err)
	forge := func(id string) {
		t.Helper()
		_, err := sinks.Put(t.Context(), d, repository.ManifestName(first.Timeline, id), []byte("forged"), sinks.CreateOptions{})
		require.NoError(t, err)
	}
	forge(slotID)
	m, err := take(slotID, nil)
	require.NoError(t, err)
	require.NotEqual(t, slotID, m.ID)
	restorable(t, keyed, m)

	before, forged := snapshotObjects(t, d), false
	const later = "20260102T020000Z-0a1b2c"
	_, err = take(later, func(p snapshot.Progress) {
		if p.Phase == "check" && !forged {
			forged = true
			forge(later)
		}
	})
	if !forged || !errors.Is(err, repository.ErrUnsigned) || !strings.Contains(err.Error(), ": remove it") {
		t.Errorf("forged %t, error %v", forged, err)
	}
	require.Equal(t, before+1, snapshotObjects(t, d), "those before and the forged manifest")
	_, err = take(later, nil)
	require.NoError(t, err)
	if c := catalogOf(t, keyed); len(c.Manifests) != 3 || len(c.Damaged) != 2 || !c.Damaged[0].Unsigned() || !c.Damaged[1].Unsigned() || len(c.Incomplete) > 0 {
		t.Errorf("the catalogue has %+v", c)
	}
}

// Of several attempts at one backup the first manifest counts, and describes its
// own object; who comes later, or wakes up late, leaves nothing.
func TestAttempts(t *testing.T) {
	s := newSource(t, 1)
	d := newDisk(t)
	take := func(attempt int, progress func(snapshot.Progress)) (*snapshot.Result, error) {
		return s.take(t, snapshot.Request{Sink: d, ID: slotID, Attempt: attempt, Progress: progress})
	}
	var second *snapshot.Result
	streamed := 0
	first, err := take(1, func(p snapshot.Progress) {
		if p.Phase != "check" || second != nil {
			return
		}
		var err error
		if second, err = take(2, nil); err != nil {
			t.Error(err)
		}
	})
	if second == nil {
		t.Fatal("the second attempt was never made")
	}
	if !errors.Is(err, snapshot.ErrTaken) || first != nil {
		t.Errorf("the first attempt: %+v, %v", first, err)
	}
	m := second.Manifest
	if m.ID != slotID || path.Base(m.Object.Name) != "snapshot-2.zst" {
		t.Fatalf("the second attempt made %+v", m)
	}
	require.Equal(t, 2, snapshotObjects(t, d), "the second one's object and manifest")
	restorable(t, d, m)
	if c := catalogOf(t, d); len(c.Manifests) != 1 || len(c.Damaged)+len(c.Incomplete) > 0 {
		t.Errorf("the catalog has %+v", c)
	}
	if _, err := take(3, func(p snapshot.Progress) {
		if p.Phase == "stream" {
			streamed++
		}
	}); !errors.Is(err, snapshot.ErrTaken) || streamed > 0 {
		t.Errorf("a third attempt: %v; the member was read %d times", err, streamed)
	}
}

// What a dead attempt left does not keep the same attempt from being made again.
func TestAttemptAfterACrash(t *testing.T) {
	s, d, before := newTaken(t)
	left := repository.SnapshotName(before.Timeline, slotID, 1, false)
	_, err := sinks.Put(t.Context(), d, left, []byte("half a day's work"), sinks.CreateOptions{})
	require.NoError(t, err)
	r, err := s.take(t, snapshot.Request{Sink: d, ID: slotID, Attempt: 1})
	require.NoError(t, err)
	m := r.Manifest
	if m.ID != slotID || path.Base(m.Object.Name) != "snapshot-2.zst" {
		t.Errorf("made %s", m.Object.Name)
	}
	restorable(t, d, m)
	_, err = s.take(t, snapshot.Request{Sink: d, ID: "yesterday"})
	require.ErrorContains(t, err, "yesterday", "an ID that is none")
}

// An object that was taken for abandoned, and removed, gets no manifest.
func TestObjectGoneBeforeTheManifest(t *testing.T) {
	s := newSource(t, 1)
	d := newDisk(t)
	checked, removed := false, 0
	_, err := s.take(t, snapshot.Request{Sink: d, ID: slotID,
		Progress: func(p snapshot.Progress) { checked = checked || p.Phase == "check" },
		Now: func() time.Time {
			if checked {
				for o, err := range d.List(t.Context(), "", "") {
					if err == nil && path.Base(o.Name) == "snapshot.zst" && d.Delete(t.Context(), o.Name) == nil {
						removed++
					}
				}
			}
			return time.Now()
		}})
	if removed != 1 {
		t.Fatalf("%d objects were removed", removed)
	}
	require.ErrorIs(t, err, sinks.ErrNotFound, "the backup")
	require.Equal(t, 0, snapshotObjects(t, d), "objects are left")
}

// A manifest that names another backup's object is damaged, whichever attempt's it
// is; and so is one that names the other form of its own.
func TestManifestOfAnotherObject(t *testing.T) {
	_, d, m := newTaken(t)
	repo, err := repository.Open(t.Context(), d)
	require.NoError(t, err)
	for id, object := range map[string]string{
		"20260102T020000Z-000001": repository.SnapshotName(m.Timeline, m.ID, 2, false),
		"20260102T020000Z-000002": repository.SnapshotName(m.Timeline, "20260102T020000Z-000002", 2, true),
		"20260102T020000Z-000003": m.Timeline.String() + "/full/20260102T020000Z-000003/snapshot-1.zst",
		"20260102T020000Z-000004": m.Timeline.String() + "/full/20260102T020000Z-000004/manifest.json",
	} {
		m.ID, m.Object.Name = id, object
		require.NoError(t, repo.WriteDocument(t.Context(), repository.ManifestName(m.Timeline, id), m))
		var damaged *snapshot.DamagedError
		if _, err := snapshot.ReadManifest(t.Context(), repo, m.Timeline, id); !errors.As(err, &damaged) {
			t.Errorf("%s: %v", object, err)
		}
	}
}
