package job

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/s3"
	"github.com/requorum/requorum/sinks/sinktest"
)

const slot = "20000101T010000Z"

func board(t *testing.T, s sinks.Sink, name string) *Board {
	t.Helper()
	repo, err := repository.Open(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewBoard(repo, name, BoardOptions{Exclusive: true})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// claimed claims, and fails the test where the outcome is another one.
func claimed(t *testing.T, b *Board, slot string, want bool) *Task {
	t.Helper()
	task, got, err := b.Claim(t.Context(), "full", slot)
	if err != nil || got != want {
		t.Fatalf("%s claims %s: %v, %v", b.agent, slot, got, err)
	}
	return task
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Promise 1: a late result does not replace the first one, and is ErrLost, also
// while the other is still at it.
func TestPromise1LateResultLoses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		stalled := &host{Sink: m}
		a, b := board(t, stalled, "a"), board(t, m, "b")
		first := claimed(t, a, slot, true)
		claimed(t, b, slot, false)
		late := claimed(t, a, "20000102T010000Z", true)
		claimed(t, b, "20000102T010000Z", false)
		(&agent{host: stalled}).stall()
		time.Sleep(DefaultPatience)
		second := claimed(t, b, slot, true)
		if second.Attempt != 2 || second.BackupID() != first.BackupID() {
			t.Fatalf("attempt %d of %s", second.Attempt, second.BackupID())
		}
		ok(t, claimed(t, b, "20000102T010000Z", true).Finish(t.Context(), Result{Text: "b's"}))
		(&agent{host: stalled}).wake()
		if err := first.Finish(t.Context(), Result{Text: "a's"}); !errors.Is(err, ErrLost) {
			t.Fatalf("got %v, want ErrLost", err)
		}
		if err := late.Finish(t.Context(), Result{Text: "a's"}); !errors.Is(err, ErrLost) {
			t.Fatalf("got %v, want ErrLost", err)
		}
		ok(t, second.Finish(t.Context(), Result{Text: "b's"}))
		for slot, r := range results(t, m, "full") {
			if r.Text != "b's" || !r.OK {
				t.Errorf("%s: %+v", slot, r)
			}
		}
		claimed(t, a, slot, false)
	})
}

// A holder that is superseded, and one that cannot show that it is there, ends.
func TestTaskEndsWhenSuperseded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, repo := newRepo(t)
		cut := &host{Sink: m}
		began := time.Now()
		superseded, away := claimed(t, board(t, m, "a"), slot, true), claimed(t, board(t, cut, "a"), "20000102T010000Z", true)
		ok(t, repo.WriteClaim(t.Context(), repository.Claim{Job: "full", Slot: slot, Attempt: 2, Holder: "b"}))
		cut.away.Store(true)
		<-superseded.Context().Done()
		if took := time.Since(began); took > DefaultBeatEvery || !errors.Is(context.Cause(superseded.Context()), ErrLost) {
			t.Errorf("after %v: %v", took, context.Cause(superseded.Context()))
		}
		<-away.Context().Done()
		if took := time.Since(began); took >= DefaultPatience || took < DefaultPatience/2 || !strings.Contains(context.Cause(away.Context()).Error(), "no route to host") {
			t.Errorf("after %v: %v", took, context.Cause(away.Context()))
		}
		superseded.Abandon()
		away.Abandon()
	})
}

// Progress is written only of runs that last, and keeps them from being taken over.
func TestBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		a, b := board(t, m, "a"), board(t, m, "b")
		short := claimed(t, a, slot, true)
		time.Sleep(DefaultBeatEvery - time.Second)
		ok(t, short.Finish(t.Context(), Result{}))
		if got := names(t, m, "claims/full/"); !slices.Equal(got, []string{slot + "/1.json"}) {
			t.Fatalf("stored: %v", got)
		}
		long := claimed(t, a, "20000102T010000Z", true)
		for range 40 {
			time.Sleep(30 * time.Second)
			claimed(t, b, "20000102T010000Z", false)
		}
		if got := names(t, m, "claims/full/20000102T010000Z/beat-1-"); len(got) < 58 || len(got) > 60 {
			t.Errorf("%d beats in 20 minutes", len(got))
		}
		ok(t, long.Finish(t.Context(), Result{}))
	})
}

// A claim and a result whose answers were lost are this process's own.
func TestLostAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		a := board(t, sinktest.NewFaulty(m,
			sinktest.Lose(sinktest.Commit, 1, sinks.ErrUncertain).Of("claims/"),
			sinktest.Lose(sinktest.Commit, 1, sinks.ErrUncertain).Of("jobs/")), "a")
		if _, _, err := a.Claim(t.Context(), "full", slot); !errors.Is(err, sinks.ErrUncertain) {
			t.Fatalf("got %v, want ErrUncertain", err)
		}
		claimed(t, board(t, m, "b"), slot, false)
		task := claimed(t, a, slot, true)
		if task.Attempt != 1 {
			t.Errorf("attempt %d", task.Attempt)
		}
		if err := task.Finish(t.Context(), Result{Text: "a's"}); !errors.Is(err, sinks.ErrUncertain) {
			t.Fatalf("got %v, want ErrUncertain", err)
		}
		ok(t, task.Finish(t.Context(), Result{Text: "a's"}))
	})
}

// After the last attempt a failure is the slot's result: said by its holder, or by
// whoever saw it die. A new start of the same agent goes on at once.
func TestAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		for range 2 {
			ok(t, claimed(t, board(t, m, "a"), slot, true).Fail(t.Context(), Result{}, errors.New("went wrong")))
		}
		ok(t, claimed(t, board(t, m, "b"), slot, true).Interrupted(t.Context()))
		last := claimed(t, board(t, m, "c"), slot, true)
		if last.Attempt != 4 {
			t.Errorf("attempt %d", last.Attempt)
		}
		ok(t, last.Fail(t.Context(), Result{Bytes: 7}, errors.New("went wrong again")))
		if r := results(t, m, "full")[slot]; r.OK || r.Text != "went wrong again" || r.Bytes != 7 {
			t.Errorf("%+v", r)
		}
		claimed(t, board(t, m, "c"), slot, false)

		// Final: the first failure is the result. So is that of a demand.
		ok(t, claimed(t, board(t, m, "a"), "20000102T010000Z", true).Fail(t.Context(), Result{}, fmt.Errorf("verify: %w", Final(errors.New("damaged")))))
		asked := repository.NewDemandSlot(time.Now())
		ok(t, claimed(t, board(t, m, "a"), asked, true).Fail(t.Context(), Result{}, errors.New("went wrong")))
		if all := results(t, m, "full"); len(all) != 3 {
			t.Errorf("results: %v", keys(all))
		}

		// Killed three times, each start going on at once.
		const killed = "20000103T010000Z"
		for n := range 3 {
			task := claimed(t, board(t, m, "a"), killed, true)
			if task.Attempt != n+1 {
				t.Fatalf("attempt %d after %d", task.Attempt, n)
			}
			task.Abandon()
		}
		b := board(t, m, "b")
		claimed(t, b, killed, false)
		time.Sleep(DefaultPatience)
		claimed(t, b, killed, false)
		if r := results(t, m, "full")[killed]; r.OK || r.Holder != "a" || !strings.Contains(r.Text, "ended without a result, as seen by b") {
			t.Errorf("%+v", r)
		}
	})
}

// Two agents of one name, by mistake: the second takes over once, and they do not
// go on taking it from each other.
func TestNamesakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		a, namesake := board(t, m, "a"), board(t, m, "a")
		first := claimed(t, a, slot, true)
		second := claimed(t, namesake, slot, true)
		<-first.Context().Done()
		first.Abandon()
		for range 5 {
			claimed(t, a, slot, false)
			time.Sleep(30 * time.Second)
		}
		ok(t, second.Finish(t.Context(), Result{}))
	})
}

// A claim that nobody can read blocks a slot for the patience, and no longer.
func TestDamagedClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		if _, err := sinks.Put(t.Context(), m, "claims/full/"+slot+"/1.json", []byte("{"), sinks.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		b := board(t, m, "b")
		claimed(t, b, slot, false)
		time.Sleep(DefaultPatience)
		ok(t, claimed(t, b, slot, true).Finish(t.Context(), Result{}))
	})
}

func TestBoardRefused(t *testing.T) {
	_, repo := newRepo(t)
	for _, tt := range []struct {
		agent string
		o     BoardOptions
		want  string
	}{
		{"", BoardOptions{Exclusive: true}, "name"},
		{"a", BoardOptions{}, "repository.writer"},
		{"a", BoardOptions{Exclusive: true, Patience: time.Second}, "two beats"},
	} {
		if _, err := NewBoard(repo, tt.agent, tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
	for writer, waits := range map[string]bool{"a": false, "b": true} {
		b, err := NewBoard(repo, "a", BoardOptions{Writer: writer})
		ok(t, err)
		task, won, err := b.Claim(t.Context(), "full", slot)
		if err != nil || won == waits || (b.Waiting() != "") != waits || waits && !strings.Contains(b.Waiting(), "only b does jobs") {
			t.Errorf("writer %s: claimed %v, %v, waiting: %s", writer, won, err, b.Waiting())
		}
		if won {
			task.Abandon()
		}
	}
}

// Several boards race for the slots of a real S3 server: each has one result, by
// the one that won the attempt.
func TestRaceOnS3(t *testing.T) {
	server := sinktest.StartVersityGW(t, sinktest.VersityGWOptions{Buckets: []sinktest.S3Bucket{{Name: "backups"}}})
	open := func() sinks.Sink {
		c, err := s3.ParseURL(server.URL("backups", "cluster"))
		ok(t, err)
		c.Credentials = server.Credentials()
		s, err := s3.Open(t.Context(), c)
		ok(t, err)
		t.Cleanup(func() { s.Close() })
		return s
	}
	shared := open()
	_, err := repository.Init(t.Context(), shared, time.Now())
	ok(t, err)
	var mu sync.Mutex
	did := map[string]string{}
	var agents sync.WaitGroup
	for i := range 6 {
		b := board(t, open(), fmt.Sprint("m", i))
		agents.Go(func() {
			for n := range 8 {
				slot := repository.SlotName(time.Date(2026, 1, n+1, 0, 0, 0, 0, time.UTC))
				task, won, err := b.Claim(t.Context(), "full", slot)
				if err != nil {
					t.Error(err)
				}
				if !won {
					continue
				}
				mu.Lock()
				if did[slot] != "" {
					t.Errorf("%s was won by %s and %s", slot, did[slot], b.agent)
				}
				did[slot] = b.agent
				mu.Unlock()
				if err := task.Finish(t.Context(), Result{Text: b.agent}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	agents.Wait()
	all := results(t, shared, "full")
	for slot, r := range all {
		if r.Holder != did[slot] || !r.OK {
			t.Errorf("%s: %+v, was done by %s", slot, r, did[slot])
		}
	}
	if len(all) != 8 || len(did) != 8 {
		t.Errorf("%d results, %d done", len(all), len(did))
	}
	if h, err := board(t, shared, "m9").History(t.Context()); err != nil || h["full"].Last == nil || h["full"].Last.Slot != "20260108T000000Z" {
		t.Errorf("%+v, %v", h, err)
	}
}
