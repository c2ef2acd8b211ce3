package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/storetest"
)

// Promise 1: with the manifest the backup exists, whole, and its facts are
// those of the stored bytes.
func TestPromise1TakeToDisk(t *testing.T) {
	s := newSource(t, 3)
	d := newDisk(t)
	result, err := s.take(t, snapshot.Request{Sink: d, HashKV: true, ReadBack: true, Labels: map[string]string{"a": "b"}})
	require.NoError(t, err)
	m := result.Manifest
	asked := s.cluster.Endpoints()[:1]
	s.kv.SetEndpoints(asked...)
	head, err := s.kv.Get(t.Context(), "key000") // that member has applied it all, then
	require.NoError(t, err)
	if m.Facts.Revision != head.Header.Revision {
		t.Errorf("revision %d, want %d", m.Facts.Revision, head.Header.Revision)
	}
	if m.Facts.RaftIndex < m.Barrier.RaftIndex {
		t.Errorf("raft index %d is behind the barrier %d", m.Facts.RaftIndex, m.Barrier.RaftIndex)
	}
	if m.Keys.Count == nil || *m.Keys.Count != 10 {
		t.Errorf("keys: %+v, want 10", m.Keys)
	}
	if len(m.Facts.Members) != 3 || m.Source.IsLeader {
		t.Errorf("%d members, read from the leader: %v", len(m.Facts.Members), m.Source.IsLeader)
	}
	live, err := s.kv.HashKV(t.Context(), asked[0], m.Facts.Revision)
	if err != nil || live.Hash != m.HashKV.Hash || m.HashKV.Revision != m.Facts.Revision {
		t.Errorf("HashKV %+v, a member says %v (%v)", m.HashKV, live, err)
	}
	if !m.ReadBack || !result.NewTimeline || m.Labels["a"] != "b" {
		t.Errorf("%+v", result)
	}
	restorable(t, d, m)
	if c := catalogOf(t, d); len(c.Manifests) != 1 || len(c.Incomplete) != 0 || len(c.Damaged) != 0 {
		t.Errorf("the catalog has %+v", c)
	}
}

// A backup made with recipients alone is described from its stored bytes all
// the same, and only the identity opens it.
func TestTakeEncrypted(t *testing.T) {
	s := newSource(t, 1)
	d := newDisk(t)
	identity, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	req := snapshot.Request{Sink: d, ReadBack: true}
	req.Codec.Recipients = []age.Recipient{identity.Recipient()}
	result, err := s.take(t, req)
	require.NoError(t, err)
	m := result.Manifest
	if m.Facts.Revision != 11 || !m.ReadBack || !strings.HasSuffix(m.Object.Name, ".zst.age") {
		t.Fatalf("%+v", m)
	}
	restorable(t, d, m, identity)
	repo, err := repository.Open(t.Context(), d)
	require.NoError(t, err)
	_, err = snapshot.OpenStored(repo, m).Open(t.Context())
	require.Error(t, err, "it was opened without an identity")
}

// Promise 1: whatever call of the repository fails, it has nothing of the backup, and a
// second backup succeeds.
func TestPromise1RepositoryFails(t *testing.T) {
	s := newSource(t, 1)
	// The calls of one backup into an existing timeline, in their order: the
	// object, then the manifest.
	for _, c := range []struct {
		name  string
		fault sinktest.Fault
	}{
		{"the first list", sinktest.Fail(sinktest.List, 1, nil)},
		{"a manifest cannot be read", sinktest.Fail(sinktest.Open, 2, nil)},
		{"object not created", sinktest.Fail(sinktest.Create, 1, nil)},
		{"object not written", sinktest.Fail(sinktest.Write, 1, nil)},
		{"object not committed", sinktest.Fail(sinktest.Commit, 1, nil)},
		{"manifest not created", sinktest.Fail(sinktest.Create, 2, nil)},
		{"manifest not committed", sinktest.Fail(sinktest.Commit, 2, nil)},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDisk(t)
			first, err := s.take(t, snapshot.Request{Sink: d})
			require.NoError(t, err)
			before := snapshotObjects(t, d)
			faulty := sinktest.NewFaulty(d, c.fault)
			result, err := s.take(t, snapshot.Request{Sink: faulty})
			faulty.AllFired(t)
			if !errors.Is(err, sinktest.ErrInjected) || result != nil {
				t.Fatalf("%+v, %v", result, err)
			}
			require.Equal(t, before, snapshotObjects(t, d))
			restorable(t, d, first.Manifest)
			second, err := s.take(t, snapshot.Request{Sink: d})
			require.NoError(t, err, "the next backup")
			restorable(t, d, second.Manifest)
		})
	}
}

// What was read is not stored yet: how far that is is not known, and never shown as all.
func TestProgressWhileStoring(t *testing.T) {
	s := newSource(t, 1)
	var all []snapshot.Progress
	_, err := s.take(t, snapshot.Request{Sink: newDisk(t), Progress: func(p snapshot.Progress) { all = append(all, p) }})
	require.NoError(t, err)
	last := slices.IndexFunc(all, func(p snapshot.Progress) bool { return p.Phase == "store" })
	require.Positive(t, last, "%+v", all)
	require.Equal(t, snapshot.Progress{Phase: "store"}, all[last])
	require.Equal(t, all[last-1].Total, all[last-1].Done, "it was read to its end: %+v", all)
}

// Promise 1: a store that gives back other bytes than it took is found out
// before there is a manifest.
func TestPromise1StoreThatAlters(t *testing.T) {
	s := newSource(t, 1)
	d := newDisk(t)
	_, err := s.take(t, snapshot.Request{Sink: d, ReadBack: true, Progress: func(p snapshot.Progress) {
		if p.Phase != "check" {
			return
		}
		found, err := filepath.Glob(filepath.Join(strings.TrimPrefix(d.String(), "file://"), "*", "full", "*", "snapshot.zst"))
		require.NoError(t, err)
		require.Len(t, found, 1)
		data, err := os.ReadFile(found[0])
		require.NoError(t, err)
		data[40] ^= 1
		require.NoError(t, errors.Join(os.Chmod(found[0], 0o600), os.WriteFile(found[0], data, 0o600)))
	}})
	var damaged *snapshot.DamagedError
	if !errors.As(err, &damaged) {
		t.Fatalf("got %v, want a *DamagedError", err)
	}
	require.Equal(t, 0, snapshotObjects(t, d), "objects are left")
}

// Promise 6: a cluster that restarted its history under the same ID gets a
// timeline of its own, with the old one as its parent; each is found.
func TestPromise6RestartedClusterGetsItsOwnTimeline(t *testing.T) {
	d := newDisk(t)
	clientURL, peerURL := "http://"+storetest.FreeAddress(t), "http://"+storetest.FreeAddress(t)
	run := func(puts int) *snapshot.Result {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		// The same name, peer URL and token give the same cluster ID.
		m, err := store.StartMember(ctx, store.MemberConfig{
			DataDir: filepath.Join(t.TempDir(), "m1"), Name: "m1", ListenClientURLs: []string{clientURL}, ListenPeerURLs: []string{peerURL},
			Token: "same", Settings: store.Settings{LogFile: os.DevNull},
		})
		require.NoError(t, err)
		defer m.Kill()
		endpoint := clientURL
		kv, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}})
		require.NoError(t, err)
		defer kv.Close()
		for i := range puts {
			_, err = kv.Put(ctx, "k", fmt.Sprint(i))
			require.NoError(t, err)
		}
		c, err := client.Dial(ctx, client.Config{Endpoints: []string{endpoint}})
		require.NoError(t, err)
		defer c.Close()
		result, err := snapshot.Take(ctx, snapshot.Request{Client: c, Sink: d})
		require.NoError(t, err)
		return result
	}
	first, second := run(20), run(3)
	if a, b := first.Manifest.Timeline, second.Manifest.Timeline; a.ClusterID != b.ClusterID || a.N != 1 || b.N != 2 || !second.NewTimeline {
		t.Fatalf("timelines %s and %s", a, b)
	}
	c := catalogOf(t, d)
	var over *snapshot.StartedOverError
	m, err := c.Find(snapshot.Latest, "")
	if !errors.As(err, &over) || over.Newest != second.Manifest.Timeline || over.From != first.Manifest.Timeline {
		t.Fatalf("latest is %v, %v; the cluster lost what the first has", m, err)
	}
	if m, err = c.Find(snapshot.Latest, first.Manifest.Timeline.String()); err != nil || m.ID != first.Manifest.ID {
		t.Fatalf("latest of the first is %v, %v; want %s", m, err, first.Manifest.ID)
	}
}

// A backup that is cancelled leaves nothing, and ends soon.
func TestPromise1Cancelled(t *testing.T) {
	s := newSource(t, 1)
	d := newDisk(t)
	faulty := sinktest.NewFaulty(d, sinktest.Delay(sinktest.Write, 1, time.Minute).Of("snapshot.zst"))
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the user has had enough")
	var start time.Time
	go func() {
		for faulty.Fired() == 0 && t.Context().Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		start = time.Now()
		cancel(why)
	}()
	_, err := snapshot.Take(ctx, snapshot.Request{Client: s.client, Sink: faulty})
	faulty.AllFired(t)
	if !errors.Is(err, why) {
		t.Errorf("got %v, want the cause", err)
	}
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("it took %s to end", took)
	}
	require.Equal(t, 0, snapshotObjects(t, d), "objects are left")
}

// Promise 1: an answer that is lost after the manifest was stored does not make
// a backup whose object is gone: it is looked up, and it counts.
func TestPromise1LostAnswerToTheManifest(t *testing.T) {
	s := newSource(t, 1)
	d := newDisk(t)
	faulty := sinktest.NewFaulty(d, sinktest.Lose(sinktest.Commit, 1, nil).Of("manifest.json"))
	result, err := s.take(t, snapshot.Request{Sink: faulty})
	faulty.AllFired(t)
	require.NoError(t, err)
	restorable(t, d, result.Manifest)
	if c := catalogOf(t, d); len(c.Manifests) != 1 || len(c.Damaged) != 0 {
		t.Errorf("the catalog has %+v", c)
	}
}

// Promise 1: where nobody can know whether the manifest was stored, the object
// stays: it might be the backup's.
func TestPromise1UnknownManifestKeepsItsObject(t *testing.T) {
	s := newSource(t, 1)
	d := newDisk(t)
	faulty := sinktest.NewFaulty(d, sinktest.Fail(sinktest.Commit, 1, sinks.ErrUncertain).Of("manifest.json"))
	_, err := s.take(t, snapshot.Request{Sink: faulty})
	faulty.AllFired(t)
	if !errors.Is(err, sinks.ErrUncertain) || !strings.Contains(err.Error(), "requorum list") {
		t.Fatalf("got %v", err)
	}
	require.Equal(t, 1, snapshotObjects(t, d), "the snapshot alone")
}

// What is damaged in a repository is reported, and keeps nobody from backing
// up or restoring.
func TestDamagedDocumentsStopNobody(t *testing.T) {
	s := newSource(t, 1)
	for _, name := range []string{"requorum.json", "timelines"} {
		dir := filepath.Join(t.TempDir(), "repo")
		d, err := disk.New(dir)
		require.NoError(t, err)
		first, err := s.take(t, snapshot.Request{Sink: d})
		require.NoError(t, err)
		path := filepath.Join(dir, name)
		if name == "timelines" {
			path = filepath.Join(path, first.Manifest.Timeline.String()+".json")
		}
		require.NoError(t, os.Truncate(path, 0))
		second, err := s.take(t, snapshot.Request{Sink: d})
		require.NoError(t, err, "%s is damaged, and the next backup fails", name)
		if a, b := first.Manifest.Timeline, second.Manifest.Timeline; a != b {
			t.Errorf("%s is damaged, and the timeline changed from %s to %s", name, a, b)
		}
		c := catalogOf(t, d)
		if len(c.Manifests) != 2 {
			t.Errorf("%s is damaged, and the catalog has %d backups", name, len(c.Manifests))
		}
		if (second.Damage != nil) != (name == "requorum.json") || (len(c.DamagedTimelines) == 1) != (name == "timelines") {
			t.Errorf("%s is damaged, and it is not said: %+v", name, c)
		}
		restorable(t, d, c.Manifests[0])
	}
}
