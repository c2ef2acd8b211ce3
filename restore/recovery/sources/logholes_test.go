package sources

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// written is a member that has no database yet, and a log in many small files.
// Where the entries jump, a leader's snapshot came.
func written(t *testing.T, name string, member uint64, parts ...Range) Survivor {
	t.Helper()
	s := Survivor{Name: name, DataDir: t.TempDir()}
	require.NoError(t, os.Mkdir(filepath.Join(s.DataDir, "member"), 0o700))
	meta, err := proto.Marshal(&etcdserverpb.Metadata{NodeID: &member, ClusterID: proto.Uint64(7)})
	require.NoError(t, err)
	w, err := wal.Create(nil, s.logDir(), meta)
	require.NoError(t, err)
	w.SetUnsafeNoFsync()
	term := uint64(2)
	for i, part := range parts {
		if i > 0 {
			before := part.First - 1
			state := raftpb.ConfState{Voters: []uint64{1, 2}}
			require.NoError(t, w.SaveSnapshot(&walpb.Snapshot{Index: &before, Term: &term, ConfState: &state}))
			require.NoError(t, w.Save(&raftpb.HardState{Term: &term, Vote: proto.Uint64(1), Commit: &before}, nil))
		}
		for index := part.First; index <= part.Last; index++ {
			e := &raftpb.Entry{Index: &index, Term: &term, Type: raftpb.EntryNormal.Enum(), Data: fmt.Appendf(nil, "\xff%d %s", index, strings.Repeat("v", 1000))}
			if index < 3 {
				change, err := proto.Marshal(&raftpb.ConfChange{Id: proto.Uint64(0), NodeId: &index, Type: raftpb.ConfChangeAddNode.Enum(), Context: fmt.Appendf(nil, `{"id":%d,"peerURLs":["http://h%d:2380"],"name":"m%d"}`, index, index, index)})
				require.NoError(t, err)
				e.Type, e.Data = raftpb.EntryConfChange.Enum(), change
			}
			require.NoError(t, w.Save(&raftpb.HardState{Term: &term, Vote: proto.Uint64(1), Commit: &index}, []*raftpb.Entry{e}))
		}
	}
	require.NoError(t, w.Close())
	return s
}

// Logs of which older files are gone, or that a leader's snapshot took a part of.
func TestLogsWithHoles(t *testing.T) {
	whole, gap := written(t, "m1", 1, Range{1, 400}), written(t, "m2", 2, Range{1, 50}, Range{120, 380})
	missing := func(name string, which ...int) Survivor {
		s := written(t, name, 1, Range{1, 300})
		files, err := filepath.Glob(filepath.Join(s.logDir(), "*.wal"))
		if err != nil || len(files) < 5 {
			t.Fatal(files, err)
		}
		slices.Sort(files)
		for _, i := range which {
			require.NoError(t, os.Remove(files[i]))
		}
		return s
	}
	first, middle := missing("first", 0), missing("middle", 2)
	f := surveyed(t, whole, gap, first, middle)
	if s := f.Survivors[1].Log.Ranges; len(s) != 2 || s[1].First != 120 {
		t.Errorf("a leader's snapshot: %+v", s)
	}
	if f.Survivors[2].Log.FirstIndex < 2 || !has(f.Survivors[3].Findings, KindMissing) {
		t.Errorf("files are gone: %+v\n%+v", f.Survivors[2], f.Survivors[3])
	}
	if len(f.Relations) != 6 {
		t.Errorf("%+v", f.Relations)
	}
}
