package walreplay

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/walreplay/walfile"
)

// A log that was cut short shows it by its newest file's size, though each record that is
// left is good: an interrupted copy cuts between two records as well as through one.
func TestCutFile(t *testing.T) {
	size := int(wal.SegmentSizeBytes)
	for _, f := range []struct {
		name   string
		file   []byte
		broken bool // the file that etcd keeps if it cuts a torn record exists
		cut    bool
	}{
		{"as a crash leaves it", append(bytes.Repeat([]byte{1}, 100), make([]byte, size-100)...), false, false},
		{"cut short", bytes.Repeat([]byte{1}, 100), false, true},
		{"cut short in the zeros behind the records", append(bytes.Repeat([]byte{1}, 100), make([]byte, 100)...), false, true},
		{"cut by etcd itself", bytes.Repeat([]byte{1}, 100), true, false},
		{"empty", nil, false, true},
		{"full, and the next file is missing", bytes.Repeat([]byte{1}, size+100), false, true},
		{"beyond its size, with zeros", append(bytes.Repeat([]byte{1}, size), make([]byte, 8)...), false, false},
	} {
		path := filepath.Join(t.TempDir(), "0000000000000000-0000000000000000.wal")
		require.NoError(t, os.WriteFile(path, f.file, 0o600))
		if f.broken {
			require.NoError(t, os.WriteFile(path+".broken", f.file, 0o600))
		}
		cut, err := cutFile(path)
		require.NoError(t, err)
		if got := cut != ""; got != f.cut {
			t.Errorf("%s: cut %t, want %t: %s", f.name, got, f.cut, cut)
		}
	}
}

// TestJudgeStart_OldestFilesDeleted_Reported deletes files from a log's beginning on. etcd
// starts at the newest *.snap file that its log knows, and from 3.8 on at the log's record.
func TestJudgeStart_OldestFilesDeleted_Reported(t *testing.T) {
	size := wal.SegmentSizeBytes
	wal.SegmentSizeBytes = 4 << 10
	defer func() { wal.SegmentSizeBytes = size }()
	for _, c := range []struct {
		name             string
		deleted          int
		snap             bool
		missing, noteHas string
	}{
		{"whole", 0, false, "", ""},
		{"purged up to a snapshot, as etcd does", 2, true, "", ""},
		{"purged up to a snapshot, as etcd 3.8 does", 2, false, "", "etcd 3.8 needs none"},
		{"behind the snapshot", 5, true, "etcd has to start at 30", ""},
		{"behind the snapshot, and no file", 5, false, "etcd has to start at 0", ""},
	} {
		dir := t.TempDir()
		walDir, snapDir := filepath.Join(dir, "member", "wal"), filepath.Join(dir, "member", "snap")
		require.NoError(t, os.MkdirAll(snapDir, 0o700))
		w, err := wal.Create(zap.NewNop(), walDir, encode(t, &etcdserverpb.Metadata{NodeID: proto.Uint64(1), ClusterID: proto.Uint64(2)}))
		require.NoError(t, err)
		for i := uint64(1); i <= 60; i++ {
			kind := raftpb.EntryNormal
			entry := &raftpb.Entry{Index: &i, Term: proto.Uint64(1), Type: &kind, Data: make([]byte, 400)}
			require.NoError(t, w.Save(&raftpb.HardState{Term: proto.Uint64(1), Vote: proto.Uint64(1), Commit: &i}, []*raftpb.Entry{entry}))
			if i == 55 {
				require.NoError(t, w.SaveSnapshot(&walpb.Snapshot{Index: proto.Uint64(30), Term: proto.Uint64(1), ConfState: &raftpb.ConfState{Voters: []uint64{1}}}))
			}
		}
		require.NoError(t, w.Close())
		if c.snap {
			require.NoError(t, snap.New(zap.NewNop(), snapDir).SaveSnap(&raftpb.Snapshot{Data: []byte("x"), Metadata: &raftpb.SnapshotMetadata{Index: proto.Uint64(30), Term: proto.Uint64(1)}}))
		}
		names, err := filepath.Glob(filepath.Join(walDir, "*.wal"))
		require.NoError(t, err)
		for _, name := range names[:c.deleted] {
			require.NoError(t, os.Remove(name))
		}
		log, err := walfile.Open(walDir)
		require.NoError(t, err)
		s, err := log.Summary(t.Context())
		require.NoError(t, err)
		missing, note, err := JudgeStart(dir, log, s)
		require.NoError(t, err)
		if (missing != "") != (c.missing != "") || !strings.Contains(missing, c.missing) || (note != "") != (c.noteHas != "") || !strings.Contains(note, c.noteHas) {
			t.Errorf("%s (%d files): missing %q, note %q", c.name, len(names), missing, note)
		}
	}
}

func encode(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	require.NoError(t, err)
	return b
}
