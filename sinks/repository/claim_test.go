package repository_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
)

func claimRepo(t *testing.T, s sinks.Sink) *repository.Repository {
	t.Helper()
	r, err := repository.Init(t.Context(), s, time.Now())
	require.NoError(t, err)
	return r
}

// An attempt is had by the one who writes its claim first. A claim that was copied to
// another slot is nobody's: its holder never set out for that one.
func TestClaim(t *testing.T) {
	s := sinktest.NewMemory()
	r := claimRepo(t, s)
	claim := repository.Claim{Job: "job", Slot: "slot", Attempt: 2, Holder: "a", Process: "p", Created: time.Now().UTC()}
	require.NoError(t, r.WriteClaim(t.Context(), claim))
	other := claim
	other.Holder = "b"
	require.ErrorIs(t, r.WriteClaim(t.Context(), other), sinks.ErrExists)
	got, err := r.ReadClaim(t.Context(), "job", "slot", 2)
	require.NoError(t, err)
	require.Equal(t, "a", got.Holder)
	data, err := sinks.Get(t.Context(), s, repository.ClaimName("job", "slot", 2), 1<<20)
	require.NoError(t, err)
	_, err = sinks.Put(t.Context(), s, repository.ClaimName("job", "other", 2), data, sinks.CreateOptions{})
	require.NoError(t, err)
	_, err = r.ReadClaim(t.Context(), "job", "other", 2)
	require.ErrorIs(t, err, repository.ErrAltered)
}
