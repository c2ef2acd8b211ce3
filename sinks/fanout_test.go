package sinks_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/sinktest"
)

var errBroken = errors.New("broken")

// fan is a FanOut over several memories with a script each. It runs inside a
// synctest bubble, which fails the test when a goroutine is left behind.
type fan struct {
	*sinks.FanOut
	places []*sinktest.Faulty
}

func newFan(ctx context.Context, t *testing.T, scripts ...[]sinktest.Fault) *fan {
	t.Helper()
	f := &fan{}
	var targets []sinks.Target
	for _, script := range scripts {
		place := sinktest.NewFaulty(sinktest.NewMemory(), script...)
		f.places = append(f.places, place)
		targets = append(targets, sinks.Target{Sink: place, Name: "object"})
	}
	var err error
	f.FanOut, err = sinks.NewFanOut(ctx, targets)
	require.NoError(t, err)
	return f
}

// outcome checks every target: with a nil error it holds data, otherwise
// nothing.
func (f *fan) outcome(t *testing.T, results []sinks.Result, data []byte, want ...error) {
	t.Helper()
	for i, result := range results {
		if !errors.Is(result.Err, want[i]) {
			t.Errorf("target %d: %v, want %v", i, result.Err, want[i])
		}
		got, err := sinks.Get(context.Background(), f.places[i].Unwrap(), "object", 1<<30)
		switch {
		case want[i] != nil && !errors.Is(err, sinks.ErrNotFound):
			t.Errorf("target %d holds %d bytes, %v", i, len(got), err)
		case want[i] == nil && (err != nil || !bytes.Equal(got, data) || result.Object.Size != int64(len(data))):
			t.Errorf("target %d holds %d bytes, %v; %+v", i, len(got), err, result.Object)
		}
		f.places[i].AllFired(t)
	}
}

// pieces writes data in odd pieces.
func (f *fan) pieces(t *testing.T, data []byte) {
	t.Helper()
	for n := 1; len(data) > 0; n = n*5 + 3 {
		n = min(n, len(data))
		if written, err := f.Write(data[:n]); written != n || err != nil {
			t.Fatalf("write %d: %d, %v", n, written, err)
		}
		data = data[n:]
	}
}

func TestFanOutSizes(t *testing.T) {
	for _, size := range []int64{0, 1, 256<<10 - 1, 256 << 10, 256<<10 + 1, 10<<20 + 7} {
		synctest.Test(t, func(t *testing.T) {
			f := newFan(t.Context(), t, nil, nil, nil)
			data := sinktest.Random(1, size)
			f.pieces(t, data)
			f.outcome(t, f.Commit(t.Context()), data, nil, nil, nil)
			require.NoError(t, f.Abort(), "abort after commit")
			_, err := f.Write(nil)
			require.ErrorIs(t, err, sinks.ErrClosed, "write after commit")
			for _, result := range f.Commit(t.Context()) {
				if !errors.Is(result.Err, sinks.ErrClosed) {
					t.Errorf("second commit: %v", result.Err)
				}
			}
		})
	}
}

// TestFanOutGoesOn: whatever one target fails at, it is aborted and the other
// gets everything.
func TestFanOutGoesOn(t *testing.T) {
	for _, fault := range []sinktest.Fault{
		sinktest.Fail(sinktest.Create, 1, errBroken),
		sinktest.Fail(sinktest.Write, 1, errBroken),
		sinktest.Fail(sinktest.Write, 9, errBroken),
		sinktest.Fail(sinktest.Commit, 1, errBroken),
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFan(t.Context(), t, nil, []sinktest.Fault{fault})
			data := sinktest.Random(1, 10<<20)
			f.pieces(t, data)
			f.outcome(t, f.Commit(t.Context()), data, nil, errBroken)
		})
	}
}

// TestFanOutAbortsAtOnce what fails, not only at the end of the stream.
func TestFanOutAbortsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFan(t.Context(), t, nil, []sinktest.Fault{
			sinktest.Fail(sinktest.Write, 1, errBroken), sinktest.Fail(sinktest.Abort, 1, sinks.ErrDenied)})
		data := sinktest.Random(1, 256<<10)
		f.pieces(t, data)
		synctest.Wait()
		if f.places[1].Calls(sinktest.Abort) != 1 || f.places[0].Calls(sinktest.Abort) != 0 {
			t.Error("the broken target is not aborted yet")
		}
		results := f.Commit(t.Context())
		f.outcome(t, results, data, nil, errBroken)
		if !errors.Is(results[1].Err, sinks.ErrDenied) {
			t.Errorf("that aborting failed is not reported: %v", results[1].Err)
		}
	})
}

// TestFanOutNoneLeft: only then Write fails, soon, and says why of each.
func TestFanOutNoneLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFan(t.Context(), t, []sinktest.Fault{sinktest.Fail(sinktest.Write, 2, sinks.ErrDenied)}, []sinktest.Fault{sinktest.Fail(sinktest.Write, 5, errBroken)})
		var err error
		writes := 0
		for ; err == nil && writes < 100; writes++ {
			_, err = f.Write(make([]byte, 256<<10))
		}
		if !errors.Is(err, sinks.ErrDenied) || !errors.Is(err, errBroken) || writes > 20 {
			t.Errorf("after %d writes: %v", writes, err)
		}
		f.outcome(t, f.Commit(t.Context()), nil, sinks.ErrDenied, errBroken)
	})
	synctest.Test(t, func(t *testing.T) {
		place := sinktest.NewFaulty(sinktest.NewMemory(), sinktest.Fail(sinktest.Create, 1, errBroken))
		_, err := sinks.NewFanOut(t.Context(), []sinks.Target{{Sink: place, Name: "a"}})
		require.ErrorIs(t, err, errBroken, "none could start")
		_, err = sinks.NewFanOut(t.Context(), nil)
		require.Error(t, err, "no target at all is accepted")
	})
}

// TestFanOutOverlaps: two targets that take a second for each piece take as
// long as one of them, commits included.
func TestFanOutOverlaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := []sinktest.Fault{sinktest.Delay(sinktest.Write, 1, time.Second).Always(), sinktest.Delay(sinktest.Commit, 1, 5*time.Second)}
		f := newFan(t.Context(), t, slow, slow, nil)
		data := sinktest.Random(1, 40*256<<10)
		began := time.Now()
		f.pieces(t, data)
		f.outcome(t, f.Commit(t.Context()), data, nil, nil, nil)
		if took := time.Since(began); took != 16*time.Second {
			t.Errorf("took %s, want 16s for 11 pieces and a commit", took)
		}
	})
}

// TestFanOutIsBounded: a target that stands still stops the stream after a few
// pieces; nothing piles up in memory.
func TestFanOutIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		f := newFan(ctx, t, nil, []sinktest.Fault{sinktest.Delay(sinktest.Write, 1, 1000*time.Hour)})
		taken := 0
		done := make(chan error)
		go func() {
			piece := make([]byte, 256<<10)
			for {
				if _, err := f.Write(piece); err != nil {
					done <- err
					return
				}
				taken++
			}
		}()
		synctest.Wait()
		if taken > 8 {
			t.Errorf("%d pieces of 256 KiB were taken", taken)
		}
		cancel()
		require.ErrorIs(t, <-done, context.Canceled, "write")
		require.NoError(t, f.Abort())
	})
}

// TestFanOutCancelled: after the end of the context the next call aborts every
// target, and no goroutine stays.
func TestFanOutCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := newFan(ctx, t, nil, []sinktest.Fault{sinktest.Delay(sinktest.Write, 2, time.Hour)}, nil)
		f.pieces(t, make([]byte, 600<<10))
		cancel()
		_, err := f.Write([]byte("more"))
		require.ErrorIs(t, err, context.Canceled, "write")
		for i, place := range f.places {
			if n := place.Calls(sinktest.Abort); n != 1 {
				t.Errorf("target %d: aborted %d times", i, n)
			}
		}
		canceled := context.Canceled
		f.outcome(t, f.Commit(t.Context()), nil, canceled, canceled, canceled)
	})
}

// TestFanOutCommitCancelled: a commit whose context ends leaves nothing where
// it was not done.
func TestFanOutCommitCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFan(t.Context(), t, nil, []sinktest.Fault{sinktest.Delay(sinktest.Commit, 1, time.Hour)})
		data := []byte("data")
		f.pieces(t, data)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		late := context.DeadlineExceeded
		f.outcome(t, f.Commit(ctx), data, nil, late)
	})
}

// TestFanOutAbort leaves nothing and no goroutine, also in the middle of a
// Write that hangs, and returns what could not be aborted.
func TestFanOutAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFan(t.Context(), t, nil,
			[]sinktest.Fault{sinktest.Delay(sinktest.Write, 1, time.Hour)}, []sinktest.Fault{sinktest.Fail(sinktest.Abort, 1, errBroken)})
		f.pieces(t, make([]byte, 1<<20))
		synctest.Wait()
		began := time.Now()
		require.ErrorIs(t, f.Abort(), errBroken, "abort")
		require.NoError(t, f.Abort(), "second abort")
		if took := time.Since(began); took > 0 {
			t.Errorf("took %s", took)
		}
		closed := sinks.ErrClosed
		f.outcome(t, f.Commit(t.Context()), nil, closed, closed, closed)
	})
}

// TestFanOutLeaksNothing counts goroutines outside of a bubble too, over many
// ends of every kind.
func TestFanOutLeaksNothing(t *testing.T) {
	before := runtime.NumGoroutine()
	for i := range 300 {
		ctx, cancel := context.WithCancel(t.Context())
		f := newFan(ctx, t, nil, nil, nil)
		f.pieces(t, []byte(strings.Repeat("x", i*1000)))
		switch i % 4 {
		case 0:
			f.Commit(ctx)
		case 1:
			require.NoError(t, f.Abort())
		case 2:
			cancel()
		case 3:
			cancel()
			f.Commit(t.Context())
		}
		cancel()
	}
	for end := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before && time.Now().Before(end); {
		runtime.Gosched()
	}
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines, before %d", after, before)
	}
}
