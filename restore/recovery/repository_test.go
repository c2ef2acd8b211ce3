package recovery

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/place"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/signing"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/client"
)

// Promise 6: the new timeline has its parent, the old one ends, a full snapshot
// lies in each repository; what fails of that leaves the cluster serving, and the
// next command completes it. An undo lets the old timeline live again.
func TestRepositories(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "backups")
	url := "file:///" + dir // with a slash too many, which is the same place
	s := newSite(t, "3.6", 3, url)
	want := s.fill(t, "a", 20)
	s.backup(t, url)
	s.killAll()
	e := &heard{t: t}
	away := dir + ".away"
	fired := false
	e.begun = func(p Phase, _ string) {
		if p == PhaseResume && !fired { // the repository goes away
			fired = true
			if err := errors.Join(os.Rename(dir, away), os.WriteFile(dir, nil, 0o600)); err != nil {
				t.Error(err)
			}
		}
	}
	r, err := Run(t.Context(), s.request(e))
	if !fired || !errors.Is(err, snapshot.ErrIncomplete) || r == nil || len(r.Incomplete) == 0 {
		t.Fatalf("the repository was away: %t, %+v, %v", fired, r, err)
	}
	s.check(t, want, s.hosts...)
	require.NoError(t, errors.Join(os.Remove(dir), os.Rename(away, dir)))
	r, err = Run(t.Context(), s.request(e))
	if err != nil || len(e.questions) != 1 || len(r.Snapshots) != 1 || len(r.Lineage) != 1 || r.Snapshots[0].Repository != "file://"+dir || r.Lineage[0].Repository != "file://"+dir {
		t.Fatalf("%+v, %v", r, err)
	}
	repo := reopened(t, url)
	catalog, err := snapshot.ReadCatalog(t.Context(), repo)
	require.NoError(t, err)
	var old repository.TimelineID
	var now *repository.Timeline
	for i, l := range catalog.Timelines {
		if l.ID.ClusterID == uint64(r.OldClusterID) {
			old = l.ID
		} else {
			now = &catalog.Timelines[i]
		}
	}
	if m, ended, err := repo.Superseded(t.Context(), old); err != nil || !ended || m.By != now.ID {
		t.Errorf("%s: %+v %t, %v", old, m, ended, err)
	}
	if len(catalog.Manifests) != 2 {
		t.Errorf("%d backups", len(catalog.Manifests))
	}
	if now == nil || now.ID.ClusterID != uint64(r.NewClusterID) || now.Parent == nil || now.Parent.Timeline != old || now.Parent.RaftIndex == 0 {
		t.Errorf("%+v", now)
	}
	if _, err := Undo(t.Context(), s.request(e)); err != nil {
		t.Fatal(err)
	}
	s.waitReady(t, s.hosts...)
	s.check(t, want, s.hosts...)
	if m, ended, err := repo.Superseded(t.Context(), old); err != nil || ended {
		t.Errorf("after the undo: %+v %t, %v", m, ended, err)
	}
}

// TestUnreadNames: a repository that cannot be opened has the name that it would have
// otherwise.
func TestUnreadNames(t *testing.T) {
	r := repositories{all: []*opened{{url: "s3://bucket/p?region=x&endpoint=https://10.0.0.1", err: errors.New("away")}}}
	if all := r.unread(); len(all) != 1 || all[0].Repository != "s3://bucket/p?endpoint=https%3A%2F%2F10.0.0.1&region=x" {
		t.Errorf("%+v", all)
	}
}

func reopened(t *testing.T, url string) *repository.Repository {
	t.Helper()
	o := &opened{url: url}
	o.open(t.Context(), signing.Keys{})
	if o.err != nil {
		t.Fatal(o.err)
	}
	t.Cleanup(func() { o.sink.Close() })
	return o.repo
}

// backup takes a full snapshot, encrypted to keys where some are given, which makes
// the repository.
func (s *site) backup(t *testing.T, url string, keys ...age.Recipient) {
	t.Helper()
	c, err := client.Dial(t.Context(), client.Config{Endpoints: []string{s.hosts[0].clientURL}})
	require.NoError(t, err)
	defer c.Close()
	sink, err := place.Open(t.Context(), url, sinks.Options{})
	require.NoError(t, err)
	defer sink.Close()
	if _, err := snapshot.Take(t.Context(), snapshot.Request{Client: c, Sinks: []sinks.Sink{sink}, Tool: "test", Codec: codec.Options{Recipients: keys}}); err != nil {
		t.Fatal(err)
	}
}
