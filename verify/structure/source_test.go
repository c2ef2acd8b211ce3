package structure

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A source that fails, and a context that ends, are errors and not damage,
// wherever it happens.
func TestSourceFails(t *testing.T) {
	m := sample(t)
	db := m.close()
	away := errors.New("the place is away")
	for n := 0; ; n++ {
		r, err := Check(t.Context(), &failing{r: bytes.NewReader(db), left: n, err: away}, int64(len(db)), Options{})
		if err == nil {
			if n < 10 || len(r.Findings) > 0 {
				t.Errorf("%d reads were made to fail, %q", n, r.Findings)
			}
			break
		}
		if !errors.Is(err, away) && !errors.Is(err, context.Canceled) {
			t.Fatalf("read %d: %v", n, err)
		}
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), -time.Second, away)
	defer cancel()
	_, err := Check(ctx, bytes.NewReader(db), int64(len(db)), Options{})
	require.ErrorIs(t, err, away)
}

type failing struct {
	r    io.ReaderAt
	mu   sync.Mutex
	left int
	err  error
}

func (f *failing) ReadAt(p []byte, off int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left == 0 {
		return 0, f.err
	}
	f.left--
	return f.r.ReadAt(p, off)
}
