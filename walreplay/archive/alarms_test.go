package archive

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/walreplay/segment"
)

// Promise 4: a position that does not advance raises the alarm: here the
// directory is one that the member does not write to.
func TestPromise4WrongDirectory(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		r.cluster.commit(5, "x")
		a := r.start(0)
		r.waitArchived(a, 5, 5*time.Second)
		r.cluster.mu.Lock()
		r.cluster.members[0].frozen = true
		r.cluster.mu.Unlock()
		r.load(30)
		if !a.has(AlarmStalled) {
			t.Fatalf("alarms: %+v", a.State().Alarms)
		}
		if text := a.State().Alarms[0].Text; !strings.Contains(text, "directory") {
			t.Errorf("text %q", text)
		}
		r.cluster.mu.Lock()
		r.cluster.members[0].frozen = false
		r.cluster.mu.Unlock()
		r.waitArchived(a, r.cluster.members[0].last(), 20*time.Second)
		if a.has(AlarmStalled) {
			t.Error("the alarm stays")
		}
	})
}

// The files were replaced under their names: what is open does not grow any
// more, and is opened anew.
func TestPromise4ReplacedFiles(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.start(0)
		r.load(5)
		r.cluster.mu.Lock()
		r.cluster.members[0].stale = r.cluster.members[0].opened
		r.cluster.mu.Unlock()
		r.load(60)
		if !a.raised(AlarmStalled) || a.has(AlarmStalled) {
			t.Errorf("alarms: %+v", a.State().Alarms)
		}
		r.waitArchived(a, r.cluster.members[0].last(), 10*time.Second)
		r.sameAs(1, r.cluster.members[0].entries)
	})
}

// Promise 4: a repository that refuses is an alarm, not only a counted error.
func TestPromise4RepositoryRefuses(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.start(0)
		r.load(5)
		r.sink.Add(sinktest.Fail(sinktest.Commit, 1, errors.New("access denied")).Of("/l0/").Always())
		r.load(60)
		if !a.has(AlarmRepository) || !a.has(AlarmBehind) {
			t.Errorf("alarms: %+v", a.State().Alarms)
		}
		if s := a.State(); s.Behind < 50*time.Second || s.BehindEntries < 200 || !strings.Contains(s.LastError, "access denied") {
			t.Errorf("state: %+v", s)
		}
	})
}

// A place that is full gives objects and takes none: one alarm, and few puts, until
// it takes them again; what is committed waits in the spool.
func TestPromise4RepositoryFull(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.start(0)
		r.load(5)
		r.gone.full.Store(true)
		r.load(300)
		if n := r.gone.tried.Load(); n < 10 || n > 60 {
			t.Errorf("%d puts in five minutes of a full place", n)
		}
		if s := a.State(); s.Spooled == 0 || !strings.Contains(s.LastError, "no space left") {
			t.Errorf("state: %+v", s)
		}
		r.gone.full.Store(false)
		r.waitArchived(a, r.cluster.members[0].last(), time.Minute)
		r.waitFor("clear", time.Minute, func() bool { return !a.has(AlarmRepository) })
		raised := 0
		a.mu.Lock()
		for _, e := range a.events {
			if e.Alarm == AlarmRepository && e.Raised {
				raised++
			}
		}
		a.mu.Unlock()
		if raised != 1 {
			t.Errorf("the alarm was raised %d times", raised)
		}
		r.sameAs(1, r.cluster.members[0].entries)
	})
}

// A clock that jumps is an alarm: marks tell wrong times.
func TestClockJump(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		var ahead atomic.Int64
		a := r.start(0, func(c *Config) { c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) } })
		r.load(5)
		if a.raised(AlarmClock) {
			t.Fatal("an alarm without a jump")
		}
		ahead.Store(int64(time.Hour))
		r.load(2)
		if !a.has(AlarmClock) {
			t.Error("no alarm")
		}
		r.waitFor("clear", 20*time.Minute, func() bool { return !a.has(AlarmClock) })
	})
}

// Marks are live observations: those that agreed with the log, in the segment
// that holds their entry. Entries that are read while catching up get none.
func TestMarks(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		m := r.cluster.members[0]
		r.cluster.commit(50, "old")
		m.recorded = 40
		times := map[uint64]time.Time{}
		a := r.start(0)
		time.Sleep(3 * time.Second)
		for range 20 {
			r.cluster.commit(3, "live")
			times[m.last()] = time.Now()
			time.Sleep(time.Second)
		}
		r.waitArchived(a, m.last(), 5*time.Second)
		marks := 0
		for mark, err := range r.openLog(1).Marks(context.Background(), time.Time{}, time.Time{}) {
			if err != nil {
				t.Fatal(err)
			}
			marks++
			if mark.Index < 50 || mark.Member != 1 || mark.Term != 2 {
				t.Errorf("mark %+v", mark)
			}
			if at, ok := times[mark.Index]; ok && (mark.Time.Before(at) || mark.Time.Sub(at) > time.Second) {
				t.Errorf("entry %d was applied at %s, its mark says %s", mark.Index, at, mark.Time)
			}
		}
		if marks < 20 {
			t.Errorf("%d marks", marks)
		}
		// A header's revision is one that is reached by its last entry.
		for _, h := range r.openLog(1).Headers() {
			if h.Revision > int64(h.LastIndex)+1 {
				t.Errorf("segment to %d says revision %d", h.LastIndex, h.Revision)
			}
		}
		if a.State().ArchivedRevision < 100 {
			t.Errorf("archived revision %d", a.State().ArchivedRevision)
		}
	})
}

// An alive mark a minute while idle, so that the repository alone tells a quiet
// cluster from a dead archiver; spooled while the repository is away.
func TestAliveMarks(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.start(0)
		r.cluster.commit(5, "x")
		r.waitArchived(a, 5, 5*time.Second)
		time.Sleep(5*time.Minute + 2*time.Second)
		first := r.openLog(1).Alive()
		if len(first) < 4 || len(first) > 5 || first[0].Index != 5 || first[0].Member != 1 {
			t.Errorf("marks %+v", first)
		}
		r.gone.away.Store(true)
		time.Sleep(5 * time.Minute)
		if n := len(r.openLog(1).Alive()); n != len(first) {
			t.Fatal("the repository is not away")
		}
		r.gone.away.Store(false)
		time.Sleep(time.Minute)
		all := r.openLog(1).Alive()
		if len(all) < len(first)+5 {
			t.Errorf("%d marks, %d before the repository went away", len(all), len(first))
		}
		// Not one is lost, nor that whose put failed first; and none is written twice.
		for i, m := range all[1:] {
			if d := m.Time.Sub(all[i].Time); d < 55*time.Second || d > 65*time.Second {
				t.Errorf("%s between the marks at %s and %s", d, all[i].Time, m.Time)
			}
		}
	})
}

// An alive mark says that nothing happened. There is none while something does,
// stored or not; nor of a member that does not answer any more.
func TestNoAliveMarksUnderLoad(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.start(0)
		r.load(180)
		r.gone.away.Store(true)
		r.load(180)
		r.gone.away.Store(false)
		r.load(180)
		last := r.cluster.members[0].last()
		r.waitArchived(a, last, 30*time.Second)
		if marks := r.openLog(1).Alive(); len(marks) > 0 {
			t.Errorf("marks under load: %+v", marks)
		}
		time.Sleep(3 * time.Minute)
		before := r.openLog(1).Alive()
		if len(before) == 0 || before[0].Index != last {
			t.Fatalf("marks of a quiet cluster: %+v", before)
		}
		r.cluster.mu.Lock()
		r.cluster.members[0].down = true
		r.cluster.mu.Unlock()
		time.Sleep(10 * time.Minute)
		if n := len(r.openLog(1).Alive()); n > len(before)+1 {
			t.Errorf("%d marks of a member that is down", n-len(before))
		}
	})
}

// Stamps are taken from a follower only, rarely, and where they are wanted.
func TestStamps(t *testing.T) {
	inFakeTime(t, 4, func(t *testing.T, r *rig) {
		r.cluster.members[2].learner = true
		for i := range 3 {
			r.start(i, func(c *Config) { c.Stamp = time.Hour })
		}
		r.start(3)
		r.load(10)
		time.Sleep(150 * time.Minute)
		r.cluster.mu.Lock()
		var asked []int
		for _, m := range r.cluster.members {
			asked = append(asked, m.hashes)
		}
		r.cluster.mu.Unlock()
		if !slices.Equal(asked, []int{0, 2, 0, 0}) {
			t.Errorf("the leader, the follower, the learner, and one that nobody wants a stamp of were asked %v times", asked)
		}
		stamps := 0
		for a, err := range segment.ReadMarks(context.Background(), r.repo(), timelineN(1)) {
			if err != nil {
				t.Fatal(err)
			}
			if a.Stamp != nil {
				stamps++
				if a.Stamp.Hash != 7 || a.Stamp.HashRevision != 41 || a.Stamp.CompactedRevision != 1 {
					t.Errorf("stamp %+v", a.Stamp)
				}
			}
		}
		if stamps != 2 {
			t.Errorf("%d stamps", stamps)
		}
	})
}

// Once archives what was committed when it was called, though another archiver
// is the writer, and returns when that is durable.
func TestOnce(t *testing.T) {
	inFakeTime(t, 2, func(t *testing.T, r *rig) {
		r.cluster.commit(30, "x")
		a, err := New(r.config(0))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := a.Once(context.Background()); err != nil || time.Since(began) > 10*time.Second {
			t.Fatalf("%v after %s", err, time.Since(began))
		}
		r.sameAs(1, r.cluster.members[0].entries)
		b := r.start(1)
		for range 10 {
			r.load(3)
			committed := r.cluster.members[0].last()
			if err := a.Once(context.Background()); err != nil || a.State().Archived < committed {
				t.Fatalf("archived to %d of %d, %v", a.State().Archived, committed, err)
			}
		}
		r.waitArchived(b, r.cluster.members[0].last(), 20*time.Second)
		r.sameAs(1, r.cluster.members[0].entries)
		if n := len(r.openLog(1).Spans()); n != 1 {
			t.Errorf("%d spans", n)
		}
		// And it says so when it cannot.
		r.gone.away.Store(true)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := a.Once(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// Full snapshots choose their timeline by how far the log goes.
func TestReached(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.start(0)
		r.load(5)
		r.waitArchived(a, 20, 5*time.Second)
		index, term, _, err := Reached(context.Background(), r.repo(), timelineN(1))
		if err != nil || index != 20 || term != 2 {
			t.Errorf("index %d, term %d, %v", index, term, err)
		}
		if index, _, _, err := Reached(context.Background(), r.repo(), timelineN(9)); err != nil || index != 0 {
			t.Errorf("index %d, %v", index, err)
		}
	})
}
