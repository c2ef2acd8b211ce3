package walfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// readBoth reads a directory as a stopped member's log and as a live one. What
// both have to hold to, whatever the bytes:
//
//  1. Entries come in order, without holes but reported ones.
//  2. It ends: each Poll gives entries, an error, or nothing more.
//  3. Where the Log ends without an error, the Tail gives the same.
func readBoth(t *testing.T, dir string) {
	l, err := Open(dir)
	if err != nil {
		return
	}
	var whole []raftlog.Entry
	var end error
	first := uint64(0)
	for range 1000 {
		end = nil
		for e, err := range l.Entries(t.Context(), first) {
			if err != nil {
				end = err
				break
			}
			if n := len(whole); n > 0 && e.Index <= whole[n-1].Index || first > 0 && e.Index < first {
				t.Fatalf("%s after index %d, from %d on", e, whole[n-1].Index, first)
			}
			e.Data = bytes.Clone(e.Data)
			whole = append(whole, e)
		}
		var gap *GapError
		if !errors.As(end, &gap) {
			break
		}
		if gap.Next <= first || gap.Next == 0 {
			t.Fatalf("a gap that leads back from %d: %v", first, end)
		}
		first = gap.Next
	}
	_, summaryErr := l.Summary(t.Context())
	if first == 0 && (summaryErr == nil) != (end == nil) {
		t.Fatalf("Summary says %v, Entries says %v", summaryErr, end)
	}
	tail, err := OpenTail(dir, TailOptions{PendingLimit: 1000})
	if err != nil {
		return
	}
	defer tail.Close()
	var live []raftlog.Entry
	idle := 0
	for n := 0; idle < 3; n++ {
		if n > 10_000 {
			t.Fatal("it does not end")
		}
		err := tail.Poll(t.Context())
		out := tail.Release(tail.Last())
		live = append(live, out...)
		if IsHole(err) || len(out) > 0 {
			idle = 0
			continue
		}
		idle++
	}
	if end != nil || summaryErr != nil || tail.Overwritten() > 0 {
		return
	}
	// Released early, entries may be overwritten later: the Log has the last word.
	if n := len(live); n > 0 && len(whole) > 0 && !live[n-1].Equal(whole[len(whole)-1]) {
		t.Fatalf("the Tail ends with %s, the Log with %s", live[n-1], whole[len(whole)-1])
	}
}

// seeds are segments of all kinds.
func seeds() [][]byte {
	all := newSegment(0).crc().metadata(testIdentity).snapshot(0, 0).
		entry(1, 1, "").entry(2, 1, string(put("key", 20))).state(1, 2).entry(3, 1, string(versionSet("3.7.0"))).
		entry(2, 2, "again").state(2, 2).snapshot(9, 3).state(3, 9).entry(10, 3, "behind").zeros(64)
	return [][]byte{all.bytes, all.bytes[:len(all.bytes)-70], newSegment(7).crc().metadata(testIdentity).entry(5, 1, "x").bytes, {}, make([]byte, 600)}
}

// FuzzWAL reads arbitrary bytes as a segment, and cut in two as two of them.
func FuzzWAL(f *testing.F) {
	for _, b := range seeds() {
		f.Add(b, uint16(0))
		f.Add(b, uint16(100))
	}
	f.Fuzz(func(t *testing.T, b []byte, cut uint16) {
		if len(b) > 1<<20 {
			return
		}
		dir := t.TempDir()
		n := int(cut)
		if n == 0 || n >= len(b) {
			n = len(b)
		}
		write(t, dir, 0, 0, b[:n])
		if n < len(b) {
			write(t, dir, 1, 3, b[n:])
		}
		readBoth(t, dir)
	})
}

// FuzzMutation changes bytes of real segments, and mends the CRCs after them or
// not, so that what is behind the CRCs is reached too.
func FuzzMutation(f *testing.F) {
	for i := range uint32(8) {
		f.Add(i*97, []byte{byte(i), 0xff, 1}, i%2 == 0)
	}
	f.Fuzz(func(t *testing.T, at uint32, change []byte, mend bool) {
		dir := t.TempDir()
		b := append([]byte(nil), seeds()[0]...)
		for i, v := range change {
			b[(int(at)+i*13)%len(b)] ^= v
		}
		if mend {
			mendCRCs(b)
		}
		write(t, dir, 0, 0, b)
		readBoth(t, dir)
	})
}

// mendCRCs makes the CRCs of all records right, as far as they have the form.
func mendCRCs(b []byte) {
	var out segmentBytes
	for at := 0; at < len(b); {
		r, ok := parseFrame(b[at:])
		if !ok {
			return
		}
		data := append([]byte(nil), r.data...)
		if r.data == nil {
			data = nil
		}
		out.record(r.kind, data)
		if len(out.bytes) > len(b) {
			return
		}
		copy(b, out.bytes)
		at = len(out.bytes)
	}
}

// FuzzExamine looks at arbitrary bytes for records behind damage.
func FuzzExamine(f *testing.F) {
	for _, b := range seeds() {
		f.Add(b, uint16(40))
	}
	f.Fuzz(func(t *testing.T, b []byte, at uint16) {
		path := filepath.Join(t.TempDir(), "f")
		check(t, os.WriteFile(path, b, 0o600))
		file, err := os.Open(path)
		check(t, err)
		defer file.Close()
		_, err = examine(file, min(int64(at), int64(len(b))), int64(len(b)), 1)
		check(t, err)
	})
}

// TestHostileFiles: lengths that lie, files with holes, and a file full of what
// looks like records, take bounded memory and time.
func TestHostileFiles(t *testing.T) {
	limit := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(limit)
	head := newSegment(0).crc().metadata(testIdentity).entry(1, 1, "one").bytes
	for name, tail := range map[string][]byte{
		"a length of a terabyte": binary.LittleEndian.AppendUint64(nil, 1<<40),
		"a negative length":      binary.LittleEndian.AppendUint64(nil, 1<<63|1<<40),
		"frames in frames":       nestedFrames(4 << 20),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := write(t, dir, 0, 0, append(append([]byte(nil), head...), tail...))
			start := time.Now()
			readBoth(t, dir)
			check(t, os.Truncate(path, 40<<20)) // and with a hole behind it
			readBoth(t, dir)
			if took := time.Since(start); took > 20*time.Second {
				t.Fatalf("took %s", took)
			}
		})
	}
}

// nestedFrames has, every 8 bytes, a frame as long as all that follows.
func nestedFrames(size int) []byte {
	b := make([]byte, size)
	for at := 0; at+32 < size; at += 32 {
		rest := size - at - frameHead
		binary.LittleEndian.PutUint64(b[at:], uint64(rest/2)&^7)
		copy(b[at+8:], []byte{8, 2, 16, 1, 26})
		binary.PutUvarint(b[at+13:], uint64(rest/2)&^7-9)
	}
	return b
}
