// Package logtest makes raft logs by hand for tests, what etcd makes of them, and archives
// of them.
package logtest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/membershippb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/engine"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// Begin is how a log begins: with its only member, and the cluster's version. It is to go on
// with index 3.
func Begin(t testing.TB) []raftlog.Entry {
	t.Helper()
	member := uint64(1)
	who, err := json.Marshal(map[string]any{"id": member, "peerURLs": []string{"http://127.0.0.1:1"}})
	require.NoError(t, err)
	data, err := proto.Marshal(&raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: &member, Context: who})
	require.NoError(t, err)
	version := &etcdserverpb.InternalRaftRequest{ClusterVersionSet: &membershippb.ClusterVersionSetRequest{Ver: "3.6.0"}}
	return []raftlog.Entry{{Index: 1, Term: 2, Type: raftpb.EntryConfChange, Data: data}, Entry(t, 2, version)}
}

// Entry is a request as an entry of term 2.
func Entry(t testing.TB, index uint64, r *etcdserverpb.InternalRaftRequest) raftlog.Entry {
	t.Helper()
	r.Header = &etcdserverpb.RequestHeader{ID: index}
	data, err := proto.Marshal(r)
	require.NoError(t, err)
	return raftlog.Entry{Index: index, Term: 2, Type: raftpb.EntryNormal, Data: data}
}

// Put is the request that writes a key.
func Put(key, value string) *etcdserverpb.InternalRaftRequest {
	return &etcdserverpb.InternalRaftRequest{Put: &etcdserverpb.PutRequest{Key: []byte(key), Value: []byte(value)}}
}

// Database is what etcd makes of a log from its beginning on: a file that goes with the
// test.
func Database(t testing.TB, log []raftlog.Entry) (*snapshot.File, snapshot.Facts) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	eng, err := engine.Open(t.Context(), path, engine.Options{})
	require.NoError(t, err)
	for _, e := range log {
		require.NoError(t, eng.Apply(e))
	}
	require.NoError(t, eng.Close())
	image, err := snapshot.OpenFile(path)
	require.NoError(t, err)
	facts, err := image.Facts(t.Context())
	require.NoError(t, err)
	return image, facts
}

// Archive stores a batch as one segment of member 1, behind one that ended with a value of
// the chain; with the zero value a chain begins.
func Archive(t testing.TB, repo *repository.Repository, id repository.TimelineID, before raftlog.Sum, b segment.Batch, cut time.Time, o codec.Options) segment.Header {
	t.Helper()
	h, data, err := segment.Encode(t.Context(), id, before, before == raftlog.Sum{}, b, segment.Meta{Member: 1, Cut: cut}, segment.Options{Tool: "test", Codec: o})
	require.NoError(t, err)
	require.NoError(t, segment.Put(t.Context(), repo, h, data))
	return h
}

// ArchiveAll stores a log as segments of n entries.
func ArchiveAll(t testing.TB, repo *repository.Repository, id repository.TimelineID, log []raftlog.Entry, n int, o codec.Options) {
	t.Helper()
	var before raftlog.Sum
	for len(log) > 0 {
		part := log[:min(n, len(log))]
		log = log[len(part):]
		before = Archive(t, repo, id, before, segment.Batch{Entries: part}, time.Now(), o).After
	}
}
