package engine

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// bulked is the path of what Bulk makes of the database at path and the entries. The error is one of
// opening or applying.
func bulked(t testing.TB, path string, o Options, entries []raftlog.Entry, ro RunOptions) (out string, stopped Stopped, err error) {
	t.Helper()
	out = filepath.Join(t.TempDir(), "bulk")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
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
	if after, err := os.ReadFile(path); err != nil || !slices.Equal(before, after) {
		t.Errorf("it changed the database that it began with: %v", err)
	}
	return out, stopped, nil
}

func expectFiles(t testing.TB, dir string, want ...string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "etcd")
	if err := os.WriteFile(out, data, 0o600); err != nil {
		t.Fatal(err)
	}
	e := open(t, out, o)
	stopped, err := Run(t.Context(), e, seq(entries), ro)
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
	from    int  // how many entries are in the base
	base    bool // by Bulk instead of etcd's applier
	half    bool // a compaction of the base was scheduled, and not finished
	run     RunOptions
}

func newRandomLog(t testing.TB, seed uint64) randomLog {
	r := rand.New(rand.NewPCG(seed, 2))
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 3)), t: t, keys: []int{3, 20, 200, 2000}[r.IntN(4)], open: r.IntN(8) > 0}
	l := randomLog{seed: seed, entries: g.log(20 + r.IntN(400)), base: r.IntN(2) == 0, half: r.IntN(4) == 0}
	l.options.SourceVersion = []string{"", "3.5.9", "3.6.1", "3.7.0"}[r.IntN(4)]
	l.options.PersistCheckpoints = r.IntN(4) == 0
	if r.IntN(3) > 0 {
		l.from = r.IntN(len(l.entries))
	}
	switch r.IntN(4) {
	case 0:
		l.run.Last = uint64(l.from + r.IntN(len(l.entries)-l.from) + 1)
	case 1:
		l.run.MaxRevision = int64(1 + r.IntN(len(l.entries)))
	}
	return l
}

// compare replays the log with both engines. It tells why Bulk did not.
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
		if base = made; l.half {
			unfinish(t, base, stopped.Revision)
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
	if err != nil {
		t.Fatalf("seed %d: Bulk applies what etcd does not: %v", l.seed, err)
	}
	if got != want {
		t.Errorf("stopped at %+v, want %+v", got, want)
	}
	expectEqual(t, storetest.ReadContents(t, out), storetest.ReadContents(t, wanted))
	if t.Failed() {
		t.Fatalf("the log is that of seed %d: %d entries, %d of them in the base (by bulk: %v; compaction unfinished: %v), %+v, %+v", l.seed, len(l.entries), l.from, l.base, l.half, l.options, l.run)
	}
	return nil
}

func expectNotBulk(t testing.TB, err error) error {
	t.Helper()
	if !errors.Is(err, ErrNotBulk) {
		t.Fatal(err)
	}
	return err
}

// unfinish schedules a compaction in a database.
func unfinish(t testing.TB, path string, revision int64) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		meta := tx.Bucket(schema.Meta.Name())
		if done := meta.Get(schema.FinishedCompactKeyName); done != nil {
			revision = (revision + mvcc.BytesToRev(done).Main + 1) / 2
		}
		return meta.Put(schema.ScheduledCompactKeyName, mvcc.RevToBytes(mvcc.Revision{Main: revision}, mvcc.NewRevBytes()))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// logs is how many are replayed: set REQUORUM_LOGS for more, and REQUORUM_FIRST_LOG for others.
func logs(t testing.TB) (first, n uint64) {
	n = 2500
	if testing.Short() {
		n = 200
	}
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
	if uint64(all[""]) < n*3/4 {
		t.Errorf("only %d of %d logs were replayed by both", all[""], n)
	}
}
