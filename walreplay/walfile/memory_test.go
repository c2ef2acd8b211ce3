package walfile

import (
	"path/filepath"
	"runtime"
	"testing"
)

// TestFlatMemory: memory stays far below the size of the log, whoever reads it.
func TestFlatMemory(t *testing.T) {
	const size, count = 16 << 10, 2000
	w := newWriter(t, filepath.Join(t.TempDir(), "wal"), testIdentity)
	for i := uint64(1); i <= count; i += 50 {
		w.save(i, entriesOf(i, i+49, 1, size)...)
	}
	w.close()
	peak := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := peak()
	const most = 8 << 20
	l, err := Open(w.dir)
	check(t, err)
	n := 0
	for _, err := range l.Entries(t.Context(), 0) {
		check(t, err)
		if n++; n%400 == 0 && peak() > before+most {
			t.Fatalf("%d bytes on the heap after %d entries, %d before", peak(), n, before)
		}
	}
	tail := openTail(t, w.dir, TailOptions{PendingLimit: most / 4})
	for m := 0; m < count; {
		poll(t, tail)
		m += len(tail.Release(tail.Last()))
		if peak() > before+most {
			t.Fatalf("%d bytes on the heap after %d entries, %d before", peak(), m, before)
		}
		n += m
	}
	if n < count {
		t.Fatal("not all was read")
	}
}
