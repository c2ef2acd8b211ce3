package repository_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
)

const patience = 10 * time.Minute

func claimRepo(t *testing.T, s sinks.Sink) *repository.Repository {
	t.Helper()
	r, err := repository.Init(t.Context(), s, time.Now())
	require.NoError(t, err)
	return r
}

func try(t *testing.T, c *repository.Claimant, progress string) bool {
	t.Helper()
	_, held, err := c.Try(t.Context(), "slot", progress)
	require.NoError(t, err)
	return held
}

// Of many that try at once exactly one holds the slot, at every attempt.
func TestClaimRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := claimRepo(t, sinktest.NewMemory())
		var all []*repository.Claimant
		for i := range 20 {
			all = append(all, r.Claimant("job", fmt.Sprint("holder", i), patience))
		}
		race := func(tryers []*repository.Claimant) (winners []*repository.Claimant) {
			var wg sync.WaitGroup
			var mu sync.Mutex
			for _, c := range tryers {
				wg.Go(func() {
					if _, held, err := c.Try(t.Context(), "slot", ""); err != nil {
						t.Error(err)
					} else if held {
						mu.Lock()
						winners = append(winners, c)
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			return winners
		}
		first := race(all)
		if len(first) != 1 {
			t.Fatalf("%d hold the slot", len(first))
		}
		others := slices.DeleteFunc(all, func(c *repository.Claimant) bool { return c == first[0] })
		if again := race(others); len(again) != 0 {
			t.Fatalf("%d took a slot that is held", len(again))
		}
		time.Sleep(patience)
		if second := race(others); len(second) != 1 {
			t.Fatalf("after its holder stalled, %d hold the slot", len(second))
		}
	})
}

// A holder that gets on keeps the slot for as long as it does; one that stalls
// loses it after the observer's patience, not before.
func TestClaimStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := claimRepo(t, sinktest.NewMemory())
		a, b := r.Claimant("job", "a", patience), r.Claimant("job", "b", patience)
		if !try(t, a, "0") || try(t, b, "0") {
			t.Fatal("the first one did not get the slot alone")
		}
		for i := range 5 {
			time.Sleep(patience - time.Second)
			if try(t, b, fmt.Sprint("step ", i)) {
				t.Fatal("a holder that gets on lost its slot")
			}
		}
		time.Sleep(patience - time.Second)
		if try(t, b, "step 4") {
			t.Fatal("taken over too early")
		}
		time.Sleep(time.Second)
		if !try(t, b, "step 4") {
			t.Fatal("a stalled holder kept its slot")
		}
		if try(t, a, "step 4") {
			t.Fatal("the one that woke up late still holds the slot")
		}
	})
}

// An observer that has only just come knows nothing of how long the holder has
// made no progress, whatever the times in the repository say.
func TestClaimOfObserverThatStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := claimRepo(t, sinktest.NewMemory())
		if !try(t, r.Claimant("job", "a", patience), "") {
			t.Fatal("not held")
		}
		time.Sleep(1000 * time.Hour)
		if try(t, r.Claimant("job", "b", patience), "") {
			t.Fatal("taken over at first sight")
		}
	})
}

// A restarted process goes on with what it held.
func TestClaimAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := claimRepo(t, sinktest.NewMemory())
		for range 2 {
			if !try(t, r.Claimant("job", "a", patience), "") {
				t.Fatal("not held")
			}
		}
	})
}

// A put whose answer was lost may have been a success: trying again tells.
func TestClaimWithLostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sinktest.NewMemory()
		claimRepo(t, s)
		lost := &lostAnswers{Sink: s}
		r := claimRepo(t, lost)
		a := r.Claimant("job", "a", patience)
		lost.armed = true
		if _, _, err := a.Try(t.Context(), "slot", ""); !errors.Is(err, sinks.ErrUncertain) {
			t.Fatalf("got %v, want ErrUncertain", err)
		}
		if !try(t, a, "") {
			t.Fatal("its own claim is taken for another's")
		}
		if try(t, r.Claimant("job", "b", patience), "") {
			t.Fatal("both hold the slot")
		}
	})
}

// A claim that nobody can read blocks a slot for the patience and no longer.
func TestClaimDamaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sinktest.NewMemory()
		r := claimRepo(t, s)
		if _, err := sinks.Put(t.Context(), s, "claims/job/slot/9.json", []byte("{"), sinks.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		b := r.Claimant("job", "b", patience)
		if try(t, b, "") {
			t.Fatal("held at first sight")
		}
		time.Sleep(patience)
		claim, held, err := b.Try(t.Context(), "slot", "")
		if err != nil || !held || claim.Attempt != 10 {
			t.Fatalf("got %+v, %v, %v", claim, held, err)
		}
	})
}

// A claim that was copied to another slot is nobody's: its holder never set out
// for that one.
func TestClaimThatWasMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sinktest.NewMemory()
		r := claimRepo(t, s)
		b := r.Claimant("job", "b", patience)
		if _, held, err := b.Try(t.Context(), "other", ""); !held || err != nil {
			t.Fatal(held, err)
		}
		data, err := sinks.Get(t.Context(), s, repository.ClaimName("job", "other", 1), 1<<20)
		require.NoError(t, err)
		if _, err := sinks.Put(t.Context(), s, repository.ClaimName("job", "slot", 1), data, sinks.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if try(t, b, "") {
			t.Fatal("it holds what it never claimed")
		}
		if _, err := r.ReadClaim(t.Context(), "job", "slot", 1); !errors.Is(err, repository.ErrAltered) {
			t.Fatalf("got %v, want ErrAltered", err)
		}
		time.Sleep(patience)
		if !try(t, b, "") {
			t.Fatal("the slot is blocked")
		}
	})
}

// Design, Claims: of those that all saw the slot free before any of them wrote, the
// conditional put lets one have it.
func TestClaimRaceForOneAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowPuts{Sink: sinktest.NewMemory()}
		r := claimRepo(t, s)
		for attempt := 1; attempt <= 2; attempt++ {
			s.started.Store(0)
			var held atomic.Int64
			var wg sync.WaitGroup
			for i := range 5 {
				c := r.Claimant("job", fmt.Sprint("holder", attempt, i), 0)
				wg.Go(func() {
					claim, is, err := c.Try(t.Context(), "slot", "")
					if err != nil {
						t.Error(err)
					}
					if is {
						held.Add(1)
						if claim.Attempt != attempt {
							t.Errorf("attempt %d, want %d", claim.Attempt, attempt)
						}
					}
				})
			}
			wg.Wait()
			if s.started.Load() != 5 {
				t.Fatalf("%d of 5 tried to write", s.started.Load())
			}
			if held.Load() != 1 {
				t.Fatalf("attempt %d: %d hold the slot", attempt, held.Load())
			}
		}
	})
}

// slowPuts takes a minute to begin with an object.
type slowPuts struct {
	sinks.Sink
	started atomic.Int64
}

func (s *slowPuts) Create(ctx context.Context, name string, o sinks.CreateOptions) (sinks.Writer, error) {
	s.started.Add(1)
	time.Sleep(time.Minute)
	return s.Sink.Create(ctx, name, o)
}

func TestRemoveClaims(t *testing.T) {
	s := sinktest.NewMemory()
	r := claimRepo(t, s)
	for _, slot := range []string{"done", "open"} {
		if _, held, err := r.Claimant("job", "a", patience).Try(t.Context(), slot, ""); !held || err != nil {
			t.Fatal(held, err)
		}
	}
	require.NoError(t, r.RemoveClaims(t.Context(), "job", func(slot string, _ sinks.Object) bool { return slot == "done" }))
	var left []string
	for obj, err := range s.List(t.Context(), "claims/", "") {
		require.NoError(t, err)
		left = append(left, obj.Name)
	}
	if !slices.Equal(left, []string{"claims/job/open/1.json"}) {
		t.Fatalf("left: %v", left)
	}
}

// lostAnswers stores one object and answers that nobody knows whether it did.
type lostAnswers struct {
	sinks.Sink
	armed bool
}

func (l *lostAnswers) Create(ctx context.Context, name string, o sinks.CreateOptions) (sinks.Writer, error) {
	w, err := l.Sink.Create(ctx, name, o)
	return &lostWriter{w, l}, err
}

type lostWriter struct {
	sinks.Writer
	sink *lostAnswers
}

func (w *lostWriter) Commit(ctx context.Context) (sinks.Object, error) {
	obj, err := w.Writer.Commit(ctx)
	if err == nil && w.sink.armed {
		w.sink.armed = false
		return sinks.Object{}, sinks.ErrUncertain
	}
	return obj, err
}
