package schedule

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/schedule/retention"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/verify/report"
)

// Every timeline's log is merged, also where another one's cannot be.
func TestMergeTimelines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := memory()
		s := newShelf(t, sink)
		s.timeline(timelineB)
		for range 200 {
			s.log(timelineA, 2, time.Now())
			s.log(timelineB, 2, time.Now())
			time.Sleep(10 * time.Second)
		}
		afterwards(48*time.Hour, s, timelineA, timelineB)
		session := termOn(t, verifier, sink)
		must(t, session.openRepository(t.Context()))
		sink.Add(sinktest.Fail(sinktest.List, 1, errors.New("away")).Of(timelineA.String()))
		_, err := session.merge(t.Context(), &job.Task{})
		require.ErrorContains(t, err, timelineA.String(), "one that cannot be merged")
		sink.AllFired(t)
		if count(t, sink, timelineA.String()+"/l1/") != 0 || count(t, sink, timelineB.String()+"/l1/") == 0 {
			t.Error("the other one was not merged")
		}
		r, err := session.merge(t.Context(), &job.Task{})
		if err != nil || !strings.Contains(r.Text, "segments became") || count(t, sink, timelineA.String()+"/l1/") == 0 {
			t.Errorf("%+v, %v", r, err)
		}
		var last job.Result
		for range 5 {
			afterwards(48*time.Hour, s)
			last, err = session.merge(t.Context(), &job.Task{})
			require.NoError(t, err)
		}
		if last.Text != "nothing was to be merged" || len(session.mergers) != 2 {
			t.Errorf("%+v, %d mergers", last, len(session.mergers))
		}
	})
}

// afterwards goes on with the logs after a while: the repository's clock is what it
// stores.
func afterwards(wait time.Duration, s *shelf, timelines ...repository.TimelineID) {
	time.Sleep(wait)
	for _, id := range timelines {
		s.log(id, 1, time.Now())
	}
}

// Where nothing may be deleted the run ends with what to allow, and is not tried
// again.
func TestMergeDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := memory()
		s := newShelf(t, sink)
		for range 200 {
			s.log(timelineA, 2, time.Now())
			time.Sleep(10 * time.Second)
		}
		afterwards(48*time.Hour, s, timelineA)
		sink.Add(sinktest.Fail(sinktest.Delete, 1, sinks.ErrDenied).Always())
		session := termOn(t, verifier, sink)
		must(t, session.openRepository(t.Context()))
		var err error
		for range 3 {
			if _, err = session.merge(t.Context(), &job.Task{}); err != nil {
				break
			}
			afterwards(48*time.Hour, s, timelineA)
		}
		if !errors.Is(err, sinks.ErrDenied) || !strings.Contains(err.Error(), "docs/s3.md") {
			t.Errorf("%v", err)
		}
		sink.AllFired(t)
	})
}

// What was pruned is reported in a sentence.
func TestPruned(t *testing.T) {
	if text := pruned(retention.Result{}); text != "nothing was to go" {
		t.Error(text)
	}
	if text := pruned(retention.Result{Backups: 2, Objects: 3, Segments: 4, Swept: 5, BytesGone: 1 << 20, Locked: 6}); text != "backups pruned: 2; deleted: 3 objects of backups, 4 segments of the log, 5 objects that nobody needs any more, which frees 1.0 MiB; locked, and to go later: 6" {
		t.Error(text)
	}
}

func TestPrune(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := memory()
		s := newShelf(t, sink)
		for range 100 {
			s.full(timelineA, time.Now())
			s.log(timelineA, 1, time.Now())
			time.Sleep(24 * time.Hour)
		}
		session := termOn(t, verifier, sink)
		must(t, session.openRepository(t.Context()))
		r, err := session.prune(t.Context(), &job.Task{})
		if err != nil || !strings.Contains(r.Text, "backups pruned: ") {
			t.Errorf("%+v, %v", r, err)
		}
		if n := count(t, sink, timelineA.String()+"/full/"); n < 35 || n > 198 {
			t.Errorf("%d objects of backups are left", n)
		}
	})
}

// Where more than a third of what is proved would go at once the agent deletes nothing, and
// says what to do; after somebody has given the number it prunes again.
func TestPruneConfirm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := memory()
		s := newShelf(t, sink)
		for range 6 {
			s.verdict(s.full(timelineA, time.Now()), report.Structure, report.Passed)
			s.log(timelineA, 1, time.Now())
			time.Sleep(24 * time.Hour)
		}
		session := termOn(t, verifier+"retention: {any-point: 0s, last: 1, daily: 0, weekly: 0, monthly: 0, minimum: 1}\n", sink)
		must(t, session.openRepository(t.Context()))
		before := count(t, sink, timelineA.String()+"/")
		for range 2 {
			_, err := session.prune(t.Context(), &job.Task{})
			var refused *retention.RefusedError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), "5 full snapshots that passed verification would go at once, more than a third of them: look at the plan (requorum prune --dry-run), and if it is what you want prune with --confirm 5") {
				t.Errorf("%v", err)
			}
			if now := count(t, sink, timelineA.String()+"/"); now != before {
				t.Errorf("%d objects, of %d", now, before)
			}
		}
		inventory, err := retention.Read(t.Context(), s.repo, time.Now())
		must(t, err)
		_, err = retention.Execute(t.Context(), s.repo, retention.NewPlan(inventory, session.cfg.Policy(), time.Now()), retention.Options{Confirm: 5})
		must(t, err)
		_, err = session.prune(t.Context(), &job.Task{})
		require.NoError(t, err)
		if now := count(t, sink, timelineA.String()+"/full/"); now >= 12 {
			t.Errorf("%d objects of backups are left", now)
		}
	})
}

// Without a member nothing is compared and nothing taken.
func TestNoMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a full snapshot waits a moment for one
		session := termOn(t, beside, memory())
		if _, err := session.divergence(t.Context(), &job.Task{}); !errors.Is(err, errNoMember) {
			t.Error(err)
		}
		if _, err := session.full(t.Context(), &job.Task{Job: jobFull}); !errors.Is(err, errNoMember) {
			t.Error(err)
		}
	})
}
