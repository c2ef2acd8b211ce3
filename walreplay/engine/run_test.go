package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// history applies one entry after the other and keeps where that led to: the
// deliberately dumb way to know where a run must stop.
func history(t *testing.T, entries []raftlog.Entry) []int64 {
	t.Helper()
	e := open(t, empty(t), Options{})
	revisions := []int64{e.Revision()}
	for _, x := range entries {
		require.NoError(t, e.Apply(x))
		revisions = append(revisions, e.Revision())
	}
	return revisions
}

// Promise 5: a run to a revision ends at the last index of that revision, wherever that
// lies, and the file holds exactly that; an Engine reports the entry behind it, and gets
// there when it begins again.
func TestPromise5RunToRevision(t *testing.T) {
	entries := generate(t, 7, 400)
	revisions := history(t, entries)
	newest := revisions[len(revisions)-1]
	for target := int64(1); target <= newest; target += 1 + target/40 {
		want := len(revisions) - 1
		for want > 0 && revisions[want] > target {
			want--
		}
		e := open(t, empty(t), Options{})
		_, err := Run(t.Context(), e, seq(entries), RunOptions{MaxRevision: target})
		var past *PastError
		if want < len(entries) && (!errors.As(err, &past) || past.Index != uint64(want+1)) || want == len(entries) && err != nil {
			t.Errorf("to revision %d: %v, want entry %d to be past it", target, err, want+1)
		}
		require.NoError(t, e.Close())
		path := filepath.Join(t.TempDir(), "bulk")
		b, err := OpenBulk(t.Context(), empty(t), path, Options{})
		require.NoError(t, err)
		stopped, err := Run(t.Context(), b, seq(entries), RunOptions{MaxRevision: target})
		require.NoError(t, err)
		if stopped.Index != uint64(want) || stopped.Revision != target {
			t.Errorf("to revision %d: %+v, want index %d", target, stopped, want)
		}
		require.NoError(t, b.Close())
		if target%5 == 0 {
			expectEqual(t, storetest.ReadContents(t, path), replayed(t, empty(t), Options{}, entries[:want]))
		}
		again := open(t, path, Options{})
		if index, _ := again.Applied(); index != stopped.Index || again.Revision() != target {
			t.Errorf("opened again: index %d, revision %d, want those of %+v", index, again.Revision(), stopped)
		}
		again.Close()
	}
}

func TestRunToIndexAndPast(t *testing.T) {
	entries := generate(t, 8, 300)
	path := empty(t)
	e := open(t, path, Options{})
	var seen []uint64
	stopped, err := Run(t.Context(), e, seq(entries), RunOptions{Last: 200, MaxRevision: 1 << 40, Progress: func(i uint64) { seen = append(seen, i) }})
	if err != nil || stopped.Index != 200 || stopped.Term != 2 {
		t.Fatalf("%+v, %v", stopped, err)
	}
	if !slices.IsSorted(seen) || len(seen) == 0 || seen[len(seen)-1] != 200 {
		t.Errorf("progress was %v", seen)
	}
	// The same engine goes on, and says when it is there already.
	if stopped, err = Run(t.Context(), e, seq(entries), RunOptions{Last: 200}); err != nil || stopped.Index != 200 {
		t.Errorf("%+v, %v", stopped, err)
	}
	var order *OrderError
	if _, err := Run(t.Context(), e, seq(entries), RunOptions{}); !errors.As(err, &order) {
		t.Errorf("from the beginning again: %v", err)
	}
	_, err = Run(t.Context(), e, seq(nil), RunOptions{Last: 199})
	require.ErrorContains(t, err, "at index 200, past 199", "to an index that lies behind")
	_, err = Run(t.Context(), e, seq(nil), RunOptions{MaxRevision: e.Revision() - 1})
	require.ErrorContains(t, err, "at revision", "to a revision that lies behind")
	if stopped, err = Run(t.Context(), e, seq(entries[200:]), RunOptions{Last: 1000}); err != nil || stopped.Index != uint64(len(entries)) {
		t.Errorf("to an index that does not come: %+v, %v", stopped, err)
	}
	require.NoError(t, e.Close())
	expectEqual(t, storetest.ReadContents(t, path), replayed(t, empty(t), Options{}, entries))
}

// A watch sees every change, as a look at all rows does afterwards. The log
// has no compactions, so that all rows are there.
func TestWatch(t *testing.T) {
	var what []any
	for i, e := range generate(t, 9, 2000) {
		if kind, _ := Kind(e); kind != "compaction" {
			what = append(what, e.Data)
			if kind == KindConfChange {
				what[len(what)-1] = decode(e).change
			}
			if i >= 0 && e.Data == nil {
				what[len(what)-1] = nil
			}
		}
	}
	entries := logOf(t, 1, what...)
	revisions := history(t, entries)
	all := replayed(t, empty(t), Options{}, entries)
	type row struct {
		revision int64
		sub      int
		key      string
		deleted  bool
	}
	var want []row
	for _, k := range slices.Sorted(maps.Keys(all["key"])) {
		r := mvcc.BytesToBucketKey([]byte(k))
		if r.Main == 1 { // the mark of an empty store's compaction
			continue
		}
		key, err := keyOf(all["key"][k])
		require.NoError(t, err)
		want = append(want, row{r.Main, int(r.Sub), string(key), len(k) > 17})
	}
	var got []row
	_, err := Run(t.Context(), open(t, empty(t), Options{}), seq(entries), RunOptions{Watch: func(c Change) error {
		r := row{revision: c.Revision, key: string(c.Key), deleted: c.Deleted}
		if n := len(got); n > 0 && got[n-1].revision == c.Revision {
			r.sub = got[n-1].sub + 1
		}
		if got = append(got, r); revisions[c.Index] != c.Revision {
			t.Errorf("revision %d is reported to be of entry %d, which leads to %d", c.Revision, c.Index, revisions[c.Index])
		}
		return nil
	}})
	require.NoError(t, err)
	if len(want) < 500 || len(got) != len(want) {
		t.Fatalf("saw %d rows, the database has %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("row %d: saw %+v, want %+v", i, got[i], want[i])
		}
	}
}

// Keys that go with their lease or in a range count; refused requests do not. What a
// change says of keys before it is exact, also right behind a compaction.
func TestWatchSeesDeletions(t *testing.T) {
	leased := putOf("a", "1")
	leased.Put.Lease = 5
	refused := putOf("a", "2")
	refused.Put.Lease = 6
	entries := logOf(t, 1,
		&pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: 5, TTL: 10}}, leased, refused,
		putOf("b", "1"), &pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: 5}}, refused,
		&pb.InternalRaftRequest{DeleteRange: &pb.DeleteRangeRequest{Key: []byte("a")}}, putOf("b", "2"),
		&pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: 5, Physical: true}},
		&pb.InternalRaftRequest{DeleteRange: &pb.DeleteRangeRequest{Key: []byte("0"), RangeEnd: []byte{0}}})
	var got []string
	_, err := Run(t.Context(), open(t, empty(t), Options{}), seq(entries), RunOptions{Watch: func(c Change) error {
		value, err := c.Value()
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%d/%d %s %q deleted=%v", c.Index, c.Revision, c.Key, value, c.Deleted)
		for _, key := range []string{"a", "b"} {
			kv, err := c.Before([]byte(key), true)
			if err != nil {
				return err
			}
			meta, err := c.Before([]byte(key), false)
			if err != nil {
				return err
			}
			if (kv == nil) != (meta == nil) || kv != nil && (kv.ModRevision != meta.ModRevision || kv.CreateRevision != meta.CreateRevision) {
				t.Errorf("%s: %s was %v, and without its value %v", line, key, kv, meta)
			}
			if kv != nil {
				line += fmt.Sprintf(" %s=%s@%d-%d", key, kv.Value, kv.CreateRevision, kv.ModRevision)
			}
		}
		got = append(got, line)
		return nil
	}})
	want := []string{
		`2/2 a "1" deleted=false`,
		`4/3 b "1" deleted=false a=1@2-2`,
		`5/4 a "" deleted=true a=1@2-2 b=1@3-3`,
		`8/5 b "2" deleted=false b=1@3-3`,
		`10/6 b "" deleted=true b=2@3-5`,
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, saw\n%s\nwant\n%s", err, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	broken := errors.New("seen enough")
	stopped, err := Run(t.Context(), open(t, empty(t), Options{}), seq(entries), RunOptions{Watch: func(Change) error { return broken }})
	if !errors.Is(err, broken) || stopped.Index != 2 {
		t.Errorf("%+v, %v", stopped, err)
	}
}

// What ends a log early ends the run, and nothing is left running.
func TestRunEndsEarly(t *testing.T) {
	entries := generate(t, 10, 1500)
	broken := errors.New("the segment is damaged")
	t.Run("broken log", func(t *testing.T) {
		e := open(t, empty(t), Options{})
		var source iter.Seq2[raftlog.Entry, error] = func(yield func(raftlog.Entry, error) bool) {
			for _, x := range entries[:700] {
				if !yield(x, nil) {
					return
				}
			}
			yield(raftlog.Entry{}, broken)
		}
		stopped, err := Run(t.Context(), e, source, RunOptions{})
		if !errors.Is(err, broken) || stopped.Index != 700 {
			t.Errorf("%+v, %v", stopped, err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		e := open(t, empty(t), Options{})
		ended := false
		var source iter.Seq2[raftlog.Entry, error] = func(yield func(raftlog.Entry, error) bool) {
			defer func() { ended = true }()
			for _, x := range entries {
				if x.Index == 600 {
					cancel()
				}
				if !yield(x, nil) {
					return
				}
			}
		}
		if _, err := Run(ctx, e, source, RunOptions{}); !errors.Is(err, context.Canceled) || !ended {
			t.Errorf("%v; the log was let go: %v", err, ended)
		}
	})
	t.Run("an entry that cannot be applied", func(t *testing.T) {
		e := open(t, empty(t), Options{})
		bad := slices.Clone(entries)
		bad[650].Data = []byte{0xff}
		stopped, err := Run(t.Context(), e, seq(bad), RunOptions{})
		var entry *EntryError
		if !errors.As(err, &entry) || entry.Index != 651 || stopped.Index != 650 {
			t.Errorf("%+v, %v", stopped, err)
		}
	})
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage")
	require.NoError(t, os.WriteFile(garbage, bytes.Repeat([]byte("no database"), 2000), 0o600))
	busy := empty(t)
	open(t, busy, Options{})
	for name, path := range map[string]string{"nothing": filepath.Join(dir, "nothing"), "a folder": dir, "garbage": garbage, "open elsewhere": busy} {
		if e, err := Open(t.Context(), path, Options{}); err == nil {
			t.Errorf("%s was opened", name)
			e.Close()
		}
	}
	_, err := os.Stat(filepath.Join(dir, "nothing"))
	require.Error(t, err, "a missing database was made")
}

// However far the disk lets it come, an Engine makes the whole database or fails, with the
// entry or when it is closed: etcd would end the process.
func TestEngine_FullDisk_Fails(t *testing.T) {
	remove := &pb.InternalRaftRequest{DeleteRange: &pb.DeleteRangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}}
	var what []any
	for i := range 300 {
		what = append(what, putOf(fmt.Sprintf("key/%04d", i), strings.Repeat("x", 1000)))
		if i%50 == 49 { // etcd commits at once
			what = append(what, remove, &pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: int64(i), Physical: true}})
		}
	}
	entries := logOf(t, 1, what...)
	want := replayed(t, empty(t), Options{}, entries)
	dir := storetest.SmallDisk(t, "64k")
	path := filepath.Join(dir, "db")
	failed := 0
	for size := 64; ; size += 16 {
		storetest.GrowDisk(t, dir, fmt.Sprintf("%dk", size))
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		e, err := Open(t.Context(), path, Options{})
		if err == nil {
			_, err = Run(t.Context(), e, seq(entries), RunOptions{})
			err = errors.Join(err, e.Close())
		}
		if err == nil {
			break
		}
		failed++
		require.NoError(t, os.Remove(path))
	}
	expectEqual(t, storetest.ReadContents(t, path), want)
	if failed < 10 {
		t.Errorf("the disk was full %d times only", failed)
	}
}
