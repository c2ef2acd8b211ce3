package walfile

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/requorum/requorum/walreplay/raftlog"
)

func openTail(t testing.TB, dir string, o TailOptions) *Tail {
	t.Helper()
	tail, err := OpenTail(dir, o)
	check(t, err)
	t.Cleanup(func() { check(t, tail.Close()) })
	return tail
}

func poll(t testing.TB, tail *Tail) {
	t.Helper()
	check(t, tail.Poll(t.Context()))
}

// pollAll polls and releases all there is.
func pollAll(t testing.TB, tail *Tail) []raftlog.Entry {
	t.Helper()
	var out []raftlog.Entry
	for {
		poll(t, tail)
		got := tail.Release(tail.Last())
		out = append(out, got...)
		if len(got) == 0 {
			return out
		}
	}
}

// TestTailReadsWhatALogHas: also from the middle.
func TestTailReadsWhatALogHas(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "wal")
	want := overwrittenLog(t, dir)
	for _, from := range []uint64{0, 1, 95, 380, 391, 501} {
		tail := openTail(t, dir, TailOptions{From: from})
		poll(t, tail)
		if tail.Identity() != testIdentity || tail.First() != max(1, from) || tail.Last() != 501 || tail.Recorded() != 495 {
			t.Fatalf("%s, pending %d to %d, recorded %d", tail.Identity(), tail.First(), tail.Last(), tail.Recorded())
		}
		wantEntries(t, tail.Release(501), want[max(1, from)-1:])
		if o := tail.Overwritten(); o > 0 {
			t.Fatalf("overwrites of what was not released: %v", o)
		}
		if term, ok := tail.Term(501); !ok || term != 8 {
			t.Fatalf("term of the last released entry: %d, %v", term, ok)
		}
		if _, ok := tail.Term(502); ok || tail.First() != 0 || tail.Last() != 0 {
			t.Fatal("something is left")
		}
	}
}

// TestTornTailIsRetried: a file that grows byte by byte, as a reader may see it,
// gives each entry as soon as it is whole, and never an error.
func TestTornTailIsRetried(t *testing.T) {
	for _, preallocated := range []int{0, 4096} {
		b := newSegment(0).crc().metadata(testIdentity).snapshot(0, 0)
		head := len(b.bytes)
		for i := uint64(1); i <= 5; i++ {
			b.entry(i, 1, "some data of an entry").state(1, i)
		}
		dir := t.TempDir()
		path := write(t, dir, 0, 0, append(slices.Clone(b.bytes[:head]), make([]byte, preallocated)...))
		tail := openTail(t, dir, TailOptions{})
		next := uint64(1)
		for at := head; at < len(b.bytes); at++ {
			patch(t, path, int64(at), b.bytes[at:at+1])
			poll(t, tail)
			for _, e := range tail.Release(tail.Last()) {
				if e.Index != next || at < b.before[3+2*(next-1)] {
					t.Fatalf("%s after %d bytes, want entry %d", e, at+1, next)
				}
				next++
			}
		}
		if next != 6 || tail.Recorded() != 5 {
			t.Fatalf("read to %d, recorded %d", next, tail.Recorded())
		}
	}
}

// TestLiveDamage: what stays unreadable although the log goes on behind it, in
// the file or in the next one, is damage, and not waited for for ever.
func TestLiveDamage(t *testing.T) {
	good := func() *segmentBytes {
		return newSegment(0).crc().metadata(testIdentity).entry(1, 1, "one").state(1, 1).entry(2, 1, "two, which is bad").state(1, 2).entry(3, 1, "three").state(1, 3)
	}
	const bad = 4 // its record
	for name, spoil := range map[string]func(b *segmentBytes){
		"a flipped bit": func(b *segmentBytes) { b.bytes[b.before[bad]+20] ^= 1 },
		"zeros":         func(b *segmentBytes) { clear(b.bytes[b.before[bad]:b.before[bad+1]]) },
		"its length":    func(b *segmentBytes) { b.bytes[b.before[bad]+5] = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			b := good()
			spoil(b)
			path := write(t, dir, 0, 0, append(slices.Clone(b.bytes[:b.before[bad+1]]), make([]byte, 4096)...))
			tail := openTail(t, dir, TailOptions{})
			for range 3 { // nothing behind it yet: it may be a write in progress
				poll(t, tail)
			}
			patch(t, path, 0, b.bytes)
			poll(t, tail)
			wantCorrupt(t, tail.Poll(t.Context()), path, int64(b.before[bad]))
			wantCorrupt(t, tail.Poll(t.Context()), path, int64(b.before[bad]))
			if tail.Last() != 1 {
				t.Fatalf("pending to %d", tail.Last())
			}
			// It goes away: a disk that answered wrongly for a while.
			patch(t, path, 0, good().bytes)
			poll(t, tail)
			if tail.Last() != 3 {
				t.Fatalf("pending to %d", tail.Last())
			}
		})
		t.Run(name+" and a successor", func(t *testing.T) {
			dir := t.TempDir()
			b := good()
			spoil(b)
			path := write(t, dir, 0, 0, b.bytes[:b.before[bad+1]])
			tail := openTail(t, dir, TailOptions{})
			poll(t, tail)
			write(t, dir, 1, 4, newSegment(b.sum).crc().metadata(testIdentity).entry(4, 1, "four").bytes)
			wantCorrupt(t, tail.Poll(t.Context()), path, int64(b.before[bad]))
		})
	}
}

// TestMissingLiveSegment: a file that is gone although older ones are there was
// not purged.
func TestMissingLiveSegment(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "wal")
	overwrittenLog(t, dir)
	all := segments(t, dir)
	check(t, os.Remove(all[2]))
	tail := openTail(t, dir, TailOptions{})
	var err error
	for range 3 {
		err = tail.Poll(t.Context())
	}
	wantCorrupt(t, err, all[3], 0)
	n, _ := parseName(filepath.Base(all[2]))
	if tail.Last() != n.index-1 {
		t.Fatalf("read to %d, want %d", tail.Last(), n.index-1)
	}
}

// TestReleasedOverwritten: an entry that was released and then overwritten is an
// alarm, and pending ones are not.
func TestReleasedOverwritten(t *testing.T) {
	small(t, 64<<10)
	w := newWriter(t, filepath.Join(t.TempDir(), "wal"), testIdentity)
	w.save(5, entriesOf(1, 10, 1, 10)...)
	tail := openTail(t, w.dir, TailOptions{})
	poll(t, tail)
	tail.Release(7)
	w.save(7, entriesOf(9, 12, 2, 10)...) // pending ones only
	poll(t, tail)
	if o := tail.Overwritten(); o > 0 {
		t.Fatal(o)
	}
	tail.Release(9)
	w.save(7, entriesOf(8, 12, 3, 10)...)
	poll(t, tail)
	if o := tail.Overwritten(); o != 8 {
		t.Fatalf("overwritten: %d", o)
	}
	wantEntries(t, tail.Release(12), entriesOf(10, 12, 3, 10))
}

// TestPendingLimit: memory is bounded by what may be released, and reading goes
// on after a Release; what nothing records as committed is read on, since it
// could never be released otherwise.
func TestPendingLimit(t *testing.T) {
	small(t, 64<<10)
	w := newWriter(t, filepath.Join(t.TempDir(), "wal"), testIdentity)
	want := entriesOf(1, 200, 1, 1000)
	for i := range want {
		w.save(uint64(i+1), want[i])
	}
	check(t, w.Sync())
	tail := openTail(t, w.dir, TailOptions{PendingLimit: 20_000})
	var got []raftlog.Entry
	rounds := 0
	for {
		poll(t, tail)
		if tail.bytes > 25_000 {
			t.Fatalf("%d bytes pending", tail.bytes)
		}
		more := tail.Full()
		out := tail.Release(tail.Last())
		if got = append(got, out...); !more && len(out) == 0 {
			break
		}
		rounds++
	}
	wantEntries(t, got, want)
	if rounds < 8 {
		t.Fatalf("%d rounds: the limit did nothing", rounds)
	}

	w.save(0, entriesOf(201, 250, 1, 1000)...) // nobody says that they are committed
	w.save(0, entriesOf(201, 230, 2, 1000)...)
	w.save(230, entriesOf(231, 231, 2, 1000)...)
	check(t, w.Sync())
	poll(t, tail)
	if tail.Last() != 231 || tail.Recorded() != 230 || !tail.Full() {
		t.Fatalf("read to %d, recorded %d, full %v", tail.Last(), tail.Recorded(), tail.Full())
	}
}

// TestNewerLogs: each sign of a newer etcd is refused, by the version's name
// where the log has it, and again at each Poll.
func TestNewerLogs(t *testing.T) {
	for name, c := range map[string]struct {
		add     func(b *segmentBytes)
		version string
	}{
		"cluster version": {func(b *segmentBytes) { b.entry(2, 1, string(versionSet("3.8.0"))) }, "3.8.0"},
		"record type":     {func(b *segmentBytes) { b.record(6, []byte("new")) }, ""},
		"entry type":      {func(b *segmentBytes) { b.record(2, numbers(3, 1, 2)) }, ""},
		"entry field":     {func(b *segmentBytes) { b.record(2, numbers(0, 1, 2, 0, 5)) }, ""},
		"state field":     {func(b *segmentBytes) { b.record(3, numbers(1, 1, 1, 1)) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			b := newSegment(0).crc().metadata(testIdentity).entry(1, 1, "")
			c.add(b)
			write(t, dir, 0, 0, b.entry(3, 1, "").bytes)
			got, err := entriesIn(t, dir, 0)
			tail := openTail(t, dir, TailOptions{})
			for _, err := range []error{err, tail.Poll(t.Context()), tail.Poll(t.Context())} {
				if !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), "version "+c.version) {
					t.Fatalf("error %v, want ErrNewer of version %q", err, c.version)
				}
			}
			if len(got) != 1 || tail.Last() != 1 {
				t.Fatalf("%d entries, pending to %d; want the one before", len(got), tail.Last())
			}
		})
	}
}
