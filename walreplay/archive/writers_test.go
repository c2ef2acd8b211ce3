package archive

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

func (r *rig) three() [3]*running { return [3]*running{r.start(0), r.start(1), r.start(2)} }

func writers(all [3]*running) (n, which int) {
	for i, a := range all {
		if a.State().Role == Writer {
			n, which = n+1, i
		}
	}
	return n, which
}

// Promise 4: one writes and the others follow; nobody lists in steady state,
// and the followers' only requests are small reads.
func TestPromise4OneWriterNoLists(t *testing.T) {
	inFakeTime(t, 3, func(t *testing.T, r *rig) {
		all := r.three()
		r.cluster.commit(10, "x")
		for _, a := range all {
			r.waitArchived(a, 10, 10*time.Second)
		}
		n, w := writers(all)
		if n != 1 {
			t.Fatalf("%d writers", n)
		}
		lists, creates := r.sink.Calls(sinktest.List), r.sink.Calls(sinktest.Create)
		for range 60 {
			r.cluster.commit(10, "x")
			time.Sleep(time.Second)
		}
		for _, a := range all {
			r.waitArchived(a, 610, 4*time.Second)
		}
		if got := r.sink.Calls(sinktest.List); got != lists {
			t.Errorf("%d listings in steady state", got-lists)
		}
		if got := r.sink.Calls(sinktest.Create) - creates; got > 65 {
			t.Errorf("%d puts in 60 intervals", got)
		}
		for i, a := range all {
			s := a.State()
			if i != w && (s.Role != Follower || s.Requests.Gets > 200) || s.Behind > 3*time.Second {
				t.Errorf("archiver %d: %+v", i, s)
			}
		}
		if again, v := writers(all); again != 1 || v != w {
			t.Errorf("the writer changed: %d writers, %d and %d", again, w, v)
		}
		r.sameAs(1, r.cluster.members[0].entries)
	})
}

// Nothing is asked of the repository while nothing happens, but for a mark a
// minute.
func TestIdleIsCheap(t *testing.T) {
	inFakeTime(t, 3, func(t *testing.T, r *rig) {
		all := r.three()
		r.cluster.commit(10, "x")
		for _, a := range all {
			r.waitArchived(a, 10, 10*time.Second)
		}
		opens, creates, lists := r.sink.Calls(sinktest.Open), r.sink.Calls(sinktest.Create), r.sink.Calls(sinktest.List)
		asked := r.askedFirst()
		time.Sleep(10*time.Minute - time.Second)
		if n := r.askedFirst() - asked; n > 1210 || n < 1000 {
			t.Errorf("the member was asked %d times in ten minutes", n)
		}
		if got := r.sink.Calls(sinktest.Open) - opens; got > 3 {
			t.Errorf("%d reads", got)
		}
		if got := r.sink.Calls(sinktest.List) - lists; got != 0 {
			t.Errorf("%d listings", got)
		}
		if got := r.sink.Calls(sinktest.Create) - creates; got < 24 || got > 31 {
			t.Errorf("%d puts, want one mark a minute and member", got)
		}
	})
}

// Promise 4: followers take over when the writer's newest segment is several
// intervals late, one of them, and not before.
func TestPromise4Takeover(t *testing.T) {
	inFakeTime(t, 3, func(t *testing.T, r *rig) {
		all := r.three()
		r.cluster.commit(10, "x")
		for _, a := range all {
			r.waitArchived(a, 10, 10*time.Second)
		}
		_, w := writers(all)
		all[w].stop()
		began := time.Now()
		r.cluster.commit(10, "y")
		follower := all[(w+1)%3]
		r.waitFor("take over", 15*time.Second, func() bool { n, _ := writers(all); return n > 0 })
		if took := time.Since(began); took < 5*time.Second {
			t.Errorf("taken over after %s: the writer was not late yet", took)
		}
		r.waitArchived(follower, 20, 10*time.Second)
		for range 10 {
			r.cluster.commit(3, "z")
			time.Sleep(time.Second)
		}
		r.waitArchived(all[(w+1)%3], 50, 5*time.Second)
		r.waitArchived(all[(w+2)%3], 50, 5*time.Second)
		if n, _ := writers(all); n != 1 {
			t.Errorf("%d writers", n)
		}
		r.sameAs(1, r.cluster.members[0].entries)
	})
}

// Promise 4: writers that race for one name. The loser reads the winner's
// header, finds its own entries in it, and goes on after its last index.
func TestPromise4RaceForOneName(t *testing.T) {
	inFakeTime(t, 3, func(t *testing.T, r *rig) {
		r.cluster.commit(10, "x")
		r.sink.Add(sinktest.Delay(sinktest.Commit, 1, 700*time.Millisecond).Of("/l0/"))
		all := r.three() // all see an empty archive, and put l0/1
		for _, a := range all {
			r.waitArchived(a, 10, 10*time.Second)
		}
		for i := range 30 {
			r.cluster.commit(1+i%3, "x")
			time.Sleep(200 * time.Millisecond)
		}
		want := r.cluster.members[0].entries
		for _, a := range all {
			r.waitArchived(a, want[len(want)-1].Index, 10*time.Second)
		}
		if n, _ := writers(all); n != 1 {
			t.Errorf("%d writers", n)
		}
		if len(r.openLog(1).Spans()) != 1 {
			t.Errorf("spans: %+v", r.openLog(1).Spans())
		}
		r.sameAs(1, want)
	})
}

// A timeout may have been a success: what is there is read before deciding, and
// nothing is archived twice.
func TestLostAnswer(t *testing.T) {
	for name, err := range map[string]error{"uncertain": sinks.ErrUncertain, "timeout": errAway} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, 1, func(t *testing.T, r *rig) {
				r.sink.Add(sinktest.Lose(sinktest.Commit, 2, err).Of("/l0/"))
				a := r.start(0)
				for range 10 {
					r.cluster.commit(3, "x")
					time.Sleep(time.Second)
				}
				r.waitArchived(a, 30, 10*time.Second)
				r.sameAs(1, r.cluster.members[0].entries)
				entries := 0
				for _, h := range r.openLog(1).Headers() {
					entries += h.Entries
				}
				if entries != 30 || a.State().Role != Writer {
					t.Errorf("%d entries in the archive of 30; %s", entries, a.State().Role)
				}
			})
		})
	}
}

// Not known, and not there: it is cut anew.
func TestUncertainAndNotStored(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		r.sink.Add(sinktest.Fail(sinktest.Commit, 2, sinks.ErrUncertain).Of("/l0/"))
		a := r.start(0)
		for range 10 {
			r.cluster.commit(3, "x")
			time.Sleep(time.Second)
		}
		r.waitArchived(a, 30, 10*time.Second)
		r.sameAs(1, r.cluster.members[0].entries)
		if a.has(AlarmRepository) {
			t.Error("the alarm stays")
		}
	})
}

// A put is given up 60 s after its segment was cut: no late writer lands in a
// name that was freed. What was in it is cut anew.
func TestPutIsGivenUp(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.start(0)
		r.cluster.commit(3, "x")
		r.waitArchived(a, 3, 5*time.Second)
		r.sink.Add(sinktest.Delay(sinktest.Commit, 1, time.Hour).Of("/l0/"))
		opens := r.sink.Calls(sinktest.Open)
		r.cluster.commit(3, "y")
		time.Sleep(60 * time.Second)
		if r.sink.Fired() != 1 || a.State().Archived != 3 {
			t.Fatalf("archived to %d", a.State().Archived)
		}
		r.waitArchived(a, 6, 4*time.Second)
		// Once to see what became of it, once more to see where the archive stands.
		if n := r.sink.Calls(sinktest.Open) - opens; n < 2 {
			t.Errorf("the archive was read %d times before the next put", n)
		}
		r.sameAs(1, r.cluster.members[0].entries)
	})
}

// The late writer itself: an archiver whose put hangs while another one takes
// over finds its name taken, and its entries archived.
func TestLateWriter(t *testing.T) {
	inFakeTime(t, 3, func(t *testing.T, r *rig) {
		all := r.three()
		r.cluster.commit(10, "x")
		for _, a := range all {
			r.waitArchived(a, 10, 10*time.Second)
		}
		_, w := writers(all)
		name := repository.SegmentName{Timeline: timelineN(1), First: 11}.String()
		r.sink.Add(sinktest.Delay(sinktest.Commit, 1, 40*time.Second).Of(name))
		for range 60 {
			r.cluster.commit(1, "y")
			time.Sleep(time.Second)
		}
		for _, a := range all {
			r.waitArchived(a, 70, 10*time.Second)
		}
		if n, v := writers(all); n != 1 || v == w {
			t.Errorf("%d writers, %d was late and %d writes", n, w, v)
		}
		r.sameAs(1, r.cluster.members[0].entries)
		if n := len(r.openLog(1).Spans()); n != 1 {
			t.Errorf("%d spans", n)
		}
	})
}

// A member that lags follows the archive when it is back, and finds what it
// missed archived by the others.
func TestLaggingMemberFollows(t *testing.T) {
	inFakeTime(t, 3, func(t *testing.T, r *rig) {
		all := r.three()
		r.cluster.commit(10, "x")
		for _, a := range all {
			r.waitArchived(a, 10, 10*time.Second)
		}
		_, w := writers(all)
		lag := (w + 1) % 3
		r.cluster.members[lag].down = true
		for range 30 {
			r.cluster.commit(3, "y")
			time.Sleep(time.Second)
		}
		if !all[lag].has(AlarmMember) {
			t.Error("no alarm about a member that does not answer")
		}
		r.cluster.members[lag].down = false
		r.cluster.catchUp(lag, w)
		for _, a := range all {
			r.waitArchived(a, 100, 10*time.Second)
		}
		if all[lag].has(AlarmMember) || all[lag].raised(AlarmTimeline) {
			t.Errorf("alarms: %+v", all[lag].State().Alarms)
		}
	})
}

func logNames(names []string) (found []string) {
	for _, n := range names {
		if strings.Contains(n, "/l0/") {
			found = append(found, n)
		}
	}
	return found
}

// Names are those that the layout says: a conditional put on them decides.
func TestNames(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.start(0)
		r.cluster.commit(3, "x")
		r.waitArchived(a, 3, 5*time.Second)
		r.cluster.commit(3, "x")
		r.waitArchived(a, 6, 5*time.Second)
		got := fmt.Sprint(logNames(r.names()))
		if want := fmt.Sprintf("[%016x-1/l0/%016x %016x-1/l0/%016x]", testCluster, 1, testCluster, 4); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// Before it takes over, a follower lists once: the archive may go on under a
// name that it did not look for.
func TestListBeforeTakeover(t *testing.T) {
	inFakeTime(t, 2, func(t *testing.T, r *rig) {
		a, b := r.start(0), r.start(1)
		r.cluster.commit(10, "x")
		r.waitArchived(a, 10, 10*time.Second)
		r.waitArchived(b, 10, 10*time.Second)
		if a.State().Role == Follower {
			a, b = b, a
		}
		a.stop()
		r.cluster.commit(10, "y")
		// What another archiver's spool gave: it overlaps.
		entries := r.cluster.members[0].entries
		var before raftlog.Sum
		for _, e := range entries[:5] {
			before = before.Next(e)
		}
		h, object, err := segment.Encode(t.Context(), timelineN(1), before, false, segment.Batch{Entries: entries[5:20]}, segment.Meta{Member: 7, Cut: time.Now()}, segment.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := segment.Put(t.Context(), r.memory, h, object); err != nil {
			t.Fatal(err)
		}
		r.waitArchived(b, 20, 30*time.Second)
		r.load(5)
		r.waitArchived(b, 40, 30*time.Second)
		for _, h := range r.openLog(1).Headers() {
			if h.FirstIndex == 11 {
				t.Errorf("archived twice: %d to %d", h.FirstIndex, h.LastIndex)
			}
		}
		r.sameAs(1, r.cluster.members[0].entries)
	})
}

// askedFirst is how often the first member was asked for its status.
func (r *rig) askedFirst() int {
	r.cluster.mu.Lock()
	defer r.cluster.mu.Unlock()
	return r.cluster.members[0].asked
}
