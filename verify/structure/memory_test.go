package structure

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/requorum/requorum/store/storetest"
)

// peakReader looks at the heap while the database is read.
type peakReader struct {
	f     *os.File
	mu    sync.Mutex
	reads int
	peak  uint64
}

func (p *peakReader) ReadAt(b []byte, off int64) (int, error) {
	p.mu.Lock()
	if p.reads++; p.reads%20 == 0 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		p.peak = max(p.peak, m.HeapAlloc)
	}
	p.mu.Unlock()
	return p.f.ReadAt(b, off)
}

// Memory does not grow with the size of the values nor with the number of old
// revisions, and by the bytes that the package's documentation names with the
// number of keys.
func TestFlatMemory(t *testing.T) {
	measure := func(revisions, keys, size int) int64 {
		m := newMade(t)
		value := bytes.Repeat([]byte("v"), size)
		for i := 0; i < revisions; {
			m.txn(func(tx mvcc.TxnWrite) {
				for range min(keys, 100) {
					tx.Put([]byte("key-"+strconv.Itoa(i%keys)), value, 0)
					i++
				}
			})
		}
		m.close()
		f, err := os.Open(m.path)
		must(t, err)
		defer f.Close()
		info, err := f.Stat()
		must(t, err)
		runtime.GC()
		var before runtime.MemStats
		runtime.ReadMemStats(&before)
		r := &peakReader{f: f}
		result, err := Check(t.Context(), r, info.Size(), Options{})
		must(t, err)
		if len(result.Findings) > 0 || result.Keys != int64(keys) || r.peak == 0 {
			t.Fatalf("%+v after %d reads", result, r.reads)
		}
		took := max(0, int64(r.peak)-int64(before.HeapAlloc))
		t.Logf("%d rows of %d bytes, %d keys, %d MiB: %d KiB of memory", revisions, size, keys, info.Size()>>20, took>>10)
		return took
	}
	times := 1
	if storetest.Soak() {
		times = 4
	}
	// Buffers of the workers, and rows on their way: whatever the size.
	const buffers = 24 << 20
	if took := measure(9_000*times, 100, 4000); took > buffers {
		t.Errorf("%d bytes for large values", took)
	}
	if took := measure(100_000*times, 1000, 10); took > buffers {
		t.Errorf("%d bytes for many revisions", took)
	}
	keys := 100_000 * times
	if took := measure(keys, keys, 10); took > buffers+64*int64(keys) {
		t.Errorf("%d bytes for many keys", took)
	}
}
