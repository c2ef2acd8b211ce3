package walfile

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// TestConcurrent reads a log while etcd's own package writes it, cuts it into
// small segments and goes back over entries, and while the oldest segments are
// purged every few milliseconds. Invariants:
//
//  1. Every committed entry comes exactly once, in order, as it was committed.
//  2. No Poll fails.
//  3. Nothing stays pinned.
//  4. The purge took files that the Tail had not read, and the writer overwrote
//     what the Tail had pending: otherwise the test shows nothing.
func TestConcurrent(t *testing.T) {
	small(t, 16<<10)
	w := newWriter(t, filepath.Join(t.TempDir(), "wal"), testIdentity)
	tail := openTail(t, w.dir, TailOptions{PendingLimit: 30_000})
	const last = 4000
	var opened, seen atomic.Uint64 // by the Tail
	written := make(chan []raftlog.Entry)
	go func() { // the writer; newWriter's checks only run in the test's goroutine
		defer close(written)
		random := rand.New(rand.NewPCG(1, 2))
		var log []raftlog.Entry
		commit, term := uint64(0), uint64(1)
		for commit < last {
			if n := uint64(len(log)); n > commit && random.IntN(10) == 0 { // a new leader
				term++
				for range 10 { // and the Tail mostly has what it overwrites
					check(t, w.Sync())
					if seen.Load() == n {
						break
					}
					time.Sleep(2 * time.Millisecond)
				}
				log = log[:commit+random.Uint64N(n-commit)]
			}
			first := uint64(len(log)) + 1
			batch := entriesOf(first, first+random.Uint64N(8), term, random.IntN(3000))
			log = append(log, batch...)
			commit += random.Uint64N(uint64(len(log)) - commit + 1)
			w.save(commit, batch...)
			time.Sleep(time.Duration(random.IntN(300)) * time.Microsecond)
		}
		check(t, w.Sync())
		written <- log[:commit]
	}()
	stop := make(chan struct{})
	purged := make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				purged <- n
				return
			case <-time.After(3 * time.Millisecond):
			}
			all, _ := filepath.Glob(filepath.Join(w.dir, "*.wal"))
			for len(all) > 2 {
				// A Tail is polled more often than etcd purges, also on a busy machine.
				if n, _ := parseName(filepath.Base(all[0])); n.seq > opened.Load() {
					break
				}
				if err := os.Remove(all[0]); err != nil && !errors.Is(err, os.ErrNotExist) {
					t.Error(err)
				}
				all, n = all[1:], n+1
			}
		}
	}()
	// Once the Tail is late: it opens more than it may hold, and that is purged before it reads on.
	check(t, tail.Poll(t.Context()))
	wait := func(until func(oldest, count int) bool) {
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
			all, _ := filepath.Glob(filepath.Join(w.dir, "*.wal"))
			if len(all) > 0 {
				if n, _ := parseName(filepath.Base(all[0])); until(int(n.seq), len(all)) {
					return
				}
			}
		}
	}
	wait(func(_, count int) bool { return count >= 10 })
	check(t, tail.Poll(t.Context()))
	opened.Store(tail.seq)
	wait(func(oldest, _ int) bool { return oldest+2 >= int(tail.seq) })
	var got, want []raftlog.Entry
	pinned, cut, highest := int64(0), 0, uint64(0)
	for want == nil || len(got) < len(want) {
		select {
		case log, ok := <-written:
			if ok {
				want = log
			}
		default:
		}
		check(t, tail.Poll(t.Context()))
		opened.Store(tail.seq)
		seen.Store(tail.Last())
		pinned = max(pinned, tail.Pinned())
		if tail.Last() < highest {
			cut++
		}
		highest = tail.Last()
		if out := tail.Release(tail.Recorded()); len(out) > 0 {
			got = append(got, out...)
			highest = tail.Last()
		}
		if t.Failed() {
			t.FailNow()
		}
		time.Sleep(2 * time.Millisecond)
	}
	close(stop)
	n := <-purged
	wantEntries(t, got, want)
	check(t, tail.Poll(t.Context()))
	if p := tail.Pinned(); p != 0 {
		t.Fatalf("%d bytes stay pinned", p)
	}
	if n == 0 || pinned == 0 || cut == 0 {
		t.Fatalf("%d files purged, %d bytes pinned at most, pending entries cut %d times: the test did not do its work", n, pinned, cut)
	}
	if o := tail.Overwritten(); o > 0 {
		t.Fatalf("committed entries are said to be overwritten: %d", o)
	}
	t.Logf("%d files purged, %d bytes pinned at most, pending entries cut %d times", n, pinned, cut)
}
