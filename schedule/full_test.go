package schedule

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/schedule/web"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/archive"
)

// withRunner lets jobs run without their schedules, of which do takes the place of full.
func withRunner(t *testing.T, session *session, do func(context.Context, *job.Task) (job.Result, error), edit ...func(full *job.Entry)) {
	t.Helper()
	must(t, session.openRepository(t.Context()))
	entries := session.entries()
	for i, e := range entries {
		entries[i].Schedule = ""
		if do != nil && e.Name == jobFull {
			entries[i].Do = do
			for _, f := range edit {
				f(&entries[i])
			}
		}
	}
	var err error
	session.runner, err = job.NewRunner(job.Options{Agent: session.cfg.Name, Logger: session.Logger}, entries)
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		session.runner.Run(ctx, session.repo)
	}()
	t.Cleanup(func() { stop(); <-done })
	synctest.Wait()
}

// The run that the archive needs is like any other, and its end is waited for.
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

// A run that cannot be begun is given up; one whose
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
		sink.Add(sinktest.Fail(sinktest.Commit, 1, errors.New("away")).Of("jobs/full").Always())
		began := time.Now()
		err := session.takeDue(t.Context(), timelineA)
		if took := time.Since(began); err == nil || took > session.cfg.Jobs.Full.Timeout.Std()+awaitMore {
			t.Errorf("after %s: %v", took, err)
		}
		sink.AllFired(t)
	})
}

// A full snapshot that so much log needs is due once; again if it did not come,
// within the hour.
func TestFullDue_BySize(t *testing.T) {
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
		}, func(full *job.Entry) {
			full.Due = func(now time.Time) *job.Occasion {
				return session.fullDueAt(now, true, archive.State{Role: archive.Writer})
			}
		})
		see := func(newest *snapshot.Manifest, bytes int64) {
			session.mu.Lock()
			session.seen.newest, session.seen.logBytes, session.seen.repository.Listed = newest, bytes, time.Now()
			session.mu.Unlock()
			session.runner.Wake()
		}
		look := func(newest string, bytes int64) {
			see(&snapshot.Manifest{ID: newest}, bytes)
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
		time.Sleep(25 * time.Minute) // half an hour begins with the second look
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
		see(nil, 2<<20)
		time.Sleep(12 * time.Hour)
		expect("no full snapshot at all, and none that waited behind the last", 0)
	})
}

// A run makes no full snapshot if there is one: an earlier attempt at the slot made it, and its
// agent died before it could record that; or another one took it since the slot. What a run
// is for that the log needs, or what a wrong clock dates, does not count.
func TestTakenSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(t, memory())
		session := termOn(t, beside, s.sink)
		must(t, session.openRepository(t.Context()))
		time.Sleep(25 * time.Hour)
		at := time.Now().Add(-time.Hour).Truncate(time.Second)
		task := &job.Task{Job: jobFull, Slot: repository.SlotName(at), SlotTime: at, Attempt: 2}
		needed := &job.Task{Job: jobFull, Slot: repository.NewDemandSlot(at), SlotTime: at, Arg: arguments{Timeline: timelineA}}
		taken := func(what, want string, task *job.Task) {
			t.Helper()
			m, err := session.takenSince(t.Context(), task, timelineA)
			must(t, err)
			if got := takenResult(m).Backup; got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		s.timeline(timelineB)
		s.full(timelineA, at.Add(-time.Second))
		s.full(timelineB, at.Add(time.Minute))
		s.full(timelineA, at.Add(2*time.Hour))
		taken("none", "", task)
		m := *s.full(timelineA, at.Add(-time.Minute))
		m.ID = task.BackupID()
		m.Object.Name = repository.SnapshotName(timelineA, m.ID, 1, false)
		_, err := sinks.Put(t.Context(), s.sink, m.Object.Name, []byte(m.ID), sinks.CreateOptions{})
		must(t, err)
		must(t, s.repo.WriteDocument(t.Context(), repository.ManifestName(timelineA, m.ID), m))
		taken("an earlier attempt's", m.ID, task)
		taken("the log needs another one", "", needed)
		task.Slot, task.SlotTime = repository.SlotName(at.Add(time.Second)), at.Add(time.Second)
		by := s.full(timelineA, at.Add(time.Minute))
		taken("another agent's", by.ID, task)
		taken("the log needs another one", "", needed)
	})
}

// If no archiver takes the first full snapshot, the agent that runs the jobs does, once.
func TestFullDue_TheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := memory()
		newShelf(t, sink)
		var terms []*session
		var runs atomic.Int64
		for _, name := range []string{"a", "b"} {
			session := termOn(t, strings.Replace(beside, "name: m1", "name: "+name, 1), sink)
			must(t, session.openRepository(t.Context()))
			session.client = &client.Client{}
			session.seen.cluster.ID = "00000000000000c1"
			withRunner(t, session, func(context.Context, *job.Task) (job.Result, error) {
				runs.Add(1)
				return job.Result{}, nil
			})
			terms = append(terms, session)
		}
		look := func() int64 {
			for _, session := range terms {
				var known *inventory
				must(t, session.lookAtInventory(t.Context(), &known))
			}
			synctest.Wait()
			return runs.Load()
		}
		if n := look(); n != 0 {
			t.Errorf("%d runs at once: the archiver may be about to", n)
		}
		time.Sleep(firstAfter + time.Second)
		if n := look(); n != 1 {
			t.Errorf("%d runs after a minute", n)
		}
		time.Sleep(time.Minute)
		if n := look(); n != 1 {
			t.Errorf("%d runs a minute later", n)
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
func TestStructureDue(t *testing.T) {
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
		look := func() (attempts int) {
			time.Sleep(listEvery)
			for _, session := range terms {
				var known *inventory
				must(t, session.lookAtInventory(t.Context(), &known))
			}
			time.Sleep(listEvery)
			for obj, err := range sink.List(t.Context(), "jobs/structure/", "") {
				must(t, err)
				if n, err := repository.ParseJobName(obj.Name); err == nil && n.Kind == repository.JobBegun {
					attempts++
				}
			}
			return attempts
		}
		if n := look(); n != 0 {
			t.Errorf("%d attempts without a full snapshot", n)
		}
		shelf.log(timelineA, 5, time.Now())
		shelf.full(timelineA, time.Now())
		for range 2 {
			if n := look(); n != 1 {
				t.Errorf("%d attempts, want one of a and b", n)
			}
		}
		shelf.log(timelineA, 5, time.Now())
		shelf.verdict(shelf.full(timelineA, time.Now()), report.Structure, report.Passed)
		if n := look(); n != 1 {
			t.Errorf("%d attempts: what is proved was verified", n)
		}
	})
}
