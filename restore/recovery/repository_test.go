package recovery

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/place"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/signing"
	"github.com/requorum/requorum/sinks/sinktest"
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
	if !fired || !errors.As(err, new(snapshot.IncompleteError)) || r == nil || len(r.Incomplete) == 0 {
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
	_, err = Undo(t.Context(), s.request(e))
	require.NoError(t, err)
	s.waitReady(t, s.hosts...)
	s.check(t, want, s.hosts...)
	if m, ended, err := repo.Superseded(t.Context(), old); err != nil || ended {
		t.Errorf("after the undo: %+v %t, %v", m, ended, err)
	}
}

// TestUnreadNames: a repository that cannot be opened has the name that it would have
// otherwise.
func TestUnreadNames(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := openRepositories(ctx, []string{"s3://bucket/p?region=x&endpoint=https://10.0.0.1"}, signing.Keys{}, sinks.Options{})
	if all := r.Unread; len(all) != 1 || all[0].Repository != "s3://bucket/p?endpoint=https%3A%2F%2F10.0.0.1&region=x" {
		t.Errorf("%+v", all)
	}
}

func reopened(t *testing.T, url string) *repository.Repository {
	t.Helper()
	r := openRepositories(t.Context(), []string{url}, signing.Keys{}, sinks.Options{Retry: sinks.Retry{For: repositoryPatience}})
	require.NoError(t, errors.Join(r.Errors...))
	t.Cleanup(func() { r.Close() })
	return r.Opened[0]
}

// TestRecoverTrusted: all disks are lost, and somebody who may add objects added a backup
// of a later state, timelines, log, and the end of the only timeline. A recovery that
// knows whom to trust restores what was signed, and signs what it writes; a member of the
// new cluster may be started, one of the old may not.
func TestRecoverTrusted(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "backups")
	url := "file://" + dir
	s := newSite(t, "3.6", 3, url)
	want := s.fill(t, "a", 20)
	keys := sinktest.NewKeys(t)
	s.config.UseKeys(keys)
	s.backup(t, url)
	s.config.UseKeys(signing.Keys{})
	forged := s.fill(t, "forged", 5)
	s.backup(t, url) // not signed
	forger := reopened(t, url)
	ids, err := forger.TimelineIDs(t.Context())
	require.NoError(t, err)
	require.Len(t, ids, 1)
	bad := repository.TimelineID{ClusterID: 0xbad, N: 1}
	again := repository.TimelineID{ClusterID: ids[0].ClusterID, N: ids[0].N + 1}
	_, errPut := sinks.Put(t.Context(), forger.Sink(), repository.SegmentName{Timeline: ids[0], First: 1 << 20}.String(), []byte("forged"), sinks.CreateOptions{})
	require.NoError(t, errors.Join(errPut,
		forger.Supersede(t.Context(), repository.Superseded{Timeline: ids[0], By: bad, Reason: "forged", Created: time.Now()}),
		forger.OpenTimeline(t.Context(), repository.Timeline{ID: bad, Created: time.Now(), Reason: "forged"}),
		forger.OpenTimeline(t.Context(), repository.Timeline{ID: again, Created: time.Now(), Reason: "forged", Parent: &repository.Branch{Timeline: ids[0], RaftIndex: 1}}),
	))
	s.killAll()
	old := filepath.Join(t.TempDir(), "old")
	require.NoError(t, os.Rename(s.hosts[0].dataDir(), old))
	for _, h := range s.hosts[1:] {
		require.NoError(t, os.RemoveAll(h.dataDir()))
	}

	s.config.UseKeys(keys)
	req := s.request(&heard{t: t})
	req.DeclareDead = []string{"m1", "m2", "m3"}
	r, err := Run(t.Context(), req)
	require.NoError(t, err)
	s.check(t, want, s.hosts...)
	for key := range forged {
		got, err := s.client(t, s.hosts...).Get(t.Context(), key)
		if err != nil || len(got.Kvs) > 0 {
			t.Errorf("%s: %v, %v", key, got, err)
		}
	}
	place, err := place.Open(t.Context(), url, sinks.Options{})
	require.NoError(t, err)
	defer place.Close()
	repo, err := repository.Open(t.Context(), repository.WithKeys(place, keys))
	require.NoError(t, err)
	catalog, err := snapshot.ReadCatalog(t.Context(), repo)
	require.NoError(t, err)
	if len(catalog.Timelines) != 2 || len(catalog.Manifests) != 2 || catalog.Timelines[1].ID.ClusterID != uint64(r.NewClusterID) {
		t.Errorf("timelines %+v, %d backups", catalog.Timelines, len(catalog.Manifests))
	}
	if by, ended, err := repo.Superseded(t.Context(), ids[0]); err != nil || !ended || by.By.ClusterID != uint64(r.NewClusterID) {
		t.Errorf("%+v, %t, %v", by, ended, err)
	}
	mayStart := func(dataDir string) error {
		setup := *s.hosts[0].cfg
		setup.DataDir = dataDir
		_, err := host.MayStart(t.Context(), &host.Config{Member: setup.MemberConfig, StateDir: t.TempDir()}, []string{url}, keys)
		return err
	}
	require.NoError(t, mayStart(s.hosts[0].dataDir()), "a member of the new cluster")
	require.ErrorContains(t, mayStart(old), "was superseded by", "a member of the old cluster")
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
	signed := repository.WithKeys(sink, s.config.Keys())
	_, err = snapshot.Take(t.Context(), snapshot.Request{Client: c, Sink: signed, Tool: "test", Codec: codec.Options{Recipients: keys}})
	require.NoError(t, err)
}
