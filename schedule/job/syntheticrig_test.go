package job

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/membershippb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/engine"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
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
	if r.repo, err = openRig(t.Context(), r.dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.repo.Sink().Close() })
	return r
}

// newLog is a rig with a timeline, and a member and a version in its log.
func newLog(t testing.TB) *rig {
	t.Helper()
	r := newRig(t)
	require.NoError(t, r.repo.OpenTimeline(t.Context(), repository.Timeline{Format: 1, ID: r.id, Created: rigBegan, Reason: "test"}))
	member := uint64(1)
	urls, err := json.Marshal(map[string]any{"id": 1, "peerURLs": []string{"http://127.0.0.1:1"}})
	require.NoError(t, err)
	data, err := proto.Marshal(&raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: &member, Context: urls})
	require.NoError(t, err)
	r.entries = append(r.entries, raftlog.Entry{Index: 1, Term: 2, Type: raftpb.EntryConfChange, Data: data})
	r.request(&etcdserverpb.InternalRaftRequest{ClusterVersionSet: &membershippb.ClusterVersionSetRequest{Ver: "3.6.0"}})
	return r
}

// request appends an entry; the result is its index.
func (r *rig) request(q *etcdserverpb.InternalRaftRequest) uint64 {
	r.t.Helper()
	index := uint64(len(r.entries) + 1)
	q.Header = &etcdserverpb.RequestHeader{ID: index}
	data, err := proto.Marshal(q)
	if err != nil {
		r.t.Fatal(err)
	}
	r.entries = append(r.entries, raftlog.Entry{Index: index, Term: 2, Type: raftpb.EntryNormal, Data: data})
	return index
}

func (r *rig) put(key, value string) uint64 {
	r.t.Helper()
	return r.request(&etcdserverpb.InternalRaftRequest{Put: &etcdserverpb.PutRequest{Key: []byte(key), Value: []byte(value)}})
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
	path := filepath.Join(r.t.TempDir(), "db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		r.t.Fatal(err)
	}
	eng, err := engine.Open(r.t.Context(), path, engine.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range r.entries {
		if err := eng.Apply(e); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := eng.Close(); err != nil {
		r.t.Fatal(err)
	}
	image, err := snapshot.OpenFile(path)
	if err != nil {
		r.t.Fatal(err)
	}
	m, err := snapshot.Store(r.t.Context(), snapshot.StoreRequest{
		Repo: r.repo, Timeline: r.id, Image: image, Started: rigBegan.Add(time.Duration(len(r.entries)) * time.Second),
		Version: "3.6.0", Codec: codec.Options{Recipients: r.keys}, Tool: "test",
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

// archive stores the entries from index first on as segments of four entries.
func (r *rig) archive(entries []raftlog.Entry, size int) {
	r.t.Helper()
	var sum raftlog.Sum
	for chainStart := true; len(entries) > 0; chainStart = false {
		part := entries[:min(size, len(entries))]
		entries = entries[len(part):]
		h, data, err := segment.Encode(r.t.Context(), r.id, sum, chainStart, segment.Batch{Entries: part}, segment.Meta{Member: 1, Cut: rigBegan}, segment.Options{Tool: "test", Codec: codec.Options{Recipients: r.keys}})
		if err != nil {
			r.t.Fatal(err)
		}
		if err := segment.Put(r.t.Context(), r.repo, h, data); err != nil {
			r.t.Fatal(err)
		}
		sum = h.After
	}
}

func (r *rig) options() SyntheticOptions {
	return SyntheticOptions{Repo: r.repo, Timeline: r.id, ScratchDir: r.scratch, Tool: "test", Codec: codec.Options{Recipients: r.keys}}
}

func (r *rig) catalog() *snapshot.Catalog {
	r.t.Helper()
	c, err := snapshot.ReadCatalog(r.t.Context(), r.repo)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// objects are the names of all objects of full snapshots.
func (r *rig) objects() string {
	r.t.Helper()
	var all []string
	for o, err := range r.repo.Sink().List(r.t.Context(), "", "") {
		if err != nil {
			r.t.Fatal(err)
		}
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
