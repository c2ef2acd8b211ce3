package engine

import (
	"bytes"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	bolt "go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// empty is the path of an empty database.
func empty(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t testing.TB, path string, o Options) Engine {
	t.Helper()
	e, err := Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	return entries
}

func applyAll(t testing.TB, e Engine, entries []raftlog.Entry) {
	t.Helper()
	for _, x := range entries {
		if err := e.Apply(x); err != nil {
			t.Fatal(err)
		}
	}
}

// replayed is what the database at path holds after the entries.
func replayed(t testing.TB, path string, o Options, entries []raftlog.Entry) contents {
	t.Helper()
	e := open(t, path, o)
	if _, err := Run(t.Context(), e, seq(entries), RunOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	return read(t, path)
}

// contents is all of a database: bucket, key, value.
type contents map[string]map[string][]byte

func read(t testing.TB, path string) contents {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	c := contents{}
	err = db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			t.Errorf("%s: %v", path, err)
		}
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			rows := map[string][]byte{}
			c[string(name)] = rows
			return b.ForEach(func(k, v []byte) error {
				rows[string(k)] = bytes.Clone(v)
				return nil
			})
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// differences names each row that differs.
func (c contents) differences(o contents) []string {
	var all []string
	names := map[string]bool{}
	for name := range c {
		names[name] = true
	}
	for name := range o {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		keys := map[string]bool{}
		for k := range c[name] {
			keys[k] = true
		}
		for k := range o[name] {
			keys[k] = true
		}
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			a, here := c[name][k]
			b, there := o[name][k]
			if here != there || !bytes.Equal(a, b) {
				all = append(all, fmt.Sprintf("%s/%s: %s, want %s", name, printable(k), shown(a, here), shown(b, there)))
			}
		}
		if (c[name] == nil) != (o[name] == nil) {
			all = append(all, fmt.Sprintf("bucket %s is there: %v, want %v", name, c[name] != nil, o[name] != nil))
		}
	}
	return all
}

func printable(k string) string {
	for _, r := range []byte(k) {
		if r < ' ' || r > '~' {
			return fmt.Sprintf("%x", k)
		}
	}
	return k
}

func shown(v []byte, there bool) string {
	if !there {
		return "nothing"
	}
	return fmt.Sprintf("%.80q", v)
}

// expectEqual fails with at most ten differences.
func expectEqual(t testing.TB, got, want contents) {
	t.Helper()
	d := got.differences(want)
	for _, s := range d[:min(10, len(d))] {
		t.Error(s)
	}
	if len(d) > 10 {
		t.Errorf("and %d more differences", len(d)-10)
	}
}
