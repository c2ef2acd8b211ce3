package sinks_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/sinktest"
)

func TestLimitConforms(t *testing.T) {
	sinktest.Conformance(t, func(*testing.T) sinks.Sink {
		return sinks.Limit(sinktest.NewMemory(), 1<<40, 1<<40)
	}, sinktest.Options{})
	sinktest.Conformance(t, func(*testing.T) sinks.Sink {
		return sinks.Limit(sinktest.NewMemory(), 0, -1)
	}, sinktest.Options{Many: 10, Big: 1 << 20})
}

// TestLimitHolds up and down, for two streams together, with writes larger
// than a burst and with tiny rates.
func TestLimitHolds(t *testing.T) {
	for _, rate := range []int64{100, 1 << 20} {
		synctest.Test(t, func(t *testing.T) {
			s := sinks.Limit(sinktest.NewMemory(), rate, rate/2)
			data := sinktest.Random(1, 20*rate)
			timed := func(do func(name string)) time.Duration {
				began := time.Now()
				var both sync.WaitGroup
				for _, name := range []string{"a", "b"} {
					both.Go(func() { do(name) })
				}
				both.Wait()
				return time.Since(began)
			}
			up := timed(func(name string) {
				if _, err := sinks.Put(t.Context(), s, name, data, sinks.CreateOptions{}); err != nil {
					t.Error(err)
				}
			})
			down := timed(func(name string) {
				if got, err := sinks.Get(t.Context(), s, name, 1<<30); err != nil || !bytes.Equal(got, data) {
					t.Errorf("%d bytes, %v", len(got), err)
				}
			})
			// 40 seconds' worth up, 80 down; the first burst is free.
			if up < 38*time.Second || up > 41*time.Second || down < 78*time.Second || down > 81*time.Second {
				t.Errorf("at %d bytes/s: up in %s, down in %s", rate, up, down)
			}
		})
	}
}

// TestLimitEndsWithItsContext: who waits for the limit is not held by it.
func TestLimitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := sinktest.NewMemory()
		s := sinks.Limit(memory, 10, 10)
		if _, err := sinks.Put(t.Context(), memory, "a", make([]byte, 1000), sinks.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Second, cancel)
		w, err := s.Create(ctx, "b", sinks.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		n, err := w.Write(make([]byte, 1000))
		if !errors.Is(err, context.Canceled) || n < 50 || n > 70 || time.Since(began) != 5*time.Second {
			t.Errorf("write: %d, %v after %s", n, err, time.Since(began))
		}
		if err := w.Abort(); err != nil {
			t.Error(err)
		}

		ctx, cancel = context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		r, err := s.Open(ctx, "a", 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, r); !errors.Is(err, context.DeadlineExceeded) || n > 70 {
			t.Errorf("read: %d, %v", n, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}
