package replaying

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/membershippb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/engine"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// world is a log that was made by hand, and a repository with parts of it.
type world struct {
	*rig
	entries []raftlog.Entry // entry i has index i+1
}

func newWorld(t *testing.T) *world {
	t.Helper()
	id := repository.TimelineID{ClusterID: 7, N: 1}
	w := &world{rig: openRig(t, filepath.Join(t.TempDir(), "repo"), id)}
	require.NoError(t, w.repo.OpenTimeline(t.Context(), repository.Timeline{Format: 1, ID: id, Created: time.Now(), Reason: "test"}))
	member := uint64(1)
	context, err := json.Marshal(map[string]any{"id": 1, "peerURLs": []string{"http://127.0.0.1:1"}})
	require.NoError(t, err)
	data, err := proto.Marshal(&raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: &member, Context: context})
	require.NoError(t, err)
	w.entries = append(w.entries, raftlog.Entry{Index: 1, Term: 2, Type: raftpb.EntryConfChange, Data: data})
	w.request(&etcdserverpb.InternalRaftRequest{ClusterVersionSet: &membershippb.ClusterVersionSetRequest{Ver: "3.6.0"}})
	return w
}

// request appends an entry; the result is its index.
func (w *world) request(r *etcdserverpb.InternalRaftRequest) uint64 {
	w.t.Helper()
	e := entryOf(w.t, uint64(len(w.entries)+1), r)
	w.entries = append(w.entries, e)
	return e.Index
}

func entryOf(t testing.TB, index uint64, r *etcdserverpb.InternalRaftRequest) raftlog.Entry {
	t.Helper()
	r.Header = &etcdserverpb.RequestHeader{ID: index}
	data, err := proto.Marshal(r)
	require.NoError(t, err)
	return raftlog.Entry{Index: index, Term: 2, Type: raftpb.EntryNormal, Data: data}
}

func putOf(key, value string) *etcdserverpb.InternalRaftRequest {
	return &etcdserverpb.InternalRaftRequest{Put: &etcdserverpb.PutRequest{Key: []byte(key), Value: []byte(value)}}
}

func (w *world) put(key, value string) uint64 { return w.request(putOf(key, value)) }

func (w *world) lease(id, ttl int64) uint64 {
	return w.request(&etcdserverpb.InternalRaftRequest{LeaseGrant: &etcdserverpb.LeaseGrantRequest{ID: id, TTL: ttl}})
}

func (w *world) compact(revision int64) uint64 {
	return w.request(&etcdserverpb.InternalRaftRequest{Compaction: &etcdserverpb.CompactionRequest{Revision: revision, Physical: true}})
}

// database is the one after the entry at index, made in one go from nothing.
func (w *world) database(index uint64) (string, snapshot.Facts) {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), fmt.Sprintf("db-%d", index))
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		w.t.Fatal(err)
	}
	eng, err := engine.Open(w.t.Context(), path, engine.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range w.entries[:index] {
		if err := eng.Apply(e); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := eng.Close(); err != nil {
		w.t.Fatal(err)
	}
	return path, w.facts(path)
}

func (w *world) facts(path string) snapshot.Facts {
	w.t.Helper()
	f, err := snapshot.OpenFile(path)
	if err != nil {
		w.t.Fatal(err)
	}
	facts, err := f.Facts(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return facts
}

// backup stores the state after the entry at index; its ID says which.
func (w *world) backup(index uint64, recipients ...age.Recipient) string {
	w.t.Helper()
	path, _ := w.database(index)
	return w.backupOf(path, recipients...)
}

func (w *world) backupOf(path string, recipients ...age.Recipient) string {
	w.t.Helper()
	facts := w.facts(path)
	at := time.Date(2026, 1, 2, 15, 0, int(facts.RaftIndex), 0, time.UTC)
	id := fmt.Sprintf("%s-%06x", at.Format("20060102T150405Z"), facts.RaftIndex)
	w.store(snapshot.Manifest{ID: id, Tool: "test", Started: at, Finished: at, Facts: facts, Source: snapshot.Source{MemberID: 1, Version: "3.6.11"}}, path, recipients...)
	return id
}

// stamp stores the hash that a member would serve after the entry at index.
func (w *world) stamp(index uint64) {
	w.t.Helper()
	path, facts := w.database(index)
	h, err := openFile(w.t, "", path).HashKV(w.t.Context(), 0)
	if err != nil {
		w.t.Fatal(err)
	}
	m := raftlog.Mark{Index: index, Term: 2, Time: time.Unix(int64(index), 0), Member: 1, Revision: facts.Revision}
	s := &segment.CheckpointHash{Hash: h.Hash, HashRevision: h.Revision, CompactedRevision: h.CompactedRevision}
	if err := segment.WriteMark(w.t.Context(), w.repo, w.id, m, s); err != nil {
		w.t.Fatal(err)
	}
}
