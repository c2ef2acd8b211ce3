package schedule

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
)

func newRepository(t *testing.T, s sinks.Sink) *repository.Repository {
	t.Helper()
	r, err := repository.Init(t.Context(), s, time.Now())
	require.NoError(t, err)
	return r
}

func newIdentity(t *testing.T) *age.X25519Identity {
	t.Helper()
	i, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	return i
}

func canaries(t *testing.T, s sinks.Sink) (names []string) {
	t.Helper()
	for o, err := range s.List(t.Context(), "canary/", "") {
		require.NoError(t, err)
		if _, err := repository.ParseCanaryName(o.Name); err != nil {
			t.Error(err)
		}
		names = append(names, o.Name)
	}
	return names
}

func TestCanary(t *testing.T) {
	memory := sinktest.NewMemory()
	repo := newRepository(t, memory)
	mine, escrow, stranger := newIdentity(t), newIdentity(t), newIdentity(t)
	both := []age.Recipient{mine.Recipient(), escrow.Recipient()}
	check := func(recipients []age.Recipient, identities ...age.Identity) error {
		return checkCanary(t.Context(), repo, recipients, identities)
	}
	// Who has recipients alone writes it.
	require.NoError(t, check(both))
	written := canaries(t, memory)
	if len(written) != 1 {
		t.Fatalf("there are %v", written)
	}
	// Either identity opens it, and the order of recipients does not matter.
	slices.Reverse(both)
	for _, i := range []*age.X25519Identity{mine, escrow} {
		if err := check(both, stranger, i); err != nil {
			t.Error(err)
		}
	}
	if got := canaries(t, memory); !slices.Equal(got, written) {
		t.Errorf("it was written again: %v", got)
	}
	err := check(both, stranger)
	if !errors.Is(err, errUnopened) || !strings.Contains(err.Error(), mine.Recipient().String()) || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("with a stranger's identity: %v", err)
	}
	// Other recipients have another one.
	if err := check([]age.Recipient{mine.Recipient()}, mine); err != nil {
		t.Error(err)
	}
	if err := check([]age.Recipient{escrow.Recipient()}, mine); !errors.Is(err, errUnopened) {
		t.Errorf("the escrow's alone, and it is not there: %v", err)
	}
	if got := canaries(t, memory); len(got) != 3 {
		t.Errorf("for three sets of recipients there are %v", got)
	}
	if err := check(nil, mine); err == nil {
		t.Error("no recipients, and no error")
	}
	passphrase, err := codec.PassphraseRecipient("long enough")
	require.NoError(t, err)
	if err := check([]age.Recipient{passphrase}); err == nil {
		t.Error("a passphrase has a canary")
	}
}

// A canary that was damaged, or replaced by one that the identities do not open or
// that belongs elsewhere, is told from a lost identity.
func TestCanaryForeign(t *testing.T) {
	mine, stranger := newIdentity(t), newIdentity(t)
	to := []age.Recipient{mine.Recipient()}
	elsewhere := sinktest.NewMemory()
	require.NoError(t, checkCanary(t.Context(), newRepository(t, elsewhere), to, nil))
	name := canaries(t, elsewhere)[0]
	other, err := sinks.Get(t.Context(), elsewhere, name, 1<<20)
	require.NoError(t, err)
	flipped := slices.Clone(other)
	flipped[len(flipped)-3] ^= 4
	var strange bytes.Buffer
	w, err := age.Encrypt(&strange, stranger.Recipient())
	require.NoError(t, err)
	require.NoError(t, w.Close())
	for what, data := range map[string][]byte{"of another repository": other, "damaged": flipped, "for a stranger": strange.Bytes(), "no age file": []byte("canary"), "empty": nil} {
		memory := sinktest.NewMemory()
		repo := newRepository(t, memory)
		if _, err := sinks.Put(t.Context(), memory, name, data, sinks.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := checkCanary(t.Context(), repo, to, []age.Identity{mine}); !errors.Is(err, errForeign) || errors.Is(err, errUnopened) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Many agents begin at once: one writes it, all are content. A repository that is
// away is neither of the two findings.
func TestCanaryRaceAndOutage(t *testing.T) {
	memory := sinktest.NewMemory()
	repo := newRepository(t, memory)
	mine := newIdentity(t)
	to := []age.Recipient{mine.Recipient()}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := checkCanary(t.Context(), repo, to, []age.Identity{mine}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := canaries(t, memory); len(got) != 1 {
		t.Errorf("there are %v", got)
	}
	away := errors.New("away")
	faulty := sinktest.NewFaulty(memory)
	through := newRepository(t, faulty)
	faulty.Add(sinktest.Fail(sinktest.Open, 1, away))
	if err := checkCanary(t.Context(), through, to, []age.Identity{mine}); !errors.Is(err, away) || errors.Is(err, errUnopened) || errors.Is(err, errForeign) {
		t.Errorf("got %v", err)
	}
	faulty.AllFired(t)
}
