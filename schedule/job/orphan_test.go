package job

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/requorum/requorum/schedule/status"
	"github.com/requorum/requorum/sinks/repository"
)

// endless is a job that lasts until its process ends.
func endless(name string) Entry {
	return Entry{Spec: Spec{Name: name}, Do: func(ctx context.Context, _ *Task) (Result, error) {
		<-ctx.Done()
		return Result{}, ctx.Err()
	}}
}

func find(t *testing.T, a *agent, slot string) (status.Run, bool) {
	t.Helper()
	run, there, err := a.runner.Find(t.Context(), "drill", slot)
	ok(t, err)
	return run, there
}

// Promise 6: the process of a run that was asked for is killed; after its restart
// the slot has a failure for its result within a minute, which the history shows.
func TestPromise6DemandOfKilledAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		a := startAgent(t, m, "a", 0, BoardOptions{}, endless("drill"))
		slot, err := a.runner.Demand(t.Context(), "drill", nil)
		ok(t, err)
		time.Sleep(10 * time.Minute) // however long it was at it
		a.kill()
		if all := results(t, m, "drill"); len(all) != 0 {
			t.Fatalf("it was to be killed without a word: %v", all)
		}
		again := startAgent(t, m, "a", 0, BoardOptions{}, endless("drill"))
		time.Sleep(time.Minute)
		run, there := find(t, again, slot)
		if !there || run.OK || run.Finished.IsZero() || run.Agent != "a" || !strings.Contains(run.Text, "ended in the middle of it") {
			t.Errorf("after the restart: %v, %+v", there, run)
		}
		if s := again.runner.Status()[0]; s.LastFailure == nil || s.LastFailure.Slot != slot {
			t.Errorf("the status does not show it: %+v", s)
		}
		again.stop()
	})
}

// Promise 6: where that agent does not come back another one does it, sooner where
// somebody asks; and never while the run shows that it gets on.
func TestPromise6DemandSeenByAnother(t *testing.T) {
	for _, asked := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			m, _ := newRepo(t)
			a := startAgent(t, m, "a", 0, BoardOptions{}, endless("drill"))
			b := startAgent(t, m, "b", 0, BoardOptions{}, endless("drill"))
			slot, err := a.runner.Demand(t.Context(), "drill", nil)
			ok(t, err)
			time.Sleep(time.Minute)
			if asked {
				for range 20 {
					if run, there := find(t, b, slot); !there || !run.Finished.IsZero() || run.Agent != "a" {
						t.Fatalf("under way: %v, %+v", there, run)
					}
					time.Sleep(time.Minute)
				}
			} else {
				time.Sleep(2 * orphansEvery) // it is looked at, and left
				if all := results(t, m, "drill"); len(all) != 0 {
					t.Fatalf("concluded while it was under way: %v", all)
				}
			}
			a.kill()
			if asked {
				find(t, b, slot)
				time.Sleep(3 * time.Minute)
			} else {
				time.Sleep(3 * time.Minute)
			}
			r, there := results(t, m, "drill")[slot]
			if !there || r.OK || r.Holder != "a" || !strings.Contains(r.Text, "as seen by b") {
				t.Errorf("asked: %v: %v, %+v", asked, there, r)
			}
			b.stop()
		})
	}
}

// A run that was asked for and is stopped in an orderly way has its result at once.
func TestPromise6DemandInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, repo := newRepo(t)
		a := startAgent(t, m, "a", 0, BoardOptions{}, endless("drill"))
		slot, err := a.runner.Demand(t.Context(), "drill", nil)
		ok(t, err)
		time.Sleep(time.Minute)
		a.stop()
		if r := results(t, m, "drill")[slot]; r.OK || !strings.Contains(r.Text, "a was stopped in the middle of it") {
			t.Errorf("%+v", r)
		}
		// As an earlier version left it: a failed attempt, and no result.
		old := repository.NewDemandSlot(time.Now())
		ok(t, repo.WriteClaim(t.Context(), repository.Claim{Job: "drill", Slot: old, Attempt: 1, Holder: "c", Process: "x", Created: time.Now()}))
		ok(t, repo.WriteJobFailed(t.Context(), repository.JobResult{Job: "drill", Slot: old, Attempt: 1, Holder: "c", Text: "c was stopped"}))
		b := startAgent(t, m, "b", 0, BoardOptions{}, endless("drill"))
		time.Sleep(time.Minute)
		if r := results(t, m, "drill")[old]; r.OK || r.Holder != "c" {
			t.Errorf("%+v", r)
		}
		b.stop()
	})
}

// A demand that is under way here is never concluded by its own agent, whatever
// the loops look at.
func TestDemandOfOneself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		done := make(chan struct{})
		a := startAgent(t, m, "a", 0, BoardOptions{}, Entry{Spec: Spec{Name: "drill"}, Do: func(context.Context, *Task) (Result, error) {
			<-done
			return Result{Text: "done"}, nil
		}})
		slot, err := a.runner.Demand(t.Context(), "drill", nil)
		ok(t, err)
		time.Sleep(time.Minute)
		a.board.await("drill", slot)
		time.Sleep(2*orphansEvery + time.Minute)
		close(done)
		time.Sleep(time.Second)
		if r := results(t, m, "drill")[slot]; !r.OK {
			t.Errorf("%+v", r)
		}
		a.stop()
	})
}

// Promise 7: a claim of this agent's name that another process makes later on is a
// namesake's; the claims of the process before this one are not.
func TestPromise7Namesake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		time.Sleep(5 * 24 * time.Hour)
		before := board(t, m, "a")
		old := claimed(t, before, slot, true)
		old.Abandon()
		time.Sleep(time.Hour)

		a := board(t, m, "a")
		ok(t, claimed(t, a, slot, true).Finish(t.Context(), Result{})) // at once: it is that of the process before
		if since, there := a.Namesake(); there {
			t.Fatalf("the process before passes for a namesake, since %v", since)
		}
		time.Sleep(time.Hour)
		began := time.Now()
		namesake := board(t, m, "a")
		first := claimed(t, namesake, "20000102T010000Z", true)
		claimed(t, a, "20000102T010000Z", false) // it is left alone
		if since, there := a.Namesake(); !there || since.Sub(began).Abs() > time.Second {
			t.Errorf("%v, %v", since, there)
		}
		time.Sleep(DefaultPatience)
		ok(t, first.Finish(t.Context(), Result{}))
		if _, there := namesake.Namesake(); there {
			t.Error("nothing of the other was seen yet")
		}
		// Behind a result it is found as well.
		ok(t, claimed(t, a, "20000103T010000Z", true).Finish(t.Context(), Result{}))
		if _, err := namesake.History(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, there := namesake.Namesake(); !there {
			t.Error("the first is not found by its result")
		}
		time.Sleep(namesakeFor + time.Hour)
		if _, there := a.Namesake(); there {
			t.Error("it is told of for ever")
		}
		if c := board(t, m, "c"); c != nil {
			if _, err := c.History(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, there := c.Namesake(); there {
				t.Error("another agent's are taken for a namesake's")
			}
		}
	})
}

// Only what is certain: claims of two processes of one name in turns.
func TestNamesakesOfARepository(t *testing.T) {
	for _, c := range []struct {
		name, order string // one letter for each claim: the process
		agent       string
		want        bool
	}{
		{"one", "aaaa", "m", false},
		{"restarted twice", "aaabbc", "m", false},
		{"in turns", "aabab", "m", true},
		{"in turns, of another name", "aabab", "n", false},
		{"nothing", "", "m", false},
		{"in turns a while ago", "abab------------------------------c", "m", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, repo := newRepo(t)
				for _, p := range c.order {
					time.Sleep(time.Hour)
					if p != '-' {
						ok(t, repo.WriteClaim(t.Context(), repository.Claim{Job: "merge", Slot: repository.SlotName(time.Now()), Attempt: 1, Holder: "m", Process: string(p)}))
					}
				}
				got, err := Namesakes(t.Context(), repo, c.agent)
				if err != nil || got != c.want {
					t.Errorf("%v, %v", got, err)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		m, _ := newRepo(t)
		away := &host{Sink: m}
		repo, err := repository.Open(t.Context(), away)
		ok(t, err)
		away.away.Store(true)
		if _, err := Namesakes(t.Context(), repo, "m"); err == nil || errors.Is(err, repository.ErrAltered) {
			t.Errorf("%v", err)
		}
	})
}
