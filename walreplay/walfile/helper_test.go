package walfile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/walreplay/raftlog"
)

var testIdentity = Identity{ClusterID: 0xc1, MemberID: 0xa1}

// small makes etcd cut its segments at a size. It is a global of etcd's: such
// tests don't run in parallel.
func small(t testing.TB, size int64) {
	before := wal.SegmentSizeBytes
	wal.SegmentSizeBytes = size
	t.Cleanup(func() { wal.SegmentSizeBytes = before })
}

// writer writes a log with etcd's own package.
type writer struct {
	t   testing.TB
	dir string
	*wal.WAL
	term uint64
}

func newWriter(t testing.TB, dir string, id Identity) *writer {
	t.Helper()
	meta, err := proto.Marshal(&etcdserverpb.Metadata{NodeID: &id.MemberID, ClusterID: &id.ClusterID})
	check(t, err)
	w, err := wal.Create(nil, dir, meta)
	check(t, err)
	w.SetUnsafeNoFsync()
	out := &writer{t: t, dir: dir, WAL: w}
	t.Cleanup(out.close)
	return out
}

func check(t testing.TB, err error) {
	t.Helper()
	require.NoError(t, err)
}

func (w *writer) close() {
	if w.WAL != nil {
		check(w.t, w.Close())
		w.WAL = nil
	}
}

// save writes entries and a commit index as etcd does; 0 leaves the state out.
func (w *writer) save(commit uint64, entries ...raftlog.Entry) {
	w.t.Helper()
	var list []*raftpb.Entry
	term := w.term
	for _, e := range entries {
		list = append(list, e.Raft())
		term = max(term, e.Term)
	}
	var state *raftpb.HardState
	if commit > 0 {
		state = &raftpb.HardState{Term: &term, Vote: proto.Uint64(1), Commit: &commit}
		w.term = term
	}
	check(w.t, w.Save(state, list))
}

// entriesOf makes entries from one index to another.
func entriesOf(from, to, term uint64, size int) []raftlog.Entry {
	var out []raftlog.Entry
	for i := from; i <= to; i++ {
		out = append(out, raftlog.Entry{Index: i, Term: term, Data: put(fmt.Sprintf("key-%d-%d", i, term), size)})
	}
	return out
}

// put is the data of an entry as etcd 3.7 has it.
func put(key string, size int) []byte {
	r := &etcdserverpb.InternalRaftRequest{Header: &etcdserverpb.RequestHeader{ID: 7}, Put: &etcdserverpb.PutRequest{Key: []byte(key), Value: bytes.Repeat([]byte("v"), size)}}
	b, err := proto.Marshal(r)
	if err != nil {
		panic(err)
	}
	return b
}

// segments are the paths of the segments in a directory.
func segments(t testing.TB, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	check(t, err)
	slices.Sort(found)
	return found
}

// entriesIn reads a log to its end.
func entriesIn(t testing.TB, dir string, first uint64) ([]raftlog.Entry, error) {
	t.Helper()
	l, err := Open(dir)
	check(t, err)
	var out []raftlog.Entry
	for e, err := range l.Entries(t.Context(), first) {
		if err != nil {
			return out, err
		}
		e.Data = bytes.Clone(e.Data)
		out = append(out, e)
	}
	return out, nil
}

func wantEntries(t testing.TB, got, want []raftlog.Entry) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Fatalf("%d entries, want %d: the first one missing is %s", len(got), len(want), want[i])
		case i >= len(want):
			t.Fatalf("%d entries, want %d: the first one too many is %s", len(got), len(want), got[i])
		case !got[i].Equal(want[i]):
			t.Fatalf("entry number %d is %s, want %s", i, got[i], want[i])
		}
	}
}

func wantCorrupt(t testing.TB, err error, segment string, offset int64) *CorruptError {
	t.Helper()
	var c *CorruptError
	if !errors.As(err, &c) {
		t.Fatalf("error %v, want a CorruptError of %s", err, segment)
	}
	if c.Segment != filepath.Base(segment) || offset >= 0 && c.Offset != offset {
		t.Fatalf("damage is said to be in %s at %d, want %s at %d: %v", c.Segment, c.Offset, filepath.Base(segment), offset, err)
	}
	return c
}

// frames are the offsets of the records in a segment, the end of the last one
// with them.
func frames(t testing.TB, path string) []int64 {
	t.Helper()
	f, err := os.Open(path)
	check(t, err)
	defer f.Close()
	info, err := f.Stat()
	check(t, err)
	r := newReader(f, 0, info.Size(), chain{})
	out := []int64{0}
	for {
		rec, err := r.next()
		if err != nil {
			return out
		}
		out = append(out, rec.end)
	}
}

// patch changes bytes of a file.
func patch(t testing.TB, path string, at int64, b []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	check(t, err)
	defer f.Close()
	_, err = f.WriteAt(b, at)
	check(t, err)
}

func flip(t testing.TB, path string, at int64) {
	t.Helper()
	b, err := os.ReadFile(path)
	check(t, err)
	patch(t, path, at, []byte{b[at] ^ 0x10})
}
