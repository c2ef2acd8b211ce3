package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/membershippb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// bulked is the path of what Bulk makes of the database at path and the entries. The error is one of
// opening or applying.
func bulked(t testing.TB, path string, o Options, entries []raftlog.Entry, ro RunOptions) (out string, stopped Stopped, err error) {
	t.Helper()
	out = filepath.Join(t.TempDir(), "bulk")
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	b, err := OpenBulk(t.Context(), path, out, o)
	if err != nil {
		expectFiles(t, filepath.Dir(out))
		return "", stopped, err
	}
	stopped, err = Run(t.Context(), b, seq(entries), ro)
	if closed := b.Close(); closed != nil {
		t.Fatal(closed)
	}
	if err != nil {
		expectFiles(t, filepath.Dir(out))
		return "", stopped, err
	}
	expectFiles(t, filepath.Dir(out), "bulk")
	expectSound(t, out)
	expectHash(t, out, b.HashKV())
	if after, err := os.ReadFile(path); err != nil || !slices.Equal(before, after) {
		t.Errorf("it changed the database that it began with: %v", err)
	}
	return out, stopped, nil
}

// expectSound has our own checks of a database's pages look at what Bulk wrote; bbolt's are
// in storetest.ReadContents.
func expectSound(t testing.TB, path string) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	info, err := f.Stat()
	require.NoError(t, err)
	require.NoError(t, snapshot.CheckStructure(t.Context(), path, f, info.Size()))
}

// expectHash reads the hash of a database again.
func expectHash(t testing.TB, path string, want snapshot.HashKV) {
	t.Helper()
	f, err := snapshot.OpenFile(path)
	require.NoError(t, err)
	got, err := f.HashKV(t.Context(), 0)
	require.NoError(t, err)
	if got != want {
		t.Errorf("HashKV while it was written was %+v, and is %+v", want, got)
	}
}

func expectFiles(t testing.TB, dir string, want ...string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range all {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, want) {
		t.Errorf("files %v are there, want %v", names, want)
	}
}

// etcds is the path of what etcd's applier makes of a copy of the database at path. The error is that of an
// entry that would have ended a member.
func etcds(t testing.TB, path string, o Options, entries []raftlog.Entry, ro RunOptions) (string, Stopped, error) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	out := filepath.Join(t.TempDir(), "etcd")
	require.NoError(t, os.WriteFile(out, data, 0o600))
	e := open(t, out, o)
	stopped, err := Run(t.Context(), e, seq(entries), ro)
	var past *PastError
	if errors.As(err, &past) {
		require.NoError(t, e.Close())
		ro.Last, ro.MaxRevision = past.Index-1, 0
		return etcds(t, path, o, entries[:past.Index-entries[0].Index], ro)
	}
	var entry *EntryError
	if err != nil && !errors.As(err, &entry) {
		t.Fatal(err)
	}
	if closed := e.Close(); closed != nil {
		t.Fatal(closed)
	}
	return out, stopped, err
}

// A log of the differential test.
type randomLog struct {
	seed    uint64
	entries []raftlog.Entry
	options Options
	from    int                                             // how many entries are in the base
	base    bool                                            // by Bulk instead of etcd's applier
	change  func(t testing.TB, base string, revision int64) // what happened to the base; may be nil
	bumps   int                                             // so often the base was restored with a higher revision
	marked  bool                                            // and all before that was to be compacted
	run     RunOptions
}

func newRandomLog(t testing.TB, seed uint64) randomLog {
	r := rand.New(rand.NewPCG(seed, 2))
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 3)), t: t, keys: []int{3, 20, 200, 2000}[r.IntN(4)], open: r.IntN(2) == 0, version: []string{"3.5.0", "3.6.0"}[r.IntN(2)]}
	l := randomLog{seed: seed, entries: g.log(20 + r.IntN(400)), base: r.IntN(2) == 0}
	if r.IntN(4) == 0 {
		l.change = unfinish
	}
	l.options.SourceVersion = []string{"", "3.5.9", "3.5.27", "3.5.29", "3.5.30", "3.5.33", "3.6.10", "3.7.0"}[r.IntN(8)]
	l.options.PersistCheckpoints = r.IntN(4) == 0
	l.options.spoolBuffer = []int{1, 500, 4_000, 20_000, 0}[seed%5]
	if r.IntN(3) > 0 {
		l.from = r.IntN(len(l.entries))
	}
	switch r.IntN(4) {
	case 0:
		l.run.Last = uint64(l.from + r.IntN(len(l.entries)-l.from) + 1)
	case 1:
		l.run.MaxRevision = int64(1 + r.IntN(len(l.entries)))
	}
	if r.IntN(4) == 0 {
		l.bumps, l.marked = 1+r.IntN(2), r.IntN(2) == 0
	}
	return l
}

// compare replays the log with both engines. It reports why Bulk did not.
func (l randomLog) compare(t testing.TB) (refused error) {
	t.Helper()
	base := empty(t)
	if l.from > 0 {
		first := l.entries[:l.from]
		made, stopped, fails := etcds(t, base, l.options, first, RunOptions{})
		if l.base || fails != nil {
			byBulk, again, err := bulked(t, base, l.options, first, RunOptions{})
			if err != nil || fails != nil {
				return expectNotBulk(t, err)
			}
			if again != stopped {
				t.Errorf("seed %d: the base stopped at %+v, want %+v", l.seed, again, stopped)
			}
			expectEqual(t, storetest.ReadContents(t, byBulk), storetest.ReadContents(t, made))
			made = byBulk
		}
		if base = made; l.change != nil {
			l.change(t, base, stopped.Revision)
		}
		for range l.bumps {
			stopped.Revision += 1000
			bump(t, base, stopped.Revision, l.marked)
		}
		if l.run.MaxRevision > 0 {
			l.run.MaxRevision = max(l.run.MaxRevision, stopped.Revision)
		}
	}
	out, got, err := bulked(t, base, l.options, l.entries[l.from:], l.run)
	if err != nil {
		return expectNotBulk(t, err)
	}
	wanted, want, err := etcds(t, base, l.options, l.entries[l.from:], l.run)
	require.NoError(t, err, "seed %d: Bulk applies what etcd does not", l.seed)
	if got != want {
		t.Errorf("stopped at %+v, want %+v", got, want)
	}
	expectEqual(t, storetest.ReadContents(t, out), storetest.ReadContents(t, wanted))
	if t.Failed() {
		t.Fatalf("the log is that of seed %d: %d entries, %d of them in the base (by bulk: %v; changed: %v; raised %d times, marked as compacted: %v), %+v, %+v", l.seed, len(l.entries), l.from, l.base, l.change != nil, l.bumps, l.marked, l.options, l.run)
	}
	return nil
}

func expectNotBulk(t testing.TB, err error) error {
	t.Helper()
	require.ErrorIs(t, err, ErrNotBulk)
	return err
}

func update(t testing.TB, path string, change func(tx *bolt.Tx) error) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, errors.Join(db.Update(change), db.Close()))
}

// unfinish schedules a compaction in a database, and does none, half or all of what a member does
// until it is killed: rows go in their order.
func unfinish(t testing.TB, path string, revision int64) {
	t.Helper()
	part := int(revision % 3)
	update(t, path, func(tx *bolt.Tx) error {
		meta := tx.Bucket(schema.Meta.Name())
		if done := meta.Get(schema.FinishedCompactKeyName); done != nil {
			revision = (revision + mvcc.BytesToRev(done).Main + 1) / 2
		}
		return meta.Put(schema.ScheduledCompactKeyName, mvcc.RevToBytes(mvcc.Revision{Main: revision}, mvcc.NewRevBytes()))
	})
	finished := filepath.Join(t.TempDir(), "finished")
	require.NoError(t, os.WriteFile(finished, readFile(t, path), 0o600))
	require.NoError(t, open(t, finished, Options{}).Close())
	stays := storetest.ReadContents(t, finished)[string(keyBucket)]
	var goes []string
	for name := range storetest.ReadContents(t, path)[string(keyBucket)] {
		if _, ok := stays[name]; !ok {
			goes = append(goes, name)
		}
	}
	slices.Sort(goes)
	update(t, path, func(tx *bolt.Tx) error {
		for _, name := range goes[:len(goes)*part/2] {
			if err := tx.Bucket(keyBucket).Delete([]byte(name)); err != nil {
				return err
			}
		}
		return nil
	})
}

// loseLeases leaves keys whose leases are not there.
func loseLeases(t testing.TB, path string, _ int64) {
	t.Helper()
	update(t, path, func(tx *bolt.Tx) error {
		return tx.Bucket(schema.Lease.Name()).ForEach(func(k, _ []byte) error { return tx.Bucket(schema.Lease.Name()).Delete(k) })
	})
}

// bump raises the revision of a database, as restore does, and etcdutl.
func bump(t testing.TB, path string, revision int64, mark bool) {
	t.Helper()
	update(t, path, func(tx *bolt.Tx) error {
		name := mvcc.RevToBytes(mvcc.Revision{Main: revision}, mvcc.NewRevBytes())
		if mark {
			if err := tx.Bucket(schema.Meta.Name()).Put(schema.ScheduledCompactKeyName, name); err != nil {
				return err
			}
		}
		return tx.Bucket(schema.Key.Name()).Put(name, nil)
	})
}

// logs is how many are replayed: set REQUORUM_LOGS for more, and REQUORUM_FIRST_LOG for others.
func logs(t testing.TB) (first, n uint64) {
	n = uint64(storetest.Amount(150, 2500, 12_000))
	for name, into := range map[string]*uint64{"REQUORUM_LOGS": &n, "REQUORUM_FIRST_LOG": &first} {
		if s := os.Getenv(name); s != "" {
			var err error
			if *into, err = strconv.ParseUint(s, 10, 64); err != nil {
				t.Fatal(err)
			}
		}
	}
	return first, n
}

// Promise 1 of Bulk: what it makes of a log is what etcd's applier makes of it, row by row in
// every bucket; what it does not know it leaves.
func TestBulkEqualsEtcd(t *testing.T) {
	first, n := logs(t)
	const together = 8
	reasons := make([]map[string]int, together)
	t.Run("logs", func(t *testing.T) {
		for k := range uint64(together) {
			reasons[k] = map[string]int{}
			t.Run(fmt.Sprint(k), func(t *testing.T) {
				t.Parallel()
				for seed := first + k; seed < first+n; seed += together {
					l := newRandomLog(t, seed)
					t.Run(fmt.Sprint(seed), func(t *testing.T) { // which removes its files
						reason := ""
						if err := l.compare(t); err != nil {
							for err := err; err != nil; err = errors.Unwrap(err) {
								reason = err.Error()
							}
						}
						reasons[k][reason]++
					})
					if t.Failed() {
						return
					}
				}
			})
		}
	})
	all := map[string]int{}
	for _, r := range reasons {
		for why, times := range r {
			all[why] += times
		}
	}
	for _, why := range slices.Sorted(maps.Keys(all)) {
		t.Logf("%5d %s", all[why], why)
	}
	t.Attr("random-logs-from-seed", fmt.Sprint(first))
	t.Attr("random-logs-equal-by-both", fmt.Sprint(all[""]))
	t.Attr("random-logs-left-to-etcd", fmt.Sprint(n-uint64(all[""])))
	if uint64(all[""]) < n*3/4 {
		t.Errorf("only %d of %d logs were replayed by both", all[""], n)
	}
}

// A base that was restored with a higher revision, once or again, is no reason to leave the log
// to etcd's applier: after a recovery most are.
func TestBulkRaisedRevision(t *testing.T) {
	put := func(key string) any {
		return &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte(key), Value: []byte("value")}}
	}
	entries := logOf(t, 1, put("a"), put("b"), put("a"), put("b"), put("c"),
		&pb.InternalRaftRequest{DeleteRange: &pb.DeleteRangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}},
		put("a"), &pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: 2002}}, put("a"))
	for _, bumps := range []int{1, 2} {
		for _, marked := range []bool{false, true} {
			l := randomLog{entries: entries, from: 4, bumps: bumps, marked: marked}
			require.NoError(t, l.compare(t))
		}
	}
}

// A log that fills blocks of the spool and levels of pages, with values larger than those.
func TestBulkLarge(t *testing.T) {
	const spoolBuffer = 1 << 20
	var what []any
	for i, size := range []int{spoolBuffer + 1, 1 << 20, 3 * spoolBuffer, 0, firstBuffer, firstBuffer - 60, firstBuffer - 40} {
		what = append(what, &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: fmt.Appendf(nil, "key/%03d", i), Value: make([]byte, size)}})
		what = append(what, &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: fmt.Appendf(nil, "key/%03d", i), IgnoreValue: true}})
	}
	for i := range 9_000 {
		what = append(what, &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: fmt.Appendf(nil, "key/%03d", i%2000), Value: make([]byte, i%2500)}})
		if i%10 == 0 {
			what = append(what, &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: fmt.Appendf(nil, "key/%03d", i/2%2000), IgnoreValue: true}})
		}
	}
	entries := logOf(t, 1, what...)
	for _, tail := range [][]any{nil, {&pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: 7_000}}}} {
		more := logOf(t, uint64(len(entries)+1), tail...)
		l := randomLog{entries: slices.Concat(entries, more), from: len(entries) / 3, options: Options{spoolBuffer: spoolBuffer}}
		require.NoError(t, l.compare(t))
	}
}

// Whatever number of leaves there is, bbolt finds all of them.
func TestPageWriter(t *testing.T) {
	value := make([]byte, 3000)
	for _, n := range []int{0, 1, 2, 3, 122, 123, 124, 125, 126, 247, 248, 249, 373, 124 * 124, 124*124 + 1} {
		path := filepath.Join(t.TempDir(), "db")
		f, err := os.Create(path)
		require.NoError(t, err)
		w := newPageWriter(f)
		want := contents{"key": {}}
		for i := range n {
			key := boltfile.Revision{Main: int64(i)}.Bytes()
			want["key"][string(key)] = value
			require.NoError(t, w.add(key, value))
		}
		require.NoError(t, errors.Join(w.finish(), f.Close()))
		if now := cap(w.buffer); now > writeBuffer+os.Getpagesize() {
			t.Errorf("%d leaves take %d bytes of memory", n, now)
		}
		expectEqual(t, storetest.ReadContents(t, path), want)
		info, err := os.Stat(path)
		require.NoError(t, err)
		expectSound(t, path)
		data := readFile(t, path)
		db, err := boltfile.OpenBytes(t.Context(), data)
		require.NoError(t, err)
		for id := uint64(firstPage); id < db.Meta().Pages; {
			at := data[id*uint64(db.PageSize()):]
			h := boltfile.ParseHeader(at)
			if h.Kind == kindBranch && h.Count < 2 {
				t.Errorf("%d leaves: branch page %d leads to one page only, which bbolt does not write", n, id)
			}
			id += h.More + 1
		}
		if leaves, pages := int64(max(n, 1)), info.Size()/int64(os.Getpagesize()); pages > leaves+leaves/50+10 {
			t.Errorf("%d leaves take %d pages", leaves, pages)
		}
	}
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}

// What a page writer is given out of order, it writes so; a base like that is left.
func TestBulkBaseOutOfOrder(t *testing.T) {
	for name, revisions := range map[string][]boltfile.Revision{
		"main": {{Main: 3}, {Main: 2}}, "sub": {{Main: 2, Sub: 1}, {Main: 2}}, "twice": {{Main: 2}, {Main: 2}}, "in order": {{Main: 2}, {Main: 2, Sub: 1}},
	} {
		path := filepath.Join(t.TempDir(), "db")
		f, err := os.Create(path)
		require.NoError(t, err)
		w := newPageWriter(f)
		for i, r := range revisions {
			kv := boltfile.KeyValue{Key: fmt.Appendf(nil, "key%d", i), Created: r.Main, Modified: r.Main, Version: 1}
			require.NoError(t, w.add(r.Bytes(), kv.Append(nil, false)))
		}
		require.NoError(t, errors.Join(w.finish(), f.Close()))
		b, err := OpenBulk(t.Context(), path, filepath.Join(t.TempDir(), "out"), Options{})
		if ordered := name == "in order"; ordered != (err == nil) || !ordered && !errors.Is(err, ErrNotBulk) {
			t.Errorf("%s: %v", name, err)
		}
		if b != nil {
			require.NoError(t, b.Close())
		}
	}
}

// Of a long log the rows are in the spool's file, and not in memory.
func TestBulkSpools(t *testing.T) {
	const size, n, spoolBuffer = 100 << 10, 200, 4 << 20
	b, err := OpenBulk(t.Context(), empty(t), filepath.Join(t.TempDir(), "out"), Options{spoolBuffer: spoolBuffer})
	require.NoError(t, err)
	entries := logOf(t, 1, slices.Repeat([]any{putOf("a", strings.Repeat("x", size))}, n)...)
	applyAll(t, b, entries)
	if inMemory := n*size - int(b.rows.size); inMemory > spoolBuffer+size || cap(b.rows.buffer) > spoolBuffer*17/16+size {
		t.Errorf("%d of %d bytes are in memory, in a buffer of %d", inMemory, n*size, cap(b.rows.buffer))
	}
	require.NoError(t, b.Close())
	if mapped := string(readFile(t, "/proc/self/maps")); strings.Contains(mapped, b.out) {
		t.Errorf("after the end something is mapped: %s", mapped)
	}
	require.NoError(t, randomLog{entries: entries, options: Options{spoolBuffer: spoolBuffer}}.compare(t))
}

// What compactions drop soon is never written to the spool's file, what they leave is, once it is too much.
func TestBulkDropsFromBuffer(t *testing.T) {
	const size, rounds, spoolBuffer = 10 << 10, 60, 1 << 20
	for name, test := range map[string]struct {
		keys    int // of which each round puts all
		written bool
	}{"few keys": {20, false}, "as many as the buffer holds": {90, true}} {
		b, err := OpenBulk(t.Context(), empty(t), filepath.Join(t.TempDir(), "out"), Options{spoolBuffer: spoolBuffer})
		require.NoError(t, err)
		var what []any
		revision := int64(1)
		for range rounds {
			for k := range test.keys {
				what = append(what, putOf(fmt.Sprint("key", k), strings.Repeat("x", size)))
				revision++
			}
			what = append(what, &pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: revision}})
		}
		entries := logOf(t, 1, what...)
		applyAll(t, b, entries)
		if written := b.rows.size > 0; written != test.written || cap(b.rows.buffer) > spoolBuffer*17/16 {
			t.Errorf("%s: %d bytes are in the file, in a buffer of %d", name, b.rows.size, cap(b.rows.buffer))
		}
		require.NoError(t, b.Close())
		require.NoError(t, randomLog{entries: entries, options: Options{spoolBuffer: spoolBuffer}}.compare(t))
	}
}

// A spool that cannot be written to, as on a full disk, ends the replay at the entry, whatever that is.
func TestBulkSpoolFails(t *testing.T) {
	const keys = 3000 // whose deletions fill a block
	grants := &pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: 5, TTL: 60}}
	all := &pb.DeleteRangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}
	before := []any{grants}
	for i := range keys {
		before = append(before, &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: fmt.Appendf(nil, "key/%04d", i), Lease: 5}})
	}
	base, _, err := etcds(t, empty(t), Options{}, logOf(t, 1, before...), RunOptions{})
	require.NoError(t, err)
	const spoolBuffer = 64 << 10
	for name, r := range map[string]*pb.InternalRaftRequest{
		"a put":       putOf("a", ""),
		"a deletion":  {DeleteRange: all},
		"a txn":       {Txn: txnOf(&pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: all}})},
		"an expiry":   {LeaseRevoke: &pb.LeaseRevokeRequest{ID: 5}},
		"a txn in it": {Txn: txnOf(txnOp(txnOf(&pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: all}})))},
	} {
		b, err := OpenBulk(t.Context(), base, filepath.Join(t.TempDir(), "out"), Options{spoolBuffer: spoolBuffer})
		require.NoError(t, err)
		require.NoError(t, b.rows.file.Close())
		before := ""
		if r.Put != nil { // the others fill the buffer by themselves
			before = strings.Repeat("x", spoolBuffer)
		}
		es := logOf(t, keys+2, putOf("b", before), r)
		require.NoError(t, b.Apply(es[0])) // into the buffer
		if err := b.Apply(es[1]); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
		if err := b.Rollback(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s, taken back: %v", name, err)
		}
		if err := b.Close(); !errors.Is(err, os.ErrClosed) || !b.rest.closed { // of the spool, which is closed already
			t.Errorf("%s: %v, beside it closed: %v", name, err, b.rest.closed)
		}
		expectFiles(t, filepath.Dir(b.out))
	}
}

// However far the disk lets it come, Bulk makes the whole database, or is an error and leaves nothing.
func TestBulkFullDisk(t *testing.T) {
	var what []any
	for i := range 300 {
		what = append(what, &pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: int64(i + 1), TTL: 60}},
			&pb.InternalRaftRequest{Put: &pb.PutRequest{Key: fmt.Appendf(nil, "key/%04d", i), Value: make([]byte, 1000), Lease: int64(i + 1)}})
	}
	entries := logOf(t, 1, what...)
	base := empty(t)
	wanted, _, err := etcds(t, base, Options{}, entries, RunOptions{})
	require.NoError(t, err)
	want := storetest.ReadContents(t, wanted)
	dir := storetest.SmallDisk(t, "64k")
	out := filepath.Join(dir, "out")
	failed := 0
	for size := 64; ; size += 16 {
		storetest.GrowDisk(t, dir, fmt.Sprintf("%dk", size))
		b, err := OpenBulk(t.Context(), base, out, Options{spoolBuffer: 64 << 10})
		if err == nil {
			_, err = Run(t.Context(), b, seq(entries), RunOptions{})
			err = errors.Join(err, b.Close())
		}
		if err == nil {
			break
		}
		failed++
		expectFiles(t, dir)
	}
	expectEqual(t, storetest.ReadContents(t, out), want)
	if failed < 20 {
		t.Errorf("the disk was full %d times only", failed)
	}
}

// Rows that fill a page but for a byte, or by one byte too much, begin where the page says.
func TestPageWriterAroundPages(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	f, err := os.Create(path)
	require.NoError(t, err)
	w := newPageWriter(f)
	want := contents{"key": {}}
	full := os.Getpagesize() - pageHeader - pageElement - boltfile.RowSize
	for i, size := range []int{full - 1, full, full + 1, full + 2, full + os.Getpagesize(), full + os.Getpagesize() + 1, 10} {
		key := boltfile.Revision{Main: int64(i + 1)}.Bytes()
		want["key"][string(key)] = bytes.Repeat([]byte{byte(i)}, size)
		require.NoError(t, w.add(key, want["key"][string(key)]))
	}
	require.NoError(t, errors.Join(w.finish(), f.Close()))
	expectSound(t, path)
	expectEqual(t, storetest.ReadContents(t, path), want)
}

// Small rows share a page, and fill no more than that.
func TestPageWriterFillsPages(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	f, err := os.Create(path)
	require.NoError(t, err)
	w := newPageWriter(f)
	const rows, size = 50_000, 30
	for i := range rows {
		require.NoError(t, w.add(boltfile.Revision{Main: int64(i)}.Bytes(), make([]byte, size)))
	}
	require.NoError(t, errors.Join(w.finish(), f.Close()))
	each := (os.Getpagesize() - pageHeader) / (pageElement + boltfile.RowSize + size)
	leaves := (rows + each - 1) / each
	info, err := os.Stat(path)
	require.NoError(t, err)
	if pages := int(info.Size()) / os.Getpagesize(); pages < leaves || pages > leaves+leaves/50+10 {
		t.Errorf("%d leaves take %d pages", leaves, pages)
	}
}

// The database has no free pages, however many there were.
func TestBulkIsCompact(t *testing.T) {
	var what []any
	for i := range 20_000 {
		what = append(what, putOf(fmt.Sprint(i%10), strings.Repeat("x", 500)))
	}
	what = append(what, &pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: 20_000}})
	entries := logOf(t, 1, what...)
	path, _, err := etcds(t, empty(t), Options{}, entries[:15_000], RunOptions{})
	require.NoError(t, err)
	out, _, err := bulked(t, path, Options{}, entries[15_000:], RunOptions{})
	require.NoError(t, err)
	info, err := os.Stat(out)
	require.NoError(t, err)
	if info.Size() > 256<<10 {
		t.Errorf("ten keys take %d bytes", info.Size())
	}
}

// What Bulk is not for it says before it makes anything of it, and a log that cannot be read, or a run
// that is given up, leaves nothing either.
func TestBulkLeaves(t *testing.T) {
	before := []any{change(t, raftpb.ConfChangeAddNode, 1, false), grant, putOf("a", "1"), putOf("b", "1"), &pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: 2}},
		&pb.InternalRaftRequest{ClusterVersionSet: &membershippb.ClusterVersionSetRequest{Ver: "3.6.0"}}}
	first := uint64(len(before) + 1)
	base, _, err := etcds(t, empty(t), Options{}, logOf(t, 1, before...), RunOptions{})
	require.NoError(t, err)
	put := func(bucket, key, value string) func(tx *bolt.Tx) error {
		return func(tx *bolt.Tx) error { return tx.Bucket([]byte(bucket)).Put([]byte(key), []byte(value)) }
	}
	row := func(main, sub int64, kv *mvccpb.KeyValue) func(tx *bolt.Tx) error {
		value, err := proto.Marshal(kv)
		require.NoError(t, err)
		return put("key", string(boltfile.Revision{Main: main, Sub: sub}.Bytes()), string(value))
	}
	const late = 1 << 30
	for name, change := range map[string]func(tx *bolt.Tx) error{
		"a row without a revision":       put("key", "x", ""),
		"a value that is none":           put("key", string(boltfile.Revision{Main: late}.Bytes()), "\xff"),
		"a field that nobody knows":      put("key", string(boltfile.Revision{Main: late}.Bytes()), "\x0a\x01k\x48\x01"),
		"revision 0":                     row(0, 0, &mvccpb.KeyValue{Key: []byte("new"), CreateRevision: 0, ModRevision: 0, Version: 1}),
		"a row of another revision":      row(late, 0, &mvccpb.KeyValue{Key: []byte("new"), CreateRevision: 1, ModRevision: 1, Version: 1}),
		"a row without a version":        row(late, 0, &mvccpb.KeyValue{Key: []byte("new"), CreateRevision: late, ModRevision: late}),
		"a row created after it was put": row(late, 0, &mvccpb.KeyValue{Key: []byte("new"), CreateRevision: late + 1, ModRevision: late, Version: 1}),
		"a version that does not follow": func(tx *bolt.Tx) error {
			return errors.Join(row(late, 0, &mvccpb.KeyValue{Key: []byte("new"), CreateRevision: late, ModRevision: late, Version: 1})(tx),
				row(late+1, 0, &mvccpb.KeyValue{Key: []byte("new"), CreateRevision: late, ModRevision: late + 1, Version: 3})(tx))
		},
		"another creation": func(tx *bolt.Tx) error {
			return errors.Join(row(late, 0, &mvccpb.KeyValue{Key: []byte("new"), CreateRevision: late, ModRevision: late, Version: 1})(tx),
				row(late+1, 0, &mvccpb.KeyValue{Key: []byte("new"), CreateRevision: late - 1, ModRevision: late + 1, Version: 2})(tx))
		},
		"a lease that is none":           put("lease", "\x00\x00\x00\x00\x00\x00\x00\x07", "\xff"),
		"a lease of another name":        put("lease", "\x00\x00\x00\x00\x00\x00\x00\x07", "\x08\x06"),
		"compactions of nothing":         compactions([]byte("x")),
		"compactions of a deletion":      compactions(append(boltfile.Revision{Main: 2}.Bytes(), 't')),
		"compactions of half a revision": compactions(boltfile.Revision{Main: 2, Sub: 1}.Bytes()),
		"a compaction of nothing":        put("meta", "scheduledCompactRev", "x"),
		"a finished one only":            finishedOnly,
		"a scheduled one up to 0": func(tx *bolt.Tx) error {
			meta := tx.Bucket(schema.Meta.Name())
			return errors.Join(meta.Delete(schema.FinishedCompactKeyName), meta.Put(schema.ScheduledCompactKeyName, boltfile.Revision{}.Bytes()))
		},
		"a deletion of what is gone": func(tx *bolt.Tx) error {
			gone := func(sub int64) []byte { return append(boltfile.Revision{Main: late, Sub: sub}.Bytes(), 't') }
			return errors.Join(tx.Bucket(keyBucket).Put(gone(0), []byte("\x0a\x01a")), tx.Bucket(keyBucket).Put(gone(1), []byte("\x0a\x01a")))
		},
		"two keys in a row":         put("key", string(boltfile.Revision{Main: 5}.Bytes()), "\x0a\x01k\x10\x05\x18\x05\x20\x01\x0a\x01l"),
		"a bucket in a bucket":      func(tx *bolt.Tx) error { _, err := tx.Bucket([]byte("members")).CreateBucket([]byte("x")); return err },
		"a bucket among the keys":   func(tx *bolt.Tx) error { _, err := tx.Bucket([]byte("key")).CreateBucket([]byte("x")); return err },
		"a cluster version of none": put("cluster", "clusterVersion", "x"),
	} {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(base)
			require.NoError(t, err)
			path := filepath.Join(t.TempDir(), "db")
			require.NoError(t, os.WriteFile(path, data, 0o600))
			update(t, path, change)
			if _, _, err := bulked(t, path, Options{}, nil, RunOptions{}); !errors.Is(err, ErrNotBulk) {
				t.Errorf("error %v", err)
			}
		})
	}
	t.Run("a damaged page beside the keys", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "db")
		require.NoError(t, os.WriteFile(path, readFile(t, base), 0o600))
		var at int64
		update(t, path, func(tx *bolt.Tx) error {
			for i := range int64(1000) { // so that the bucket has pages of its own
				if err := tx.Bucket(schema.Lease.Name()).Put(leaseName(i+100), []byte("never read")); err != nil {
					return err
				}
			}
			return nil
		})
		update(t, path, func(tx *bolt.Tx) error {
			at = int64(tx.Bucket(schema.Lease.Name()).Root()) * int64(os.Getpagesize())
			return nil
		})
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = f.WriteAt([]byte{0xff, 0xff}, at+8) // the kind of page
		require.NoError(t, errors.Join(err, f.Close()))
		_, _, err = bulked(t, path, Options{}, nil, RunOptions{})
		require.ErrorIs(t, err, ErrNotBulk)
	})
	for version, want := range map[string]error{"3.8.0": ErrNotBulk, "3.7.99": nil} {
		_, _, err = bulked(t, base, Options{SourceSettings: SourceSettings{SourceVersion: version}}, nil, RunOptions{})
		require.ErrorIs(t, err, want, version)
	}
	if _, _, err := bulked(t, base, Options{SourceSettings: SourceSettings{SourceVersion: "x"}}, nil, RunOptions{}); err == nil || errors.Is(err, ErrNotBulk) {
		t.Errorf("a version that is none: %v", err)
	}
	const header = "\xa2\x06\x02\x08\x01" // of a request
	for name, e := range map[string]raftlog.Entry{
		"nonsense":                  {Index: first, Data: []byte{0xff}},
		"a new field":               logOf(t, first, []byte(header+"\x22\x05\x0a\x01k\x78\x01"))[0],
		"a put that is there twice": logOf(t, first, []byte(header+"\x22\x03\x0a\x01k\x22\x03\x0a\x01k"))[0],
		"a deletion, twice":         logOf(t, first, []byte(header+"\x2a\x03\x0a\x01a\x2a\x03\x0a\x01a"))[0],
		"a transaction, twice":      logOf(t, first, []byte(header+"\x32\x00\x32\x00"))[0],
		"a key deleted and put":     logOf(t, first, &pb.InternalRaftRequest{Txn: txnOf(deleteOp("a", ""), putOp(&pb.PutRequest{Key: []byte("a")}))})[0],
		"an empty operation":        logOf(t, first, &pb.InternalRaftRequest{Txn: &pb.TxnRequest{Success: []*pb.RequestOp{{}}}})[0],
		"a new member that is none": logOf(t, first, &raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(uint64)})[0],
	} {
		if _, _, err := bulked(t, base, Options{}, []raftlog.Entry{e}, RunOptions{}); !errors.Is(err, ErrNotBulk) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, _, err = bulked(t, base, Options{}, logOf(t, first, putOf("k", "v")), RunOptions{Watch: func(Change) error { return nil }})
	require.ErrorIs(t, err, ErrNotBulk, "a replay that is watched")
	ctx, cancel := context.WithCancel(t.Context())
	out := filepath.Join(t.TempDir(), "out")
	b, err := OpenBulk(ctx, base, out, Options{})
	require.NoError(t, err)
	var many []any
	for i := range 10_001 {
		many = append(many, putOf("k", fmt.Sprint(i)))
	}
	var order *OrderError
	for _, wrong := range []uint64{first - 1, first + 1} {
		if err := b.Apply(logOf(t, wrong, nil)[0]); !errors.As(err, &order) || order.Applied != first-1 || order.Index != wrong {
			t.Errorf("entry %d after entry %d: %v", wrong, first-1, err)
		}
	}
	for _, e := range logOf(t, first, many...) {
		require.NoError(t, b.Apply(e))
	}
	cancel()
	require.ErrorIs(t, b.Close(), context.Canceled, "a run that is given up")
	expectFiles(t, filepath.Dir(out))
	_, err = OpenBulk(ctx, base, out, Options{})
	require.ErrorIs(t, err, context.Canceled, "opened after the end")
}

// compactions has those that were scheduled and finished last be up to a revision.
func compactions(revision []byte) func(tx *bolt.Tx) error {
	return func(tx *bolt.Tx) error {
		meta := tx.Bucket(schema.Meta.Name())
		return errors.Join(meta.Put(schema.ScheduledCompactKeyName, revision), meta.Put(schema.FinishedCompactKeyName, revision))
	}
}

// compactedAlready has a database say that it was compacted up to revision 3, whatever rows it has.
func compactedAlready(t testing.TB, path string, _ int64) {
	t.Helper()
	update(t, path, compactions(boltfile.Revision{Main: 3}.Bytes()))
}

// finishedOnly leaves a compaction that nobody scheduled.
func finishedOnly(tx *bolt.Tx) error {
	meta := tx.Bucket(schema.Meta.Name())
	return errors.Join(meta.Delete(schema.ScheduledCompactKeyName), meta.Put(schema.FinishedCompactKeyName, boltfile.Revision{Main: 5}.Bytes()))
}

func putOp(p *pb.PutRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: p}}
}

func deleteOp(key, end string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end)}}}
}

func rangeOp(revision int64) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("a"), Revision: revision}}}
}

func txnOp(t *pb.TxnRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: t}}
}

func txnOf(ops ...*pb.RequestOp) *pb.TxnRequest { return &pb.TxnRequest{Success: ops} }

// What random logs come to too rarely.
func TestBulkEdges(t *testing.T) {
	request := func(r *pb.InternalRaftRequest) any { return r }
	txn := func(ops ...*pb.RequestOp) any { return request(&pb.InternalRaftRequest{Txn: txnOf(ops...)}) }
	lease := func(id, ttl int64) any {
		return request(&pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: id, TTL: ttl}})
	}
	leased := func(key string, id int64) any {
		return request(&pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte(key), Lease: id}})
	}
	revoke := func(id int64) any {
		return request(&pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: id}})
	}
	checkpoint := request(&pb.InternalRaftRequest{LeaseCheckpoint: &pb.LeaseCheckpointRequest{Checkpoints: []*pb.LeaseCheckpoint{{ID: 5, Remaining_TTL: 77}}}})
	compact := func(revision int64) any {
		return request(&pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: revision}})
	}
	alarm := func(kind pb.AlarmType) any {
		return request(&pb.InternalRaftRequest{Alarm: &pb.AlarmRequest{MemberID: 1, Alarm: kind, Action: pb.AlarmRequest_ACTIVATE}})
	}
	// Before 3.0 requests had no header, and so no user.
	bare := func(r *pb.InternalRaftRequest) any {
		r.ID = 7
		data, err := proto.Marshal(r)
		require.NoError(t, err)
		return data
	}
	authed := []any{
		lease(5, 60), lease(6, 60), leased("a", 6), putOf("b", "1"),
		request(&pb.InternalRaftRequest{AuthUserAdd: &pb.AuthUserAddRequest{Name: "root", HashedPassword: "aGFzaA=="}}),
		request(&pb.InternalRaftRequest{AuthRoleAdd: &pb.AuthRoleAddRequest{Name: "root"}}),
		request(&pb.InternalRaftRequest{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: "root", Role: "root"}}),
		request(&pb.InternalRaftRequest{AuthEnable: &pb.AuthEnableRequest{}}),
		bare(putOf("b", "2")), bare(&pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("b"), PrevKv: true}}),
		bare(&pb.InternalRaftRequest{DeleteRange: &pb.DeleteRangeRequest{Key: []byte("b")}}),
		bare(&pb.InternalRaftRequest{Txn: txnOf(deleteOp("b", ""))}), bare(&pb.InternalRaftRequest{Txn: txnOf()}),
		bare(&pb.InternalRaftRequest{Txn: txnOf(txnOp(txnOf(putOp(&pb.PutRequest{Key: []byte("b")}))))}),
		bare(&pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: 5}}), bare(&pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: 6}}),
		bare(&pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: 7, TTL: 60}}), bare(&pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: 2}}),
	}
	never := []*pb.Compare{{Key: []byte("none"), Target: pb.Compare_VERSION, TargetUnion: &pb.Compare_Version{Version: 1}}}
	put := putOp(&pb.PutRequest{Key: []byte("z")})
	for name, test := range map[string]struct {
		what    []any
		options Options
		from    int
		change  func(t testing.TB, base string, revision int64)
		run     RunOptions
	}{
		"leases of any length":      {what: []any{lease(1, 9_000_000_000), lease(2, 9_000_000_001), lease(3, -1), lease(4, 0), lease(0, 5), lease(4, 9)}},
		"ends of one byte":          {what: []any{putOf("a", ""), putOf("b", ""), putOf("c", ""), txn(deleteOp("a", "c")), txn(deleteOp("b", "\x00")), putOf("d", ""), txn(deleteOp("a", "d"))}},
		"a revoke taken back":       {what: []any{lease(5, 60), leased("a", 5), leased("b", 5), revoke(5), putOf("c", "")}, run: RunOptions{MaxRevision: 3}},
		"the first one taken back":  {what: []any{putOf("a", "1"), putOf("b", "")}, from: 1, run: RunOptions{MaxRevision: 2}},
		"a deletion taken back":     {what: []any{putOf("a", "1"), putOf("b", ""), txn(deleteOp("a", "c"), put)}, run: RunOptions{MaxRevision: 3}},
		"twice changed, back":       {what: []any{putOf("a", "1"), compact(2), txn(putOp(&pb.PutRequest{Key: []byte("a")}), deleteOp("a", ""))}, run: RunOptions{MaxRevision: 2}},
		"twice changed, compacted":  {what: []any{txn(putOp(&pb.PutRequest{Key: []byte("a")}), txnOp(txnOf(putOp(&pb.PutRequest{Key: []byte("a")}))), put), compact(2)}},
		"checkpoints that stay":     {what: []any{lease(5, 60), checkpoint}, from: 1, options: Options{SourceSettings: SourceSettings{PersistCheckpoints: true}}},
		"checkpoints that do not":   {what: []any{lease(5, 60), checkpoint, nil}, from: 1},
		"none of a new lease":       {what: []any{lease(5, 60), checkpoint}},
		"checkpoints of one of 3.6": {what: []any{request(&pb.InternalRaftRequest{ClusterVersionSet: &membershippb.ClusterVersionSetRequest{Ver: "3.6.0"}}), lease(5, 60), checkpoint, checkpoint}},
		"a key of no bytes":         {what: []any{putOf("", "1"), putOf("a", "1"), txn(deleteOp("", "b")), putOf("", "2"), txn(putOp(&pb.PutRequest{IgnoreValue: true})), compact(5), txn(deleteOp("", ""))}, from: 2},
		"reads before all":          {what: []any{txn(rangeOp(-1), put), txn(rangeOp(-2), putOp(&pb.PutRequest{Key: []byte("a")})), compact(0), txn(rangeOp(-1), putOp(&pb.PutRequest{Key: []byte("b")}))}},
		"a lease that comes later":  {what: []any{lease(5, 60), leased("a", 5), nil, lease(5, 60), request(&pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("a"), IgnoreLease: true}}), leased("b", 5), revoke(5)}, from: 2, change: loseLeases},
		"a lease that came later":   {what: []any{lease(5, 60), leased("a", 5), nil, lease(5, 60), leased("b", 5), revoke(5), putOf("a", "")}, from: 2, change: loseLeases},
		"no header":                 {what: authed},
		"no header, by old rules":   {what: authed, options: Options{SourceSettings: SourceSettings{SourceVersion: "3.5.9"}}},
		"no space, and corrupt":     {what: []any{alarm(pb.AlarmType_NOSPACE), alarm(pb.AlarmType_CORRUPT), txn(txnOp(txnOf(put)))}, options: Options{SourceSettings: SourceSettings{SourceVersion: "3.7.0"}}},
		"a short lease":             {what: []any{lease(5, 3), checkpoint, request(&pb.InternalRaftRequest{ClusterVersionSet: &membershippb.ClusterVersionSetRequest{Ver: "3.6.0"}}), checkpoint}, from: 1, options: Options{SourceSettings: SourceSettings{MinLeaseTTL: 20 * time.Second}}},
		"no space, a deletion":      {what: []any{putOf("a", ""), alarm(pb.AlarmType_NOSPACE), txn(deleteOp("a", "")), txn(put), txn(txnOp(&pb.TxnRequest{Failure: []*pb.RequestOp{put}})), lease(3, 9), leased("a", 0)}},
		"no space in the base":      {what: []any{putOf("a", ""), alarm(pb.AlarmType_NOSPACE), putOf("b", ""), lease(3, 9)}, from: 2},
		"corrupt in the base":       {what: []any{putOf("a", ""), lease(5, 9), alarm(pb.AlarmType_CORRUPT), putOf("b", ""), txn(deleteOp("a", "")), revoke(5), compact(1), lease(3, 9)}, from: 3},
		"reads of the past":         {what: []any{putOf("a", "1"), putOf("a", "2"), putOf("a", "3"), compact(3), txn(rangeOp(2), put), txn(rangeOp(3), put), txn(rangeOp(5), put), txn(rangeOp(6), put), txn(rangeOp(99), put)}},
		"refused deep inside":       {what: []any{txn(txnOp(txnOf(txnOp(txnOf()))), txnOp(&pb.TxnRequest{Compare: never, Failure: []*pb.RequestOp{putOp(&pb.PutRequest{Key: []byte("a"), Lease: 7})}}), put)}},
		"done deep inside":          {what: []any{txn(txnOp(txnOf(txnOp(txnOf()))), txnOp(&pb.TxnRequest{Compare: never, Success: []*pb.RequestOp{put}, Failure: []*pb.RequestOp{putOp(&pb.PutRequest{Key: []byte("a")})}}))}},
		"checkpoints of several":    {what: []any{lease(5, 60), lease(6, 60), request(&pb.InternalRaftRequest{LeaseCheckpoint: &pb.LeaseCheckpointRequest{Checkpoints: []*pb.LeaseCheckpoint{{ID: 5, Remaining_TTL: 1}, {ID: 7, Remaining_TTL: 2}, {ID: 6, Remaining_TTL: 3}}}})}, options: Options{SourceSettings: SourceSettings{PersistCheckpoints: true}}},
		"compacted once":            {what: []any{putOf("a", "1"), putOf("a", "2"), putOf("a", "3"), compact(3)}, from: 3, change: compactedAlready},
		"a lease that follows":      {what: []any{lease(5, 60), lease(6, 60), leased("a", 5), leased("a", 6), revoke(5), leased("b", 6), leased("b", 0), request(&pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("a"), IgnoreLease: true}}), revoke(6)}},
		"leases of the base":        {what: []any{lease(5, 60), leased("b", 5), leased("a", 5), revoke(5), lease(5, 60), putOf("c", ""), revoke(5)}, from: 3},
		"compactions at ends":       {what: []any{compact(0), putOf("a", "1"), putOf("a", "2"), compact(4), compact(3), compact(3), txn(deleteOp("a", "")), compact(4), putOf("b", ""), compact(5)}},
		"no keys":                   {what: []any{nil}},
		"an empty value":            {what: []any{putOf("a", ""), txn(deleteOp("", "\x00"))}},
	} {
		t.Run(name, func(t *testing.T) {
			l := randomLog{entries: logOf(t, 1, test.what...), options: test.options, from: test.from, change: test.change, run: test.run}
			if err := l.compare(t); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("a base with shorter leases", func(t *testing.T) {
		version := request(&pb.InternalRaftRequest{ClusterVersionSet: &membershippb.ClusterVersionSetRequest{Ver: "3.6.0"}})
		path, _, err := etcds(t, empty(t), Options{}, logOf(t, 1, version, lease(5, 3)), RunOptions{})
		require.NoError(t, err)
		o := Options{SourceSettings: SourceSettings{MinLeaseTTL: 20 * time.Second}}
		out, _, err := bulked(t, path, o, logOf(t, 3, checkpoint), RunOptions{})
		require.NoError(t, err)
		other, _, err := etcds(t, path, o, logOf(t, 3, checkpoint), RunOptions{})
		require.NoError(t, err)
		expectEqual(t, storetest.ReadContents(t, out), storetest.ReadContents(t, other))
	})
	t.Run("the newest row is compacted", func(t *testing.T) { // as etcd up to 3.5.15 does
		path, _, err := etcds(t, empty(t), Options{}, logOf(t, 1, putOf("a", ""), txn(deleteOp("a", "")), compact(3)), RunOptions{})
		require.NoError(t, err)
		update(t, path, func(tx *bolt.Tx) error {
			return tx.Bucket(keyBucket).Delete(append(boltfile.Revision{Main: 3}.Bytes(), 't'))
		})
		more := logOf(t, 4, putOf("b", ""))
		out, got, err := bulked(t, path, Options{}, more, RunOptions{})
		require.NoError(t, err)
		other, want, err := etcds(t, path, Options{}, more, RunOptions{})
		if err != nil || got != want {
			t.Errorf("%+v, want %+v (%v)", got, want, err)
		}
		expectEqual(t, storetest.ReadContents(t, out), storetest.ReadContents(t, other))
	})
}

// Same finds what is not.
func TestSame(t *testing.T) {
	path, _, err := etcds(t, empty(t), Options{}, logOf(t, 1, putOf("a", "1")), RunOptions{})
	require.NoError(t, err)
	require.NoError(t, Same(path, path))
	for name, what := range map[string][]any{"another value": {putOf("a", "2")}, "another row": {putOf("a", "1"), putOf("b", "1")}, "none": {nil}} {
		other, _, err := etcds(t, empty(t), Options{}, logOf(t, 1, what...), RunOptions{})
		require.NoError(t, err)
		if Same(path, other) == nil || Same(other, path) == nil {
			t.Errorf("%s: it is said to be the same", name)
		}
	}
	if Same(path, empty(t)+"x") == nil {
		t.Error("no file is the same")
	}
}

// Has, which is asked before Close, sees what Engine sees.
func TestBulkHas(t *testing.T) {
	entries := logOf(t, 1, putOf("b", "1"), putOf("d", "1"), &pb.InternalRaftRequest{DeleteRange: &pb.DeleteRangeRequest{Key: []byte("b")}})
	b, err := OpenBulk(t.Context(), empty(t), filepath.Join(t.TempDir(), "out"), Options{})
	require.NoError(t, err)
	e := open(t, empty(t), Options{})
	for _, r := range []Replayer{b, e} {
		for _, x := range entries {
			require.NoError(t, r.Apply(x))
		}
		if has, err := r.Has(t.Context(), []byte("a"), []byte{}); err != nil || !has {
			t.Errorf("%T: from a key on: %v, %v", r, has, err)
		}
		for _, c := range []struct {
			key, end string
			want     bool
		}{{"b", "", false}, {"d", "", true}, {"a", "d", false}, {"a", "e", true}, {"d", "d0", true}, {"e", "f", false}} {
			var end []byte
			if c.end != "" {
				end = []byte(c.end)
			}
			if has, err := r.Has(t.Context(), []byte(c.key), end); err != nil || has != c.want {
				t.Errorf("%T: %+v: %v, %v", r, c, has, err)
			}
		}
	}
	require.NoError(t, b.Close())
	_, err = b.Has(t.Context(), []byte("d"), nil)
	require.ErrorIs(t, err, ErrClosed, "after Close")
}

// FuzzBulk gives both engines an entry that comes from anywhere, after a random log: what Bulk applies
// leads to what etcd's applier makes of it.
func FuzzBulk(f *testing.F) {
	for i, e := range generate(f, 1, 30) {
		f.Add(uint64(i), e.Data, e.Type == raftpb.EntryConfChange)
	}
	f.Fuzz(func(t *testing.T, seed uint64, data []byte, change bool) {
		g := &generator{Rand: rand.New(rand.NewPCG(seed, 5)), t: t, keys: 200, open: seed%4 > 0, version: "3.5.0"}
		entries := g.log(60)
		e := raftlog.Entry{Index: uint64(len(entries) + 1), Term: 3, Data: data}
		if change {
			e.Type = raftpb.EntryConfChange
		}
		l := randomLog{seed: seed, entries: append(entries, e)}
		_ = l.compare(t) // what it leaves to etcd it may
	})
}

// TestBulkBaseGoesOn: an etcd that goes on with the base, before the end, is noticed.
func TestBulkBaseGoesOn(t *testing.T) {
	entries := generate(t, 7, 300)
	base, _, err := etcds(t, empty(t), Options{}, entries[:200], RunOptions{})
	require.NoError(t, err)
	whole, err := os.ReadFile(base)
	require.NoError(t, err)
	for when := range 3 {
		path, out := filepath.Join(t.TempDir(), "db"), filepath.Join(t.TempDir(), "out")
		require.NoError(t, os.WriteFile(path, whole, 0o600))
		b, err := OpenBulk(t.Context(), path, out, Options{})
		require.NoError(t, err)
		for i := range 2 {
			if i == 1 {
				_, err := Run(t.Context(), b, seq(entries[200:]), RunOptions{})
				require.NoError(t, err)
			}
			if i == when {
				e := open(t, path, Options{})
				applyAll(t, e, entries[200:201])
				require.NoError(t, e.Close())
			}
		}
		err = b.Close()
		if goesOn := when < 2; goesOn != errors.Is(err, ErrNotBulk) || !goesOn && err != nil {
			t.Errorf("%d: %v", when, err)
		}
		if when < 2 {
			expectFiles(t, filepath.Dir(out))
		}
	}
}

// TestBulkBaseChanges: whoever owns the base may cut it short or write over it at any moment. A
// replay then ends, and writes nothing, or it gives a database; it does not end the process.
func TestBulkBaseChanges(t *testing.T) {
	entries := generate(t, 7, 3000)
	const from = 2000
	base, _, err := etcds(t, empty(t), Options{}, entries[:from], RunOptions{})
	require.NoError(t, err)
	whole, err := os.ReadFile(base)
	require.NoError(t, err)
	random := rand.New(rand.NewPCG(1, 2))
	ended, notMapped := 0, 0
	for round := range 60 {
		path, out := filepath.Join(t.TempDir(), "db"), filepath.Join(t.TempDir(), "out")
		require.NoError(t, os.WriteFile(path, whole, 0o600))
		spoil := func() {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			require.NoError(t, err)
			defer f.Close()
			if round%2 == 0 {
				require.NoError(t, f.Truncate(int64(1+random.IntN(len(whole)/os.Getpagesize()-1))*int64(os.Getpagesize())))
				return
			}
			garbage := make([]byte, 2*os.Getpagesize())
			for at := 0; at < len(whole); at += len(garbage) * (1 + random.IntN(3)) {
				for i := range garbage {
					garbage[i] = byte(random.Uint32())
				}
				_, err = f.WriteAt(garbage, int64(at))
				require.NoError(t, err)
			}
		}
		when := round % 3
		if when == 0 {
			spoil()
		}
		b, err := OpenBulk(t.Context(), path, out, Options{})
		if err == nil {
			if when == 1 {
				spoil()
			}
			_, err = Run(t.Context(), b, seq(entries[from:]), RunOptions{})
			if err == nil && when == 2 {
				spoil()
			}
			if closed := b.Close(); err == nil {
				err = closed
			}
		}
		if err == nil {
			continue
		}
		ended++
		if strings.Contains(err.Error(), "unexpected fault address") || strings.Contains(err.Error(), "invalid memory address") {
			notMapped++
		}
		if !errors.Is(err, ErrNotBulk) {
			t.Errorf("round %d: %v, want an ErrNotBulk", round, err)
		}
		expectFiles(t, filepath.Dir(out))
	}
	if ended < 30 || notMapped == 0 {
		t.Errorf("%d replays ended, %d of them by a fault: the test shows little", ended, notMapped)
	}
}
