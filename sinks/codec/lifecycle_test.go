package codec

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"runtime"
	"testing"
	"testing/synctest"

	"filippo.io/age"
	"github.com/stretchr/testify/require"
)

func sha256Hex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// failingWriter takes n writes and then fails.
type failingWriter struct {
	n   int
	err error
}

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.n == 0 {
		return 0, w.err
	}
	w.n--
	return len(p), nil
}

// Whichever write of the destination fails, the error comes out, and nothing
// is left running: synctest fails a test that leaves goroutines behind.
func TestDestinationFails(t *testing.T) {
	recipient := newIdentity(t).Recipient()
	for _, recipients := range [][]age.Recipient{nil, {recipient}} {
		failed := 0
		for n := range 20 {
			synctest.Test(t, func(t *testing.T) {
				full := errors.New("disk full")
				w, err := NewWriter(context.Background(), &failingWriter{n, full}, Options{FrameSize: 1 << 10, Recipients: recipients})
				if err == nil {
					_, err = w.Write(objects(10 << 10))
					if err == nil {
						err = w.Close()
					}
					if err != nil {
						if again := w.Close(); !errors.Is(again, full) {
							t.Errorf("Close after the error: %v", again)
						}
						if d := w.Description(); d.StoredSHA256 != "" {
							t.Error("an object that failed is described")
						}
					}
					w.Abort()
				}
				if err != nil {
					failed++
					require.ErrorIs(t, err, full, "write %d", n)
				}
			})
		}
		if failed < 5 || failed == 20 {
			t.Errorf("%d of 20 destinations failed", failed)
		}
	}
}

// Whenever writing is cancelled or aborted, it ends.
func TestWriterStops(t *testing.T) {
	why := errors.New("no longer wanted")
	for _, after := range []int{0, 1, 1 << 10, 50 << 10} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(context.Background())
			w, err := NewWriter(ctx, io.Discard, Options{FrameSize: 1 << 10})
			require.NoError(t, err)
			_, err = w.Write(objects(after))
			require.NoError(t, err)
			cancel(why)
			_, err = w.Write(objects(100 << 10))
			require.ErrorIs(t, err, why, "Write")
			require.ErrorIs(t, w.Close(), why, "Close")
		})
		synctest.Test(t, func(t *testing.T) {
			w, err := NewWriter(context.Background(), io.Discard, Options{FrameSize: 1 << 10})
			require.NoError(t, err)
			_, err = w.Write(objects(after))
			require.NoError(t, err)
			w.Abort()
			w.Abort()
			require.ErrorIs(t, w.Close(), ErrAborted, "Close")
		})
	}
}

// Cancelled without another call, a Writer leaves nothing running.
func TestWriterAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		w, err := NewWriter(ctx, io.Discard, Options{FrameSize: 1 << 10})
		require.NoError(t, err)
		_, err = w.Write(objects(9000))
		require.NoError(t, err)
		cancel()
	})
}

// A reader that is closed or cancelled at any point stops.
func TestReaderStops(t *testing.T) {
	raw := objects(50 << 10)
	stored, e := store(t, raw, Options{FrameSize: 1 << 10})
	for _, after := range []int64{0, 1, 1 << 10, 20 << 10} {
		synctest.Test(t, func(t *testing.T) {
			r, err := NewReader(context.Background(), bytes.NewReader(stored), e)
			require.NoError(t, err)
			_, err = io.CopyN(io.Discard, r, after)
			require.NoError(t, err)
			require.NoError(t, r.Close())
			if n, err := r.Read(make([]byte, 10)); n != 0 || err == nil || errors.Is(err, io.EOF) {
				t.Errorf("Read after Close: %d, %v", n, err)
			}
		})
		synctest.Test(t, func(t *testing.T) {
			why := errors.New("no longer wanted")
			ctx, cancel := context.WithCancelCause(context.Background())
			r, err := NewReader(ctx, bytes.NewReader(stored), e)
			require.NoError(t, err)
			_, err = io.CopyN(io.Discard, r, after)
			require.NoError(t, err)
			cancel(why)
			_, err = io.Copy(io.Discard, r)
			require.ErrorIs(t, err, why, "Read")
			require.NoError(t, r.Close())
		})
	}
}

// Memory does not grow with the object.
func TestMemoryIsFlat(t *testing.T) {
	write := func(n int) (uint64, Encoding) {
		before := allocated()
		w, err := NewWriter(t.Context(), io.Discard, Options{FrameSize: 256 << 10})
		require.NoError(t, err)
		_, err = io.CopyN(w, endlessZeros{}, int64(n))
		require.NoError(t, err)
		require.NoError(t, w.Close())
		return allocated() - before, w.Description()
	}
	small, _ := write(8 << 20)
	large, _ := write(256 << 20)
	if large > small+1<<20 {
		t.Errorf("8 MiB took %d bytes, 256 MiB took %d", small, large)
	}
}
