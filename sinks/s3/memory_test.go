package s3_test

import (
	"context"
	"io"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/sinktest"
)

// TestMemoryIsFlat: 300 MiB go up and come down with less than 150 MiB of heap
// in use; 200 MiB with -short. The server is another process.
func TestMemoryIsFlat(t *testing.T) {
	server := versity(t)
	s := open(t, server, server.URL("plain", "p"))
	total := int64(300 << 20)
	if testing.Short() {
		total = 200 << 20
	}
	block := sinktest.Random(1, 1<<20)
	peak := watchHeap(t, func() {
		w, err := s.Create(context.Background(), "object", sinks.CreateOptions{})
		require.NoError(t, err)
		for range total / int64(len(block)) {
			_, err = w.Write(block)
			require.NoError(t, err)
		}
		if o, err := w.Commit(context.Background()); err != nil || o.Size != total {
			t.Fatalf("%+v, %v", o, err)
		}
	})
	t.Logf("upload: at most %d MiB of heap in use", peak>>20)
	if peak > 150<<20 {
		t.Errorf("upload: %d MiB of heap in use", peak>>20)
	}
	peak = watchHeap(t, func() {
		r, err := s.Open(context.Background(), "object", 0, -1)
		require.NoError(t, err)
		defer r.Close()
		if n, err := io.Copy(io.Discard, r); err != nil || n != total {
			t.Fatalf("%d bytes, %v", n, err)
		}
	})
	t.Logf("download: at most %d MiB of heap in use", peak>>20)
	if peak > 150<<20 {
		t.Errorf("download: %d MiB of heap in use", peak>>20)
	}
}

// watchHeap samples the heap in use while do runs, without what was left there before.
func watchHeap(t *testing.T, do func()) (peak uint64) {
	t.Helper()
	runtime.GC()
	var over atomic.Bool
	done := make(chan uint64)
	go func() {
		var most uint64
		for !over.Load() {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapInuse)
			time.Sleep(5 * time.Millisecond)
		}
		done <- most
	}()
	defer func() { over.Store(true); peak = <-done }()
	do()
	return 0
}
