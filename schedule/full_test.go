package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/schedule/status"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store"
)

// withRunner lets jobs run, of which do takes the place of full and synthetic.
func withRunner(t *testing.T, term *term, do func(context.Context, *job.Task) (job.Result, error)) {
	t.Helper()
	must(t, term.openRepository(t.Context()))
	board, err := job.NewBoard(term.repo, term.cfg.Name, job.BoardOptions{Exclusive: term.exclusive, Writer: term.cfg.Repository.Writer})
	must(t, err)
	entries := term.entries()
	for i, e := range entries {
		entries[i].Schedule, entries[i].Hold = "", nil
		if e.Name == jobFull || e.Name == jobSynthetic {
			entries[i].Do = do
		}
	}
	term.board = board
	term.runner, err = job.NewRunner(board, entries, term.Logger)
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := term.runner.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { stop(); <-done })
}

// Which member an agent stands beside decides how long it leaves a full snapshot
// to the others.
func TestHold(t *testing.T) {
	term := termOn(t, beside, memory())
	for _, c := range []struct {
		member status.Member
		want   time.Duration
		why    string
	}{
		{status.Member{}, unfitHold, "does not answer"},
		{status.Member{Local: true, Error: "refused"}, unfitHold, "does not answer"},
		{status.Member{Local: true, Role: roleLearner}, 0, ""},
		{status.Member{Local: true, Role: roleFollower}, followerHold, "learner"},
		{status.Member{Local: true, Role: roleLeader}, leaderHold, "leader"},
		{status.Member{Local: true, Role: roleLearner, Unfit: "it defragments"}, unfitHold, "it defragments"},
	} {
		term.seen.cluster.Members = []status.Member{{Role: roleLeader}, c.member}
		if wait, why := term.hold(); wait != c.want || !strings.Contains(why, c.why) {
			t.Errorf("%+v: %s, %q", c.member, wait, why)
		}
	}
	if followerHold >= leaderHold || leaderHold >= unfitHold {
		t.Error("the order of holds")
	}
	for _, text := range []string{verifier, strings.Replace(beside, "archive: {spool-dir: /nowhere/spool}", "archive: {enabled: false}", 1)} {
		if wait, why := termOn(t, text, memory()).hold(); wait != 0 || why != "" {
			t.Errorf("without a log nobody knows the own member: %s, %q", wait, why)
		}
	}
}

// The archive's demand is a run like any other, and its end is waited for.
func TestTakeDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		term := termOn(t, beside, memory())
		var args arguments
		var fail error
		withRunner(t, term, func(ctx context.Context, task *job.Task) (job.Result, error) {
			if err := json.Unmarshal(task.Arg, &args); err != nil {
				return job.Result{}, err
			}
			time.Sleep(10 * time.Minute)
			return job.Result{Text: "done"}, fail
		})
		began := time.Now()
		must(t, term.takeDue(t.Context(), timelineA))
		if took := time.Since(began); took < 10*time.Minute || took > 11*time.Minute || args.Timeline != timelineA || args.Reason == "" {
			t.Errorf("after %s: %+v", took, args)
		}
		fail = errors.New("the member is gone")
		if err := term.takeDue(t.Context(), timelineA); err == nil || !strings.Contains(err.Error(), "the member is gone") {
			t.Errorf("a run that fails: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := term.takeDue(ctx, timelineA); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the end of the context: %v", err)
		}
		if err := term.await(t.Context(), jobFull, "20260101T000000Z-demand-aaaaaa"); err == nil || !strings.Contains(err.Error(), "given up") {
			t.Errorf("a run of which there is nothing: %v", err)
		}
	})
}

// A run that cannot be claimed is given up, and so is waiting for it; one whose
// result cannot be read for a while is waited for.
func TestAwaitRepositoryAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := memory()
		term := termOn(t, beside, sink)
		withRunner(t, term, func(context.Context, *job.Task) (job.Result, error) {
			sink.Add(sinktest.Fail(sinktest.Open, 1, errors.New("away")).Of("jobs/full"), sinktest.Fail(sinktest.Open, 2, errors.New("away")).Of("jobs/full"))
			return job.Result{}, nil
		})
		must(t, term.takeDue(t.Context(), timelineA))
		sink.AllFired(t)
		sink.Add(sinktest.Fail(sinktest.Commit, 1, errors.New("away")).Of("claims/full").Always())
		began := time.Now()
		err := term.takeDue(t.Context(), timelineA)
		if took := time.Since(began); err == nil || took > term.cfg.Jobs.Full.Timeout.Std()+awaitMore {
			t.Errorf("after %s: %v", took, err)
		}
		sink.AllFired(t)
	})
}

// A full snapshot that so much log asks for is asked for once; again where what was
// asked for did not come, within the hour.
func TestAskBySize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		term := termOn(t, strings.Replace(beside, "archive:", "jobs: {synthetic: {enabled: true, entries: 1000}, full: {max-log: 1MiB}}\narchive:", 1), memory())
		var mu sync.Mutex // of what follows
		runs := map[string]int{}
		var fail error
		lasts := time.Second
		set := func(d time.Duration, err error) {
			mu.Lock()
			defer mu.Unlock()
			lasts, fail = d, err
		}
		withRunner(t, term, func(_ context.Context, task *job.Task) (job.Result, error) {
			mu.Lock()
			runs[task.Job]++
			d, err := lasts, fail
			mu.Unlock()
			time.Sleep(d)
			return job.Result{}, err
		})
		look := func(newest string, bytes int64, entries uint64) {
			term.seen.newest, term.seen.logBytes, term.seen.entries = &snapshot.Manifest{ID: newest}, bytes, entries
			term.askBySize(t.Context())
			time.Sleep(listEvery)
		}
		expect := func(what string, synthetic, full int) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if runs[jobSynthetic] != synthetic || runs[jobFull] != full {
				t.Errorf("%s: %v, want %d and %d", what, runs, synthetic, full)
			}
			clear(runs)
		}
		look("a", 1000, 999)
		expect("too little", 0, 0)
		set(time.Second, errors.New("the log does not lead on"))
		for range 5 {
			look("a", 2000, 1000)
		}
		expect("enough for a synthetic one", 1, 0)
		for range 6 {
			look("a", 3000, 2000)
		}
		expect("after an hour without one", 1, 0)
		for range 5 {
			look("a", 1<<20, 3000)
		}
		expect("enough for a full one, as no synthetic one came", 0, 1)
		set(3*time.Hour, nil)
		for range 5 {
			look("b", 5000, 1000)
		}
		expect("the next one", 1, 0)
		for range 24 {
			look("b", 6000, 2000)
		}
		expect("it is under way still", 0, 0)
		term.seen.newest = nil
		term.askBySize(t.Context())
		time.Sleep(12 * time.Hour)
		expect("no full snapshot at all, and none that waited behind the last", 0, 0)
	})
}

// A backup that an earlier attempt at the slot had made, and died before it could
// say so, is the result of the next one.
func TestTakenIsDone(t *testing.T) {
	sink := memory()
	s := newShelf(t, sink)
	task := &job.Task{Job: jobFull, Slot: "20260102T010000Z", Attempt: 2}
	term := termOn(t, beside, sink)
	must(t, term.openRepository(t.Context()))
	_, repo, _ := term.opened()
	if _, err := term.taken(t.Context(), repo, task, snapshot.ErrTaken); !errors.Is(err, snapshot.ErrTaken) {
		t.Errorf("without a backup: %v", err)
	}
	m := *s.full(timelineA, time.Now(), false)
	m.ID = task.BackupID()
	m.Object.Name = repository.SnapshotName(timelineA, m.ID, false)
	must(t, s.repo.WriteDocument(t.Context(), repository.ManifestName(timelineA, m.ID), m))
	r, err := term.taken(t.Context(), repo, task, snapshot.ErrTaken)
	if err != nil || r.Backup != m.ID || !strings.Contains(r.Text, "earlier attempt") {
		t.Errorf("%+v, %v", r, err)
	}
}

// Where no archiver asks for the first full snapshot, one of the agents does, once.
func TestDemandFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := memory()
		newShelf(t, sink)
		var terms []*term
		for _, name := range []string{"a", "b"} {
			term := termOn(t, strings.Replace(beside, "name: m1", "name: "+name, 1), sink)
			must(t, term.openRepository(t.Context()))
			must(t, term.newRunner())
			term.client = &store.Client{}
			term.seen.cluster.ID = "00000000000000c1"
			terms = append(terms, term)
		}
		look := func() (asked int) {
			for _, term := range terms {
				var known *stock
				must(t, term.lookAtStock(t.Context(), &known))
				if !term.firstAsked.IsZero() {
					asked++
				}
			}
			return asked
		}
		if n := look(); n != 0 {
			t.Errorf("asked by %d at once: the archiver may be about to", n)
		}
		time.Sleep(firstAfter + time.Second)
		if n := look(); n != 1 {
			t.Errorf("asked by %d after a minute", n)
		}
		first := terms[0].firstAsked
		time.Sleep(time.Minute)
		if n := look(); n != 1 || !terms[0].firstAsked.Equal(first) {
			t.Errorf("asked by %d a minute later", n)
		}
	})
}

// An agent that only learners answer leaves full snapshots to others, and says so.
func TestOnlyLearnersAnswer(t *testing.T) {
	term := termOn(t, beside, memory())
	learner := status.Member{ID: "1", Name: "m4", Role: roleLearner, Local: true}
	found := func() (texts []string) {
		s := &status.Status{Time: time.Now(), Cluster: term.seen.cluster}
		term.describeProblems(s, term.seen)
		for _, p := range s.Problems {
			if p.Kind == status.KindCluster {
				texts = append(texts, p.Text)
			}
		}
		return texts
	}
	term.seen.cluster = status.Cluster{ID: "c", Asked: time.Now(), Members: []status.Member{learner, {Name: "m1", Error: "no endpoint leads to it"}}}
	if wait, why := term.hold(); wait != unfitHold || !strings.Contains(why, "no voting member") {
		t.Errorf("held for %s: %s", wait, why)
	}
	if texts := found(); len(texts) != 1 || !strings.Contains(texts[0], "only learners") {
		t.Errorf("problems: %q", texts)
	}
	term.seen.cluster.Members[1] = status.Member{ID: "2", Name: "m1", Role: roleFollower}
	if wait, why := term.hold(); wait != 0 {
		t.Errorf("with a voter, held for %s: %s", wait, why)
	}
	if texts := found(); len(texts) != 0 {
		t.Errorf("problems with a voter: %q", texts)
	}
}
