package segment

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// slow counts the readers that are open, and keeps each for a while.
type slow struct {
	sinks.Sink
	open, most atomic.Int64
	mu         sync.Mutex
}

func (s *slow) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	r, err := s.Sink.Open(ctx, name, offset, length)
	if err != nil {
		return nil, err
	}
	n := s.open.Add(1)
	s.mu.Lock()
	s.most.Store(max(s.most.Load(), n))
	s.mu.Unlock()
	time.Sleep(time.Millisecond)
	return &slowReader{r, s}, nil
}

type slowReader struct {
	io.ReadCloser
	sink *slow
}

func (r *slowReader) Close() error {
	r.sink.open.Add(-1)
	return r.ReadCloser.Close()
}

// Bodies and headers are fetched in parallel, no more of them than said, and
// nothing goes on when the consumer stops.
func TestPrefetchIsParallelAndBounded(t *testing.T) {
	s := &slow{Sink: sinktest.NewMemory()}
	var bounds []uint64
	for i := uint64(1); i < 200; i += 2 {
		bounds = append(bounds, i)
	}
	l := stored(t, s, run("a", 0, bounds...)...)
	if n := s.most.Swap(0); n < 4 || n > parallelSmall {
		t.Errorf("%d headers at once", n)
	}
	wantEntries(t, l, "a", 1, 198)
	if n := s.most.Swap(0); n < 4 || n > parallelBodies {
		t.Errorf("%d bodies at once", n)
	}
	for range l.Entries(t.Context(), 1, 198) {
		break
	}
	if n := s.open.Load(); n != 0 {
		t.Errorf("%d readers are still open", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	var last error
	for _, err := range l.Entries(ctx, 1, 198) {
		if n++; n == 50 {
			cancel()
		}
		last = err
	}
	if last == nil || n > 150 || s.open.Load() != 0 {
		t.Errorf("cancelled: %d entries, %v, %d readers open", n, last, s.open.Load())
	}
}

// Promise 5 of this package: of large segments fewer are fetched ahead.
func TestLargeSegmentsAreFetchedFewerAtOnce(t *testing.T) {
	s := &slow{Sink: sinktest.NewMemory()}
	repo := newRepo(t, s)
	var sum raftlog.Sum
	data := make([]byte, 3*MaxRaw/2)
	const segments = 4 // more than may be
	for i := uint64(1); i <= segments; i++ {
		b := Batch{Entries: []raftlog.Entry{{Index: i, Term: 1, Data: data}}}
		h, object, err := Encode(t.Context(), testTimeline, sum, i == 1, b, Meta{Cut: start}, Options{Tool: "test"})
		require.NoError(t, err)
		require.NoError(t, Put(t.Context(), newRepo(t, s), h, object))
		sum = h.After
	}
	l := openLog(t, repo)
	s.most.Store(0)
	got, err := collect(t, l, 1, segments)
	if err != nil || len(got) != segments {
		t.Fatalf("%d entries, %v", len(got), err)
	}
	if n := s.most.Load(); n > prefetchBytes/int64(len(data)) {
		t.Errorf("%d segments of %d bytes at once", n, len(data))
	}
}
