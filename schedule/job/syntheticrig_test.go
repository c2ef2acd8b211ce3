package job

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/logtest"
	"github.com/requorum/requorum/walreplay/raftlog"
)

var rigBegan = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

// rig is a repository on disk and a log that was made by hand.
type rig struct {
	t       testing.TB
	dir     string
	scratch string
	repo    *repository.Repository
	id      repository.TimelineID
	entries []raftlog.Entry // entry i has index i+1
	keys    []age.Recipient
}

func openRig(ctx context.Context, dir string) (*repository.Repository, error) {
	sink, err := disk.New(dir)
	if err != nil {
		return nil, err
	}
	return repository.Init(ctx, sink, rigBegan)
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{t: t, dir: filepath.Join(t.TempDir(), "repo"), scratch: t.TempDir(), id: repository.TimelineID{ClusterID: 7, N: 1}}
	var err error
	r.repo, err = openRig(t.Context(), r.dir)
	require.NoError(t, err)
	t.Cleanup(func() { r.repo.Sink().Close() })
	return r
}

// newLog is a rig with a timeline, and a member and a version in its log.
func newLog(t testing.TB) *rig {
	t.Helper()
	r := newRig(t)
	require.NoError(t, r.repo.OpenTimeline(t.Context(), repository.Timeline{Format: 1, ID: r.id, Created: rigBegan, Reason: "test"}))
	r.entries = logtest.Begin(t)
	return r
}

// request appends an entry; the result is its index.
func (r *rig) request(q *etcdserverpb.InternalRaftRequest) uint64 {
	r.t.Helper()
	e := logtest.Entry(r.t, uint64(len(r.entries)+1), q)
	r.entries = append(r.entries, e)
	return e.Index
}

func (r *rig) put(key, value string) uint64 {
	r.t.Helper()
	return r.request(logtest.Put(key, value))
}

// puts appends n entries.
func (r *rig) puts(n int) {
	r.t.Helper()
	for range n {
		r.put(fmt.Sprintf("/k%d", len(r.entries)%7), fmt.Sprint("value ", len(r.entries)))
	}
}

// full stores the state at the log's end so far as if a member had sent it.
func (r *rig) full() *snapshot.Manifest {
	r.t.Helper()
	image, _ := logtest.Database(r.t, r.entries)
	m, err := snapshot.Store(r.t.Context(), snapshot.StoreRequest{
		Repo: r.repo, Timeline: r.id, Image: image, Started: rigBegan.Add(time.Duration(len(r.entries)) * time.Second),
		Version: "3.6.0", Codec: codec.Options{Recipients: r.keys}, Tool: "test",
	})
	require.NoError(r.t, err)
	return m
}

// archive stores entries as segments of so many.
func (r *rig) archive(entries []raftlog.Entry, size int) {
	r.t.Helper()
	logtest.ArchiveAll(r.t, r.repo, r.id, entries, size, codec.Options{Recipients: r.keys})
}

func (r *rig) options() SyntheticOptions {
	return SyntheticOptions{Repo: r.repo, Timeline: r.id, ScratchDir: r.scratch, Tool: "test", Codec: codec.Options{Recipients: r.keys}}
}

func (r *rig) catalog() *snapshot.Catalog {
	r.t.Helper()
	c, err := snapshot.ReadCatalog(r.t.Context(), r.repo)
	require.NoError(r.t, err)
	return c
}

// objects are the names of all objects of full snapshots.
func (r *rig) objects() string {
	r.t.Helper()
	var all []string
	for o, err := range r.repo.Sink().List(r.t.Context(), "", "") {
		require.NoError(r.t, err)
		if strings.Contains(o.Name, "/full/") {
			all = append(all, o.Name)
		}
	}
	return strings.Join(all, "\n")
}

// tidy wants nothing in the scratch folder.
func (r *rig) tidy() {
	r.t.Helper()
	if left, err := os.ReadDir(r.scratch); err != nil || len(left) > 0 {
		r.t.Errorf("the scratch folder has %v (%v)", left, err)
	}
}
