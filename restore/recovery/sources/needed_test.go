package sources

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/walreplay/walfile"
)

// cutIntoFiles writes a survivor's log anew, in many small files.
func cutIntoFiles(t *testing.T, s Survivor) Survivor {
	t.Helper()
	from, err := walfile.Open(filepath.Join(s.DataDir, "member", "wal"))
	require.NoError(t, err)
	id := from.Identity()
	meta, err := proto.Marshal(&etcdserverpb.Metadata{NodeID: &id.MemberID, ClusterID: &id.ClusterID})
	require.NoError(t, err)
	c := Survivor{Name: s.Name, DataDir: t.TempDir()}
	require.NoError(t, os.Mkdir(filepath.Join(c.DataDir, "member"), 0o700))
	w, err := wal.Create(nil, filepath.Join(c.DataDir, "member", "wal"), meta)
	require.NoError(t, err)
	for e, err := range from.Entries(t.Context(), 0) {
		require.NoError(t, err)
		require.NoError(t, w.Save(&raftpb.HardState{Term: &e.Term, Vote: proto.Uint64(1), Commit: &e.Index}, []*raftpb.Entry{e.Raft()}))
	}
	require.NoError(t, w.Close())
	return c
}

// Of a log that is larger than what is needed only the files from where the
// pieces meet on are brought, and they suffice.
func (m *leftoverCase) needed(t *testing.T) {
	late := cutIntoFiles(t, m.late)
	s := m.source(Piece{Owner: "m1", First: m.begin + 1, Last: m.oldEnd}, Piece{Owner: "m2", First: m.oldEnd + 1, Last: m.end})
	places := bring(t, s, m.old, late)
	count := func(dir string) int {
		files, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
		require.NoError(t, err)
		return len(files)
	}
	if brought, all := count(places["m2"].DataDir), count(late.DataDir); brought >= all || brought == 0 {
		t.Errorf("%d of %d files were brought", brought, all)
	}
	m.checkEnd(t, state(t, RebuildRequest{Source: s, Places: places}))
}
