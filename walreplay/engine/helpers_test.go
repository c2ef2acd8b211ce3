package engine

import (
	"iter"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// empty is the path of an empty database.
func empty(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	return path
}

func open(t testing.TB, path string, o Options) *Engine {
	t.Helper()
	e, err := Open(t.Context(), path, o)
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() }) // again, after a failure
	return e
}

// seq gives entries as a log does.
func seq(entries []raftlog.Entry) iter.Seq2[raftlog.Entry, error] {
	return func(yield func(raftlog.Entry, error) bool) {
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// logOf numbers entries of these requests (*pb.InternalRaftRequest, with a
// header when they have none), membership changes (*raftpb.ConfChange), raw data
// ([]byte; nil is a no-op) from first on.
func logOf(t testing.TB, first uint64, what ...any) []raftlog.Entry {
	t.Helper()
	var entries []raftlog.Entry
	for i, w := range what {
		e := raftlog.Entry{Index: first + uint64(i), Term: 2}
		var err error
		switch w := w.(type) {
		case nil:
		case []byte:
			e.Data = w
		case *pb.InternalRaftRequest:
			if w.Header == nil {
				w.Header = &pb.RequestHeader{ID: e.Index}
			}
			e.Data, err = proto.Marshal(w)
		case *raftpb.ConfChange:
			e.Type = raftpb.EntryConfChange
			e.Data, err = proto.Marshal(w)
		default:
			t.Fatalf("%T is nothing to log", w)
		}
		require.NoError(t, err)
		entries = append(entries, e)
	}
	return entries
}

func applyAll(t testing.TB, e Replayer, entries []raftlog.Entry) {
	t.Helper()
	for _, x := range entries {
		require.NoError(t, e.Apply(x))
	}
}

// replayed is what the database at path holds after the entries.
func replayed(t testing.TB, path string, o Options, entries []raftlog.Entry) contents {
	t.Helper()
	e := open(t, path, o)
	_, err := Run(t.Context(), e, seq(entries), RunOptions{})
	require.NoError(t, err)
	require.NoError(t, e.Close())
	return storetest.ReadContents(t, path)
}

// contents is all of a database: bucket, key, value.
type contents = storetest.Contents

// expectEqual fails with at most ten differences.
func expectEqual(t testing.TB, got, want contents) {
	t.Helper()
	d := got.Differences(want)
	for _, s := range d[:min(10, len(d))] {
		t.Error(s)
	}
	if len(d) > 10 {
		t.Errorf("and %d more differences", len(d)-10)
	}
}
