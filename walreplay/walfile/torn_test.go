package walfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// lastSegment writes a log of one segment and gives its file, the offsets of its
// records, and its entries.
func lastSegment(t testing.TB) (path string, ends []int64, want []raftlog.Entry) {
	small(t, 64<<10)
	w := newWriter(t, filepath.Join(t.TempDir(), "wal"), testIdentity)
	for i := uint64(1); i <= 20; i++ {
		e := entriesOf(i, i, 1, 700)
		w.save(i, e...)
		want = append(want, e...)
	}
	w.close()
	path = segments(t, w.dir)[0]
	return path, frames(t, path), want
}

func summaryOf(t testing.TB, path string) (Summary, error) {
	t.Helper()
	l, err := Open(filepath.Dir(path))
	check(t, err)
	return l.Summary(t.Context())
}

// TestPreallocated: zeros to the end of the newest file are its clean end.
func TestPreallocated(t *testing.T) {
	path, ends, want := lastSegment(t)
	info, err := os.Stat(path)
	check(t, err)
	if info.Size() <= ends[len(ends)-1] {
		t.Fatal("nothing is preallocated: the test shows nothing")
	}
	s, err := summaryOf(t, path)
	check(t, err)
	if s.Torn != nil || s.LastIndex != uint64(len(want)) {
		t.Fatalf("%+v", s)
	}
}

// TestCutOff: wherever the newest file ends in its last record, that is a torn
// tail at the record's beginning, and what is before it is there.
func TestCutOff(t *testing.T) {
	path, ends, want := lastSegment(t)
	// The last records are the entry and the hard state of the last Save.
	start, end := ends[len(ends)-3], ends[len(ends)-2]
	for size := end - 1; size > start; size -= 37 {
		check(t, os.Truncate(path, size))
		got, err := entriesIn(t, filepath.Dir(path), 0)
		check(t, err)
		wantEntries(t, got, want[:len(want)-1])
		s, err := summaryOf(t, path)
		check(t, err)
		if s.Torn == nil || s.Torn.Offset != start || s.Torn.Segment != filepath.Base(path) {
			t.Fatalf("cut at %d: %+v, want torn at %d", size, s.Torn, start)
		}
	}
	check(t, os.Truncate(path, start))
	if s, err := summaryOf(t, path); err != nil || s.Torn != nil {
		t.Fatalf("cut at a record's border: %+v, %v", s.Torn, err)
	}
}

// zeroSectors zeroes the sector-aligned part of a range.
func zeroSectors(t testing.TB, path string, from, to int64) {
	t.Helper()
	from = (from + sectorSize - 1) / sectorSize * sectorSize
	to = (to + sectorSize - 1) / sectorSize * sectorSize
	if from >= to {
		t.Fatal("no sector begins there")
	}
	patch(t, path, from, make([]byte, to-from))
}

// TestTornSectors: sectors of the last Save that did not reach the disk are a
// torn tail, even if later ones of the same Save did.
func TestTornSectors(t *testing.T) {
	for name, later := range map[string]int{"at the end": 0, "records of the same Save after": 3} {
		t.Run(name, func(t *testing.T) {
			small(t, 64<<10)
			w := newWriter(t, filepath.Join(t.TempDir(), "wal"), testIdentity)
			first := entriesOf(1, 5, 1, 700)
			w.save(5, first...)
			w.save(6, entriesOf(6, uint64(6+later), 1, 700)...)
			w.close()
			path := segments(t, w.dir)[0]
			ends := frames(t, path)
			at := ends[3+5+1] // head: CRC, metadata, snapshot; five entries; state
			to := at + 8 + 700
			if later == 0 {
				to = ends[len(ends)-1]
			}
			zeroSectors(t, path, at+8, to)
			s, err := summaryOf(t, path)
			check(t, err)
			if s.Torn == nil || s.Torn.Offset != at || s.LastIndex != 5 {
				t.Fatalf("torn %+v, last %d; want torn at %d", s.Torn, s.LastIndex, at)
			}
			got, err := entriesIn(t, w.dir, 0)
			check(t, err)
			wantEntries(t, got, first)
		})
	}
}

// TestTornInsideOfASector: a copy of a file that is being written can have less
// of a record than a sector.
func TestTornInsideOfASector(t *testing.T) {
	b := newSegment(0).crc().metadata(testIdentity).entry(1, 1, "one").entry(2, 1, "a record that is shorter than a sector")
	at := b.before[3]
	clear(b.bytes[at+40:])
	dir := t.TempDir()
	path := write(t, dir, 0, 0, b.zeros(4096).bytes)
	s, err := summaryOf(t, path)
	check(t, err)
	if s.Torn == nil || s.Torn.Offset != int64(at) || s.LastIndex != 1 {
		t.Fatalf("torn %+v, last %d; want torn at %d", s.Torn, s.LastIndex, at)
	}
}

// TestDamageBeforeSyncedRecords: zeroed sectors, too, are damage when etcd had
// synced what follows them. Cutting there would lose what was acknowledged.
func TestDamageBeforeSyncedRecords(t *testing.T) {
	path, ends, want := lastSegment(t)
	at := ends[3+2*10] // the eleventh entry
	zeroSectors(t, path, at+8, at+8+700)
	_, err := summaryOf(t, path)
	wantCorrupt(t, err, path, at)
	got, err := entriesIn(t, filepath.Dir(path), 0)
	wantCorrupt(t, err, path, at)
	wantEntries(t, got, want[:10])
}

// TestLengthDamaged: etcd takes a record that is longer than the file for a torn
// one and cuts off all that follows. That is damage.
func TestLengthDamaged(t *testing.T) {
	for _, record := range []int{10, 21, 38, 42} { // entries and states, the last ones too
		path, ends, _ := lastSegment(t)
		at := ends[record]
		var head [8]byte
		binary.LittleEndian.PutUint64(head[:], 1<<40)
		patch(t, path, at, head[:])
		_, err := summaryOf(t, path)
		wantCorrupt(t, err, path, at)
	}
}

// TestFlippedLast: a flipped bit in the very last record is no torn write: etcd
// refuses such a log.
func TestFlippedLast(t *testing.T) {
	path, ends, _ := lastSegment(t)
	at := ends[len(ends)-3]
	flip(t, path, at+300)
	_, err := summaryOf(t, path)
	wantCorrupt(t, err, path, at)
}

// TestEveryFlip flips one bit of every byte of a log of several segments, in
// turn. Invariants:
//
//  1. What is yielded is a prefix of the log.
//  2. It is all of the log, or an error says why it isn't.
func TestEveryFlip(t *testing.T) {
	small(t, 1<<10)
	w := newWriter(t, filepath.Join(t.TempDir(), "wal"), testIdentity)
	var want []raftlog.Entry
	last, step := uint64(24), 1
	if testing.Short() {
		last, step = 14, 5
	}
	for i := uint64(1); i <= last; i++ {
		e := entriesOf(i, i, 1+i/9, 40)
		w.save(i, e...)
		want = append(want, e...)
	}
	w.close()
	if len(segments(t, w.dir)) < 2 {
		t.Fatal("the log is of one segment")
	}
	damaged := 0
	for n, path := range segments(t, w.dir) {
		whole, err := os.ReadFile(path)
		check(t, err)
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		check(t, err)
		for at := n % step; at < len(whole); at += step {
			if at >= step {
				_, err = f.WriteAt(whole[at-step:at-step+1], int64(at-step))
				check(t, err)
			}
			_, err = f.WriteAt([]byte{whole[at] ^ 1<<(at%8)}, int64(at))
			check(t, err)
			l, err := Open(w.dir)
			if err != nil {
				damaged++
				continue
			}
			var got []raftlog.Entry
			for e, entryErr := range l.Entries(t.Context(), 0) {
				if entryErr != nil {
					err = entryErr
					break
				}
				e.Data = bytes.Clone(e.Data)
				got = append(got, e)
			}
			wantEntries(t, got, want[:min(len(got), len(want))])
			var c *CorruptError
			switch {
			case err == nil && len(got) < len(want):
				t.Logf("frames at %v, bytes %x", frames(t, path), whole[:160])
				t.Fatalf("segment %d, byte %d: %d of %d entries, and no error", n, at, len(got), len(want))
			case err != nil && !errors.As(err, &c) && !errors.Is(err, ErrNewer):
				t.Fatalf("segment %d, byte %d: %v", n, at, err)
			case err != nil:
				damaged++
			}
		}
		check(t, f.Close())
		check(t, os.WriteFile(path, whole, 0o600))
	}
	if damaged < 84*int(last)/step {
		t.Fatalf("only %d flips were noticed: the test did not do its work", damaged)
	}
}

// TestHeadless: a newest file of zeros, or of nothing, was not begun yet.
func TestHeadless(t *testing.T) {
	for _, size := range []int{0, 4096} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			path, _, want := lastSegment(t)
			write(t, filepath.Dir(path), 1, 21, make([]byte, size))
			got, err := entriesIn(t, filepath.Dir(path), 0)
			check(t, err)
			wantEntries(t, got, want)
			if s, err := summaryOf(t, path); err != nil || s.Torn == nil || s.Torn.Offset != 0 {
				t.Fatalf("%+v, %v", s.Torn, err)
			}
		})
	}
}
