package verify_test

import (
	"bytes"
	"crypto/sha256"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/etcdserver/api/snap/snappb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/verify"
	"github.com/requorum/requorum/verify/report"
)

// saved is the database as the member serves it now.
func (m *member) saved() []byte {
	m.Helper()
	r, err := m.kv.Snapshot(m.Context())
	require.NoError(m, err)
	defer r.Close()
	data, err := io.ReadAll(r)
	require.NoError(m, err)
	return data[:len(data)-sha256.Size]
}

// A database that is older than the raft snapshot which etcd begins with is found:
// etcd does not start on it, unless a leader's database of that index is there. A
// snapshot that the log does not know is none that etcd begins with.
func TestDatabaseBehindItsSnapshot(t *testing.T) {
	m := newMember(t)
	old := m.saved()
	m.load(200)
	m.cluster.Kill()
	folder := filepath.Join(m.dir, "member", "snap")
	db := filepath.Join(folder, "db")
	snaps, _ := filepath.Glob(filepath.Join(folder, "*.snap"))
	slices.Sort(snaps)
	newest := strings.TrimSuffix(filepath.Base(snaps[len(snaps)-1]), ".snap")
	whole := read(t, db)

	unknown, term, index := filepath.Join(folder, "0000000000000002-00000000000fffff.snap"), uint64(2), uint64(0xfffff)
	inner, _ := proto.Marshal(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Term: &term, Index: &index}, Data: []byte("x")})
	crc := crc32.Checksum(inner, crc32.MakeTable(crc32.Castagnoli))
	outer, _ := proto.Marshal(&snappb.Snapshot{Crc: &crc, Data: inner})
	write(t, unknown, outer)
	leaders := filepath.Join(folder, "00000000000fffff.snap.db") // arrives before the log has its record
	write(t, leaders, whole)
	if r := m.verify(report.Structure); len(r.Findings()) > 0 || r.Status() != report.Passed {
		t.Errorf("a healthy member: %+v", r.Checks)
	}
	require.NoError(t, os.Remove(leaders))
	if f := m.verify(report.Structure).Findings(); len(f) != 1 || f[0].Kind != report.KindLogCut {
		t.Errorf("a raft snapshot of the member's own that its log does not reach: %+v", f)
	}
	require.NoError(t, os.Remove(unknown))

	write(t, db, old)
	r := m.verify(report.Drill)
	if f := r.Findings(); len(f) != 1 || f[0].Kind != report.KindFacts || f[0].Object != db || !strings.Contains(f[0].Text, newest+".snap") || !strings.Contains(f[0].Text, "etcd refuses to start") {
		t.Errorf("%s: %+v", statuses(r), r.Checks)
	}

	received := filepath.Join(folder, newest[len(newest)-16:]+".snap.db")
	write(t, received, whole)
	if r := m.verify(report.Structure); len(r.Findings()) > 0 {
		t.Errorf("with what the leader sent: %+v", r.Checks)
	}
}

// The log of another cluster in a member's folder is found, and not replayed.
func TestLogOfAnotherCluster(t *testing.T) {
	m, other := newMember(t), newMember(t)
	other.load(300)
	m.cluster.Kill()
	other.cluster.Kill()
	wal := filepath.Join(m.dir, "member", "wal")
	require.NoError(t, os.RemoveAll(wal))
	require.NoError(t, os.CopyFS(wal, os.DirFS(filepath.Join(other.dir, "member", "wal"))))
	r := m.verify(report.Drill)
	f := r.Findings()
	if len(f) != 1 || f[0].Kind != report.KindMixed || f[0].Object != m.dir || !strings.Contains(f[0].Text, "does not know as a member") {
		t.Errorf("%+v", r.Checks)
	}
	if got := statuses(r); !strings.HasSuffix(got, "structure damaged, replay unchecked, drill unchecked") {
		t.Error(got)
	}
}

// A mistyped folder is no damage.
func TestNoDataDirectory(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "member", "snap"), 0o700))
	file := filepath.Join(dir, "file")
	write(t, file, bytes.Repeat([]byte("x"), 10))
	const other = "want the folder that holds member/"
	for path, want := range map[string]string{filepath.Join(dir, "none"): other, filepath.Join(dir, "member"): "name " + dir, t.TempDir(): other, file: other} {
		if r, err := verify.DataDir(t.Context(), path, "", verify.Request{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", path, r, err)
		}
	}
	if r, err := verify.DataDir(t.Context(), dir, filepath.Join(dir, "none"), verify.Request{}); err == nil || !strings.Contains(err.Error(), "--wal-dir") {
		t.Errorf("%v, %v", r, err)
	}
	// One that has lost everything is damaged.
	r, err := verify.DataDir(t.Context(), dir, "", verify.Request{})
	if err != nil || r.Status() != report.Damaged {
		t.Errorf("%v, %v", r, err)
	}
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, data, 0o600))
}
