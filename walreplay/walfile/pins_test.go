package walfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// purgeable is a log of many segments that a Tail with a small limit has open,
// but has not read.
func purgeable(t *testing.T, o TailOptions) (tail *Tail, w *writer, want []raftlog.Entry) {
	small(t, 4<<10)
	w = newWriter(t, filepath.Join(t.TempDir(), "wal"), testIdentity)
	want = entriesOf(1, 300, 1, 100)
	for i := range want {
		w.save(uint64(i+1), want[i])
	}
	check(t, w.Sync())
	o.PendingLimit = 5000
	tail = openTail(t, w.dir, o)
	poll(t, tail)
	if !tail.Full() {
		t.Fatal("all is read")
	}
	return tail, w, want
}

// purge deletes the oldest segments but some, as etcd does.
func purge(t *testing.T, dir string, keep int) (bytes int64) {
	all := segments(t, dir)
	for _, s := range all[:len(all)-keep] {
		info, err := os.Stat(s)
		check(t, err)
		bytes += info.Size()
		check(t, os.Remove(s))
	}
	return bytes
}

// TestPins: what was purged and not read is read all the same, is accounted for,
// and is release when it was read.
func TestPins(t *testing.T) {
	tail, w, want := purgeable(t, TailOptions{})
	gone := purge(t, w.dir, 2)
	got := tail.Release(tail.Last())
	for tail.Poll(t.Context()) == nil {
		if len(got) < 100 && tail.Pinned() < gone/2 {
			t.Fatalf("%d bytes pinned of %d that are purged", tail.Pinned(), gone)
		}
		out := tail.Release(tail.Last())
		if len(out) == 0 {
			break
		}
		got = append(got, out...)
	}
	wantEntries(t, got, want)
	if tail.Pinned() != 0 {
		t.Fatalf("%d bytes are still pinned", tail.Pinned())
	}
}

// TestDropPins: what is lost by letting go of purged files is reported once, with
// its ends, and reading goes on behind it.
func TestDropPins(t *testing.T) {
	for name, drop := range map[string]func(t *testing.T, tail *Tail) error{
		"by hand": func(t *testing.T, tail *Tail) error {
			poll(t, tail) // notices what is purged
			if !tail.DropPins() {
				t.Fatal("nothing is said to be lost")
			}
			return nil
		},
		"by the limit": func(t *testing.T, tail *Tail) error {
			tail.options.PinLimit = 10_000
			return tail.Poll(t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			tail, w, want := purgeable(t, TailOptions{})
			purge(t, w.dir, 2)
			n, _ := parseName(filepath.Base(segments(t, w.dir)[0]))
			err := drop(t, tail)
			if tail.Pinned() != 0 {
				t.Fatalf("%d bytes pinned", tail.Pinned())
			}
			last := tail.Last()
			if last == 0 || last > tail.Recorded() {
				t.Fatalf("pending to %d, recorded %d", last, tail.Recorded())
			}
			wantEntries(t, tail.Release(last), want[:last])
			var purged *PurgedError
			if err == nil {
				err = tail.Poll(t.Context())
			}
			if !errors.As(err, &purged) || *purged != (PurgedError{Want: last + 1, First: n.index}) {
				t.Fatalf("%v, want entries %d to %d missing", err, last+1, n.index-1)
			}
			wantEntries(t, pollAll(t, tail), want[n.index-1:])
			if tail.DropPins() {
				t.Fatal("lost something that nobody held")
			}
		})
	}
}

// TestNothingLost: letting go of what was read, up to a border, loses nothing.
func TestNothingLost(t *testing.T) {
	small(t, 1<<10)
	w := newWriter(t, filepath.Join(t.TempDir(), "wal"), testIdentity)
	want := entriesOf(1, 40, 1, 100)
	tail := openTail(t, w.dir, TailOptions{})
	var got []raftlog.Entry
	for i := range want {
		w.save(uint64(i+1), want[i])
		check(t, w.Sync())
		poll(t, tail)
		got = append(got, tail.Release(tail.Last())...)
		purge(t, w.dir, 1)
		if tail.DropPins() {
			t.Fatalf("lost something at entry %d", i+1)
		}
	}
	wantEntries(t, got, want)
}

// TestPurgedBeforeOpening: files that came and went between two Polls are a hole
// that is reported, and nothing before it that might have been overwritten in them
// is left.
func TestPurgedBeforeOpening(t *testing.T) {
	small(t, 4<<10)
	w := newWriter(t, filepath.Join(t.TempDir(), "wal"), testIdentity)
	w.save(7, entriesOf(1, 10, 1, 100)...)
	check(t, w.Sync())
	tail := openTail(t, w.dir, TailOptions{})
	poll(t, tail)
	want := entriesOf(8, 300, 2, 100)
	for _, e := range want {
		w.save(e.Index, e)
	}
	check(t, w.Sync())
	purge(t, w.dir, 2)
	n, _ := parseName(filepath.Base(segments(t, w.dir)[0]))
	var purged *PurgedError
	if err := tail.Poll(t.Context()); !errors.As(err, &purged) || purged.First != n.index {
		t.Fatal(err)
	}
	// The file that was open goes on to be read to its end.
	if tail.Last() != purged.Want-1 || tail.Last() > tail.Recorded() {
		t.Fatalf("pending to %d, recorded %d, want %d", tail.Last(), tail.Recorded(), purged.Want)
	}
	poll(t, tail) // waits for the release
	got := tail.Release(tail.Last())
	got = append(got, pollAll(t, tail)...)
	wantEntries(t, got[:7], entriesOf(1, 7, 1, 100))
	wantEntries(t, got[len(got)-int(300-n.index+1):], want[n.index-8:])
}

// TestPurgedFrom: an index that is not there any more is reported, and what is there
// is given.
func TestPurgedFrom(t *testing.T) {
	_, w, want := purgeable(t, TailOptions{})
	purge(t, w.dir, 2)
	n, _ := parseName(filepath.Base(segments(t, w.dir)[0]))
	tail := openTail(t, w.dir, TailOptions{From: 5})
	var purged *PurgedError
	if err := tail.Poll(t.Context()); !errors.As(err, &purged) || *purged != (PurgedError{Want: 5, First: n.index}) {
		t.Fatal(err)
	}
	wantEntries(t, pollAll(t, tail), want[n.index-1:])
	if _, err := entriesIn(t, w.dir, 5); !errors.As(err, &purged) || *purged != (PurgedError{Want: 5, First: n.index}) {
		t.Fatal(err)
	}
}
