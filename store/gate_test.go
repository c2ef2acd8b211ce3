package store

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Streams end at once, requests after their grace, and nobody comes in later.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		began := time.Now()
		stays := func(until context.Context, want time.Duration) {
			ctx, leave, err := g.enter(t.Context(), until)
			require.NoError(t, err)
			go func() {
				defer leave()
				<-ctx.Done()
				if took := time.Since(began); took != want {
					t.Errorf("ended after %s, want %s", took, want)
				}
			}()
		}
		stays(g.streams, 0)
		stays(g.unary, time.Second)
		if !g.close(time.Second) {
			t.Error("somebody is left inside")
		}
		_, _, err := g.enter(t.Context(), g.unary)
		require.Error(t, err, "a call was let in after closing")
	})
}

// A request that does not heed its context cannot hold up the closing.
func TestGateIsNotHeldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		_, leave, err := g.enter(t.Context(), g.unary)
		require.NoError(t, err)
		began := time.Now()
		if g.close(time.Second) || time.Since(began) != 2*time.Second {
			t.Errorf("closed after %s", time.Since(began))
		}
		leave()
	})
}
