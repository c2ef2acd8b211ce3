package schedule

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/schedule/web"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/verify/report"
)

// withRunner lets jobs run, of which do takes the place of full.
func withRunner(t *testing.T, session *session, do func(context.Context, *job.Task) (job.Result, error)) {
	t.Helper()
	must(t, session.openRepository(t.Context()))
	entries := session.entries()
	for i, e := range entries {
		entries[i].Schedule = ""
		if do != nil && e.Name == jobFull {
			entries[i].Do = do
		}
	}
	var err error
	session.runner, err = job.NewRunner(session.repo, job.Options{Agent: session.cfg.Name, Logger: session.Logger}, entries)
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := session.runner.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { stop(); <-done })
}

// The archive's demand is a run like any other, and its end is waited for.
func TestTakeDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		session := termOn(t, beside, memory())
		var args arguments
		var fail error
		withRunner(t, session, func(ctx context.Context, task *job.Task) (job.Result, error) {
			args, _ = task.Arg.(arguments)
			time.Sleep(10 * time.Minute)
			return job.Result{Text: "done"}, fail
		})
		began := time.Now()
		must(t, session.takeDue(t.Context(), timelineA))
		if took := time.Since(began); took < 10*time.Minute || took > 11*time.Minute || args.Timeline != timelineA || args.Reason == "" {
			t.Errorf("after %s: %+v", took, args)
		}
		fail = errors.New("the member is gone")
		require.ErrorContains(t, session.takeDue(t.Context(), timelineA), "the member is gone", "a run that fails")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, session.takeDue(ctx, timelineA), context.DeadlineExceeded, "the end of the context")
	})
}

// A run that cannot be claimed is given up, and so is waiting for it; one whose
// result cannot be written for a while is waited for.
func TestTakeDueRepositoryAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := memory()
		session := termOn(t, beside, sink)
		withRunner(t, session, func(context.Context, *job.Task) (job.Result, error) {
			sink.Add(sinktest.Fail(sinktest.Commit, 1, errors.New("away")).Of("jobs/full"), sinktest.Fail(sinktest.Commit, 2, errors.New("away")).Of("jobs/full"))
			return job.Result{}, nil
		})
		must(t, session.takeDue(t.Context(), timelineA))
		sink.AllFired(t)
		sink.Add(sinktest.Fail(sinktest.Commit, 1, errors.New("away")).Of("claims/full").Always())
		began := time.Now()
		err := session.takeDue(t.Context(), timelineA)
		if took := time.Since(began); err == nil || took > session.cfg.Jobs.Full.Timeout.Std()+awaitMore {
			t.Errorf("after %s: %v", took, err)
		}
		sink.AllFired(t)
	})
}

// A full snapshot that so much log needs is demanded once; again if it did not come,
// within the hour.
func TestDemandBySize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		session := termOn(t, strings.Replace(beside, "archive:", "jobs: {full: {max-log: 1MiB}}\narchive:", 1), memory())
		var mu sync.Mutex // of what follows
		runs := 0
		var fail error
		lasts := time.Second
		set := func(d time.Duration, err error) {
			mu.Lock()
			defer mu.Unlock()
			lasts, fail = d, err
		}
		withRunner(t, session, func(context.Context, *job.Task) (job.Result, error) {
			mu.Lock()
			runs++
			d, err := lasts, fail
			mu.Unlock()
			time.Sleep(d)
			return job.Result{}, err
		})
		look := func(newest string, bytes int64) {
			session.seen.newest, session.seen.logBytes = &snapshot.Manifest{ID: newest}, bytes
			session.demandBySize()
			time.Sleep(listEvery)
		}
		expect := func(what string, want int) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if runs != want {
				t.Errorf("%s: %d runs, want %d", what, runs, want)
			}
			runs = 0
		}
		look("a", 1<<20-1)
		expect("too little", 0)
		set(time.Second, errors.New("the member is gone"))
		for range 5 {
			look("a", 1<<20)
		}
		expect("enough", 1)
		for range 6 {
			look("a", 1<<20)
		}
		expect("after an hour without one", 1)
		set(3*time.Hour, nil)
		for range 5 {
			look("b", 2<<20)
		}
		expect("the next one", 1)
		for range 24 {
			look("b", 2<<20)
		}
		expect("it is under way still", 0)
		session.seen.newest = nil
		session.demandBySize()
		time.Sleep(12 * time.Hour)
		expect("no full snapshot at all, and none that waited behind the last", 0)
	})
}

// A backup that an earlier attempt at the slot had made, and died before it could
// say so, is the result of the next one.
func TestTakenIsDone(t *testing.T) {
	sink := memory()
	s := newShelf(t, sink)
	task := &job.Task{Job: jobFull, Slot: "20260102T010000Z", Attempt: 2}
	_, err := taken(t.Context(), s.repo, task.BackupID(), snapshot.ErrTaken)
	require.ErrorIs(t, err, snapshot.ErrTaken, "without a backup")
	m := *s.full(timelineA, time.Now())
	m.ID = task.BackupID()
	m.Object.Name = repository.SnapshotName(timelineA, m.ID, 1, false)
	must(t, s.repo.WriteDocument(t.Context(), repository.ManifestName(timelineA, m.ID), m))
	r, err := taken(t.Context(), s.repo, task.BackupID(), snapshot.ErrTaken)
	if err != nil || r.Backup != m.ID || !strings.Contains(r.Text, "earlier attempt") {
		t.Errorf("%+v, %v", r, err)
	}
}

// Where no archiver asks for the first full snapshot, the agent that runs the jobs does, once.
func TestDemandFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := memory()
		newShelf(t, sink)
		var terms []*session
		for _, name := range []string{"a", "b"} {
			session := termOn(t, strings.Replace(beside, "name: m1", "name: "+name, 1), sink)
			must(t, session.openRepository(t.Context()))
			session.client = &client.Client{}
			session.seen.cluster.ID = "00000000000000c1"
			withRunner(t, session, func(context.Context, *job.Task) (job.Result, error) { return job.Result{}, nil })
			synctest.Wait()
			terms = append(terms, session)
		}
		look := func() (asked int) {
			for _, session := range terms {
				var known *inventory
				must(t, session.lookAtInventory(t.Context(), &known))
				if !session.firstDemanded.IsZero() {
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
		first := terms[0].firstDemanded
		time.Sleep(time.Minute)
		if n := look(); n != 1 || !terms[0].firstDemanded.Equal(first) {
			t.Errorf("asked by %d a minute later", n)
		}
	})
}

// An agent that only learners answer says so.
func TestOnlyLearnersAnswer(t *testing.T) {
	session := termOn(t, beside, memory())
	learner := web.Member{ID: "1", Name: "m4", Role: roleLearner, Local: true}
	found := func() (texts []string) {
		s := &web.Status{Time: time.Now(), Cluster: session.seen.cluster}
		session.describeProblems(s, session.seen)
		for _, p := range s.Problems {
			if p.Kind == web.KindCluster {
				texts = append(texts, p.Text)
			}
		}
		return texts
	}
	session.seen.cluster = web.Cluster{ID: "c", Asked: time.Now(), Members: []web.Member{learner, {Name: "m1", Error: "no endpoint leads to it"}}}
	if texts := found(); len(texts) != 1 || !strings.Contains(texts[0], "only learners") {
		t.Errorf("problems: %q", texts)
	}
	session.seen.cluster.Members[1] = web.Member{ID: "2", Name: "m1", Role: roleFollower}
	if texts := found(); len(texts) != 0 {
		t.Errorf("problems with a voter: %q", texts)
	}
}

// A full snapshot is verified after it was taken, whoever took it, by one of the agents
// that verify.
func TestDemandAfterFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := memory()
		shelf := newShelf(t, sink)
		takes := strings.Replace(beside, "archive:", "jobs: {structure: {run: off}}\narchive:", 1)
		proves := strings.Replace(beside, "archive:", "jobs: {structure: {run: here}}\narchive:", 1)
		var terms []*session
		for name, text := range map[string]string{"taker": takes, "a": proves, "b": proves} {
			session := termOn(t, strings.Replace(text, "name: m1", "name: "+name, 1), sink)
			withRunner(t, session, nil)
			terms = append(terms, session)
		}
		look := func() (asked []string) {
			time.Sleep(listEvery)
			for _, session := range terms {
				var known *inventory
				must(t, session.lookAtInventory(t.Context(), &known))
				if session.afterFull != "" {
					asked = append(asked, session.cfg.Name)
				}
			}
			time.Sleep(listEvery)
			return asked
		}
		if asked := look(); len(asked) != 0 {
			t.Errorf("without a full snapshot %v asked", asked)
		}
		shelf.log(timelineA, 5, time.Now())
		m := shelf.full(timelineA, time.Now())
		for range 2 {
			if asked := look(); len(asked) != 2 || slices.Contains(asked, "taker") {
				t.Errorf("%v asked, want a and b", asked)
			}
			if n := count(t, sink, "claims/structure/"); n != 1 {
				t.Errorf("%d attempts, want one of a and b", n)
			}
		}
		shelf.verdict(m, report.Structure, report.Passed)
		for _, session := range terms {
			session.afterFull = ""
		}
		if asked := look(); len(asked) != 0 {
			t.Errorf("%v asked for what is proved", asked)
		}
	})
}
