// Package logtest makes raft logs by hand for tests, what etcd makes of them, and archives
// of them.
package logtest

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/membershippb"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/sinks"
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

// Stored says how Full stores a full snapshot. The zero value of ID and Started is one of
// now.
type Stored struct {
	Timeline repository.TimelineID
	ID       string
	Started  time.Time
	Version  string // etcd's; 3.6.0 if empty
	Codec    codec.Options
}

// Full stores a database as a full snapshot, as if a member had sent it, and returns its
// manifest.
func Full(t testing.TB, repo *repository.Repository, image *snapshot.File, s Stored) *snapshot.Manifest {
	t.Helper()
	if s.Started.IsZero() {
		s.Started = time.Now()
	}
	s.Started, s.ID = s.Started.UTC(), cmp.Or(s.ID, repository.NewBackupID(s.Started))
	facts, err := image.Facts(t.Context())
	require.NoError(t, err)
	database, err := image.Open(t.Context())
	require.NoError(t, err)
	defer database.Close()
	name := repository.SnapshotName(s.Timeline, s.ID, 1, len(s.Codec.Recipients) > 0)
	object, err := repo.Sink().Create(t.Context(), name, sinks.CreateOptions{})
	require.NoError(t, err)
	stored, err := codec.NewWriter(t.Context(), object, s.Codec)
	require.NoError(t, err)
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(stored, sum), database)
	require.NoError(t, err)
	_, err = stored.Write(sum.Sum(nil)) // as etcd ends a stream
	require.NoError(t, err)
	require.NoError(t, stored.Close())
	_, err = object.Commit(t.Context())
	require.NoError(t, err)
	m := &snapshot.Manifest{
		Format: 1, Kind: snapshot.KindFull, ID: s.ID, Timeline: s.Timeline, Tool: "test", Started: s.Started, Finished: s.Started,
		Object:         snapshot.StoredObject{Name: name, Encoding: stored.Description()},
		DatabaseSHA256: hex.EncodeToString(sum.Sum(nil)), Facts: facts, Source: snapshot.Source{Version: cmp.Or(s.Version, "3.6.0")},
	}
	require.NoError(t, repo.WriteDocument(t.Context(), repository.ManifestName(s.Timeline, s.ID), m))
	m, err = snapshot.ReadManifest(t.Context(), repo, s.Timeline, s.ID)
	require.NoError(t, err)
	return m
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

// RecordSnapshot adds the record of a snapshot to a stopped member's log: the log then seems
// to begin with a restore, if all entries up to the index are about members.
func RecordSnapshot(t testing.TB, walDir string, index, term uint64) {
	t.Helper()
	w, err := wal.Open(zap.NewNop(), walDir, &walpb.Snapshot{})
	require.NoError(t, err)
	_, _, _, err = w.ReadAll()
	require.NoError(t, err)
	require.NoError(t, w.SaveSnapshot(&walpb.Snapshot{Index: &index, Term: &term, ConfState: &raftpb.ConfState{Voters: []uint64{1}}}))
	require.NoError(t, w.Close())
}
