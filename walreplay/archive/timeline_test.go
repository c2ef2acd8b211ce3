package archive

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
)

// restart replaces a cluster's history after entry through: what
// --force-new-cluster does, or a restore with the same token.
func (r *rig) rewind(through uint64, term uint64) {
	r.cluster.mu.Lock()
	defer r.cluster.mu.Unlock()
	r.cluster.term = term
	for _, m := range r.cluster.members {
		m.entries = m.entries[: through-m.first+1 : through-m.first+1]
		m.version++
		m.lowest = through + 1
		last := m.entries[len(m.entries)-1]
		m.applied, m.term, m.revision = last.Index, last.Term, int64(last.Index)
	}
}

func (r *rig) timeline(n int) repository.Timeline {
	r.Helper()
	t, err := r.repo().Timeline(context.Background(), timelineN(n))
	require.NoError(r, err)
	return t
}

// Promise 6 (a): after a barrier the cluster is behind the archive: its history
// restarted. A new timeline is opened, with its parent, its branch point and
// the chain's value there; a full snapshot is due.
func TestPromise6ClusterBehindTheArchive(t *testing.T) {
	inFakeTime(t, 3, func(t *testing.T, r *rig) {
		all := r.three()
		r.load(10)
		r.waitAll(40, 10*time.Second, all...)
		old := r.cluster.members[0].entries
		for _, a := range all {
			a.stop()
		}
		headers := r.openLog(1).Headers()
		branch := headers[len(headers)-3]
		r.rewind(branch.LastIndex, 2)
		b := []*running{r.startWith(all[0].config), r.startWith(all[1].config), r.startWith(all[2].config)}
		r.waitFor("the new timeline", time.Minute, func() bool { return b[0].State().Timeline.N == 2 })
		r.load(10)
		last := r.cluster.members[0].last()
		for _, a := range b {
			r.waitFor("the new timeline", time.Minute, func() bool { return a.State().Timeline.N == 2 })
			r.waitArchived(a, last, 30*time.Second)
		}
		tl := r.timeline(2)
		if tl.Parent == nil || tl.Parent.Timeline != timelineN(1) || tl.Parent.RaftIndex != branch.LastIndex || tl.Parent.Chain != branch.After.String() || len(tl.Members) != 3 || !strings.Contains(tl.Reason, "behind") {
			t.Errorf("%+v, parent %+v, want a branch after %d", tl, tl.Parent, branch.LastIndex)
		}
		r.sameAs(1, old)
		r.sameAs(2, r.cluster.members[0].entries[branch.LastIndex:])
		if h := r.openLog(2).Headers()[0]; h.FirstIndex != branch.LastIndex+1 || !h.ChainStart {
			t.Errorf("the new log begins with %d", h.FirstIndex)
		}
		if len(b[0].snapshots())+len(b[1].snapshots())+len(b[2].snapshots()) == 0 {
			t.Error("no full snapshot was called for")
		}
		// Whoever takes it, and however late an archiver notices: it is one of this timeline.
		for _, a := range b {
			for _, g := range a.snapshots() {
				if !g.Found.Equal(tl.Created) {
					t.Errorf("a full snapshot is due since %s, the timeline was opened at %s", g.Found, tl.Created)
				}
			}
		}
		r.timelines(2)
		if !b[0].raised(AlarmTimeline) && !b[1].raised(AlarmTimeline) && !b[2].raised(AlarmTimeline) {
			t.Error("no alarm")
		}
	})
}

// Promise 6 (a), the term: after a barrier the cluster is as far as the archive,
// in an earlier term: its history restarted all the same.
func TestPromise6ClusterInAnEarlierTerm(t *testing.T) {
	inFakeTime(t, 3, func(t *testing.T, r *rig) {
		m := r.cluster.members[0]
		a := r.archived(5)
		r.cluster.mu.Lock()
		r.cluster.term = 7
		r.cluster.mu.Unlock()
		r.load(5)
		r.waitArchived(a, 40, 10*time.Second)
		a.stop()
		old := m.entries
		r.rewind(20, 3)
		m.down = true // it lags: its own log does not show it
		r.load(10)
		m.down = false
		if reach, err := (asked{m}).Reached(context.Background(), m.id); err != nil || reach.Index < 40 || reach.Term >= 7 {
			t.Fatalf("the cluster is at %+v, %v", reach, err)
		}
		b := r.startWith(a.config)
		r.waitFor("the new timeline", time.Minute, func() bool { return b.State().Timeline.N == 2 })
		r.cluster.catchUp(0, 1)
		r.load(3)
		r.waitArchived(b, m.last(), 30*time.Second)
		if tl := r.timeline(2); tl.Parent == nil || tl.Parent.RaftIndex != 20 || !strings.Contains(tl.Reason, "behind") {
			t.Errorf("%+v, parent %+v", tl, tl.Parent)
		}
		r.sameAs(1, old)
		r.sameAs(2, m.entries[20:])
	})
}

// Promise 6 (b): a committed entry differs from the archived one.
func TestPromise6EntryDiffers(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.archived(10)
		a.stop()
		old := r.cluster.members[0].entries
		r.rewind(22, 5)
		r.load(15) // far beyond the archive's end before anybody looks
		b := r.startWith(a.config)
		r.waitFor("the new timeline", time.Minute, func() bool { return b.State().Timeline.N == 2 })
		r.waitArchived(b, 82, 30*time.Second)
		tl := r.timeline(2)
		if tl.Parent == nil || tl.Parent.RaftIndex > 22 || tl.Parent.RaftIndex < 12 || len(tl.Members) != 3 || !strings.Contains(tl.Reason, "differs") {
			t.Errorf("%+v, %+v", tl, tl.Parent)
		}
		r.sameAs(1, old)
		r.sameAs(2, r.cluster.members[0].entries[tl.Parent.RaftIndex:])
	})
}

// Damage in an old WAL file, which etcd does not read any more, keeps no timeline from
// being opened, and is no reason to say that nothing is archived.
func TestPromise6DamageBeforeTheBranch(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		m := r.cluster.members[0]
		r.cluster.commit(5, "of the first file")
		m.purge(5)
		a := r.archived(10)
		a.stop()
		r.rewind(27, 5)
		r.load(15)
		r.cluster.mu.Lock()
		for i := uint64(5); i > 0; i-- {
			m.entries = slices.Insert(m.entries, 0, testEntry(i, 1, "damaged"))
		}
		m.first, m.damaged = 1, 5
		r.cluster.mu.Unlock()
		b := r.startWith(a.config)
		r.waitFor("the new timeline", time.Minute, func() bool { return b.State().Timeline.N == 2 })
		r.waitArchived(b, m.last(), 30*time.Second)
		if tl := r.timeline(2); tl.Parent == nil || tl.Parent.RaftIndex > 27 || tl.Parent.RaftIndex < 17 || !strings.Contains(tl.Reason, "differs") {
			t.Errorf("%+v, %+v", tl, tl.Parent)
		}
		if b.raised(AlarmLog) {
			t.Error("the alarm of a log that cannot be read")
		}
		r.sameAs(2, m.entries[r.timeline(2).Parent.RaftIndex:])
	})
}

// Terms alone do not show it: a history that restarted can come to the same term
// at the same index. Entries are compared, also where the log holds only a part
// of the last segment.
func TestPromise6SameTermOtherEntries(t *testing.T) {
	for name, purged := range map[string]uint64{"whole segment": 0, "part of it": 35} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, 1, func(t *testing.T, r *rig) {
				a := r.start(0)
				r.cluster.commit(30, "old")
				r.waitArchived(a, 30, 10*time.Second)
				r.cluster.commit(10, "old")
				r.waitArchived(a, 40, 10*time.Second)
				a.stop()
				old := r.cluster.members[0].entries
				r.rewind(33, 2)
				r.cluster.commit(20, "new")
				if purged > 0 {
					r.cluster.members[0].purge(purged)
				}
				b := r.startWith(a.config)
				r.waitFor("the new timeline", time.Minute, func() bool { return b.State().Timeline.N == 2 })
				r.waitArchived(b, 53, 30*time.Second)
				r.sameAs(1, old)
				m := r.cluster.members[0]
				r.sameAs(2, m.entries[max(r.timeline(2).Parent.RaftIndex, m.first-1)+1-m.first:])
			})
		})
	}
}

// The same while the archiver runs, and the member overwrites what it had committed;
// also where it is far beyond before anybody asks it.
func TestPromise6OverwrittenWhileRunning(t *testing.T) {
	for _, unseen := range []int{0, 30} {
		inFakeTime(t, 1, func(t *testing.T, r *rig) {
			a := r.archived(10)
			old := r.cluster.members[0].entries
			r.rewind(32, 5)
			r.cluster.commit(unseen, "new")
			r.load(20)
			r.waitFor("the new timeline", time.Minute, func() bool { return a.State().Timeline.N == 2 })
			r.waitArchived(a, r.cluster.members[0].last(), 30*time.Second)
			r.sameAs(1, old)
			r.sameAs(2, r.cluster.members[0].entries[r.timeline(2).Parent.RaftIndex:])
		})
	}
}

// A cluster restored with the same token begins at a low index again, and
// nothing is common to both.
func TestPromise6RestoredWithTheSameToken(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.archived(10)
		a.stop()
		old := r.cluster.members[0].entries
		r.cluster.mu.Lock()
		m := r.cluster.members[0]
		m.entries, m.first, m.applied, m.term = nil, 4, 0, 0
		for i := uint64(4); i < 9; i++ {
			m.save(testEntry(i, 2, "restored"))
			m.apply(testEntry(i, 2, "restored"))
		}
		r.cluster.mu.Unlock()
		b := r.startWith(a.config)
		r.waitFor("the new timeline", time.Minute, func() bool { return b.State().Timeline.N == 2 })
		r.load(5)
		r.waitArchived(b, m.last(), 30*time.Second)
		if p := r.timeline(2).Parent; p == nil || p.RaftIndex != 0 || p.Timeline != timelineN(1) {
			t.Errorf("parent %+v", p)
		}
		r.sameAs(1, old)
		r.sameAs(2, m.entries)
	})
}

// One member's index falling while the cluster goes on is a rolled-back disk or
// machine: an alarm, its log is followed from where it stands, and there is no
// new timeline.
func TestPromise6RolledBackMember(t *testing.T) {
	inFakeTime(t, 3, func(t *testing.T, r *rig) {
		a := r.start(0) // the only archiver: it wrote all
		r.load(10)
		r.waitArchived(a, 40, 10*time.Second)
		r.cluster.mu.Lock()
		m := r.cluster.members[0]
		m.entries = m.entries[:20:20]
		m.version, m.lowest, m.applied, m.down = m.version+1, 21, 20, false
		r.cluster.mu.Unlock()
		r.waitFor("the alarm", time.Minute, func() bool { return a.has(AlarmRolledBack) })
		r.cluster.catchUp(0, 1)
		r.load(10)
		r.waitArchived(a, 80, 30*time.Second)
		if a.has(AlarmRolledBack) {
			t.Error("the alarm stays")
		}
		r.timelines(1)
		r.sameAs(1, r.cluster.members[1].entries)
	})
}

// Without a quorum nothing is decided, and nothing archived on a guess.
func TestPromise6NoQuorumNoVerdict(t *testing.T) {
	inFakeTime(t, 3, func(t *testing.T, r *rig) {
		a := r.archived(10)
		a.stop()
		full := r.cluster.members[1].entries
		r.cluster.mu.Lock()
		r.cluster.noQuorum = true
		m := r.cluster.members[0]
		m.entries, m.applied = m.entries[:20:20], 20
		r.cluster.mu.Unlock()
		b := r.startWith(a.config)
		time.Sleep(time.Minute)
		if ids, _ := r.repo().TimelineIDs(context.Background()); len(ids) != 1 || b.State().Role != Comparing || r.cluster.barriers == 0 {
			t.Errorf("timelines %v, %+v", ids, b.State())
		}
		r.cluster.mu.Lock()
		r.cluster.noQuorum = false
		r.cluster.mu.Unlock()
		r.cluster.catchUp(0, 1)
		r.waitFor("compare", time.Minute, func() bool { return b.State().Role == Writer })
		r.sameAs(1, full)
	})
}

// No overlap to compare: continuity is unproven. The chain begins anew, a full
// snapshot is due, and until there is one a listing says that nothing behind can be
// restored.
func TestPromise6ContinuityUnproven(t *testing.T) {
	inFakeTime(t, 2, func(t *testing.T, r *rig) {
		a := r.archived(10)
		r.full(20, r.cluster.members[0].term)
		a.stop()
		r.cluster.members[0].purge(40)
		r.load(5)
		b := r.startWith(a.config)
		r.waitArchived(b, 60, time.Minute)
		var started bool
		for _, h := range r.openLog(1).Headers() {
			started = started || h.FirstIndex == 41 && h.ChainStart
		}
		if got := b.snapshots(); !started || len(got) == 0 || got[0].Missing != 0 || !strings.Contains(got[0].Reason, "not proved") {
			t.Errorf("chain started %v, snapshots %+v", started, got)
		}
		if all := r.recoverable(); len(all) != 1 || all[0].FirstIndex != 20 || all[0].LastIndex != 40 {
			t.Errorf("recoverable %+v", all)
		}
		// Its host is lost before it takes one. Another archiver has all entries, and finds
		// that the archive has no way to them.
		b.stop()
		c := r.start(1)
		r.load(5)
		r.waitArchived(c, 80, time.Minute)
		time.Sleep(time.Minute)
		if got, s := c.snapshots(), c.State(); len(got) == 0 || got[0].First != 41 || got[0].Missing != 0 || !strings.Contains(got[0].Reason, "not proved") {
			t.Errorf("snapshots %+v, %+v", got, s)
		}
		r.timelines(1)
	})
}

// A log that holds a part of the last segment is compared with its body.
func TestPartOfTheLastSegmentIsCompared(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.start(0)
		r.cluster.commit(40, "x")
		r.waitArchived(a, 40, 10*time.Second)
		a.stop()
		want := r.cluster.members[0].entries
		r.cluster.members[0].purge(30)
		r.load(5)
		b := r.startWith(a.config)
		r.waitArchived(b, 60, 20*time.Second)
		r.oneSpan()
		require.Empty(t, b.snapshots())
		r.sameAs(1, append(want[:30:30], r.cluster.members[0].entries...))
	})
}

// Split brain: both branches go on, each in its timeline, also after a restart.
func TestPromise6SplitBrain(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		other := &rig{T: t, cluster: newFakeCluster(1), memory: r.memory, sink: r.sink, gone: r.gone, spools: map[string]*sinktest.Memory{}}
		a := r.archived(10)
		m := other.cluster.members[0]
		m.entries = r.cluster.members[0].entries[:22:22]
		m.apply(m.entries[21])
		other.cluster.term = 4
		b := other.start(0)
		r.waitFor("the new timeline", time.Minute, func() bool { return b.State().Timeline.N == 2 })
		for range 10 {
			r.cluster.commit(3, "one")
			other.cluster.commit(5, "two")
			time.Sleep(time.Second)
		}
		a.stop()
		b.stop()
		a, b = r.startWith(a.config), other.startWith(b.config)
		for range 10 {
			r.cluster.commit(3, "one")
			other.cluster.commit(5, "two")
			time.Sleep(time.Second)
		}
		r.waitArchived(a, 100, 10*time.Second)
		r.waitArchived(b, 122, 10*time.Second)
		r.sameAs(1, r.cluster.members[0].entries)
		r.sameAs(2, m.entries[22:])
		r.timelines(2)
	})
}

// The branches part while both are being archived: a follower meets a segment
// with other entries than its own committed ones.
func TestPromise6SplitBrainMetWhileFollowing(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		other := &rig{T: t, cluster: newFakeCluster(1), memory: r.memory, sink: r.sink, gone: r.gone, spools: map[string]*sinktest.Memory{}}
		m := other.cluster.members[0]
		m.id.MemberID = 5 // so that its archiver follows
		m.answers = m.id
		r.cluster.commit(20, "common")
		for _, e := range r.cluster.members[0].entries {
			m.save(e)
			m.apply(e)
		}
		a := r.start(0)
		r.waitArchived(a, 20, 10*time.Second)
		b := other.start(0)
		r.waitArchived(b, 20, 10*time.Second)
		time.Sleep(3 * time.Second)
		for range 20 {
			r.cluster.commit(3, "one")
			other.cluster.commit(3, "two")
			time.Sleep(time.Second)
		}
		r.waitArchived(a, 80, 20*time.Second)
		r.waitFor("the new timeline", time.Minute, func() bool { return b.State().Timeline.N == 2 })
		r.waitArchived(b, 80, 20*time.Second)
		r.sameAs(1, r.cluster.members[0].entries)
		r.sameAs(2, m.entries[r.timeline(2).Parent.RaftIndex:])
		if p := r.timeline(2).Parent; p.RaftIndex != 20 || !b.raised(AlarmTimeline) {
			t.Errorf("parent %+v", p)
		}
	})
}

// A member of a superseded timeline is refused, at the start and while it runs.
func TestPromise6Superseded(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.archived(10)
		by := repository.TimelineID{ClusterID: 0xdd, N: 1}
		require.NoError(t, r.repo().Supersede(context.Background(), repository.Superseded{Timeline: timelineN(1), By: by, Reason: "quorum loss"}))
		check := func(a *running, within time.Duration) {
			t.Helper()
			err := a.ended(within)
			var ended *SupersededError
			if !errors.As(err, &ended) || !strings.Contains(err.Error(), by.String()) {
				t.Errorf("got %v", err)
			}
		}
		check(a, 15*time.Minute) // it looks now and then
		check(r.startWith(a.config), time.Minute)
	})
}

// Old members that come back after a recovery, with another log than was archived,
// do not begin a new history in the cluster's name.
func TestPromise6SupersededAndDiffers(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.archived(10)
		a.stop()
		r.rewind(22, 5)
		r.load(15)
		by := repository.TimelineID{ClusterID: 0xdd, N: 1}
		require.NoError(t, r.repo().Supersede(context.Background(), repository.Superseded{Timeline: timelineN(1), By: by, Reason: "quorum loss"}))
		b := r.startWith(a.config)
		err := b.ended(time.Minute)
		var ended *SupersededError
		if !errors.As(err, &ended) || !strings.Contains(err.Error(), by.String()) {
			t.Errorf("got %v", err)
		}
		r.timelines(1)
	})
}

// The log of a cluster that was restored begins anew with small indexes: where its
// history branched off the old cluster's is no place in it.
func TestPromise6RestoredClusterBeginsAnew(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		parent := repository.Branch{Timeline: repository.TimelineID{ClusterID: 0xdd, N: 1}, RaftIndex: 5000}
		repo, err := repository.Init(context.Background(), r.sink, time.Now())
		require.NoError(t, err)
		require.NoError(t, repo.OpenTimeline(context.Background(), repository.Timeline{ID: timelineN(1), Created: time.Now(), Reason: "restored", Parent: &parent}))
		a := r.archived(10)
		a.stop()
		r.sameAs(1, r.cluster.members[0].entries)
	})
}

// Design, Timelines: the first descriptor says who the members were as well, and
// why it was opened.
func TestPromise6FirstDescriptor(t *testing.T) {
	inFakeTime(t, 3, func(t *testing.T, r *rig) {
		r.archived(5)
		tl := r.timeline(1)
		if !slices.Equal(tl.Members, []string{"m1", "m2", "m3"}) || tl.Parent != nil || tl.Reason == "" || tl.Created.IsZero() {
			t.Errorf("%+v", tl)
		}
	})
}

// A machine that was set back was so with all that its archiver remembered. That
// the archive ends with a segment of this very member shows it all the same.
func TestRolledBackWithItsArchiver(t *testing.T) {
	inFakeTime(t, 3, func(t *testing.T, r *rig) {
		a := r.archived(10)
		a.stop()
		r.cluster.mu.Lock()
		m := r.cluster.members[0]
		m.entries = m.entries[:20:20]
		m.version, m.applied = m.version+1, 20
		r.cluster.mu.Unlock()
		b := r.start(0) // with a spool folder that knows nothing
		r.waitFor("the alarm", time.Minute, func() bool { return b.has(AlarmRolledBack) })
		r.cluster.catchUp(0, 1)
		r.load(10)
		r.waitArchived(b, 80, 30*time.Second)
		r.waitFor("the end of the alarm", time.Minute, func() bool { return !b.has(AlarmRolledBack) })
		r.timelines(1)
		r.sameAs(1, r.cluster.members[1].entries)
	})
}

// A member that a restore built, and that never answered, opens no timeline: who
// restored it records what it goes on from. Once it answers, it does.
func TestPromise6RestoredAndNotStarted(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		dir := t.TempDir()
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "member"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "member", "requorum-restored.json"), []byte("{}"), 0o600))
		m := r.cluster.members[0]
		r.cluster.commit(20, "x")
		m.recorded, m.down = 20, true
		a := r.start(0, func(c *Config) { c.DataDir = dir })
		time.Sleep(time.Minute)
		r.timelines(0)
		r.cluster.mu.Lock()
		m.down = false
		r.cluster.mu.Unlock()
		r.waitArchived(a, 20, time.Minute)
	})
}

// ownBranch asks a cluster of which only this member is left.
type ownBranch struct{ asked }

func (o ownBranch) Reached(context.Context, Identity) (Reach, error) {
	m := o.member
	m.cluster.mu.Lock()
	defer m.cluster.mu.Unlock()
	return Reach{Index: m.applied, Term: m.term}, nil
}

// Promise 6: of two branches that both go on, one that is idle is archived too:
// it does not wait for ever for what the other one has.
func TestPromise6IdleBranchIsKept(t *testing.T) {
	inFakeTime(t, 2, func(t *testing.T, r *rig) {
		m0, m1 := r.cluster.members[0], r.cluster.members[1]
		a := r.start(0, func(c *Config) { c.cluster = ownBranch{asked{m0}} })
		r.load(5)
		b := r.start(1, func(c *Config) { c.cluster = ownBranch{asked{m1}} })
		r.waitArchived(a, 20, 5*time.Second)
		r.waitArchived(b, 20, 15*time.Second)
		r.cluster.mu.Lock()
		for i := uint64(21); i <= 60; i++ {
			e := testEntry(i, 3, "left")
			m0.save(e)
			m0.apply(e)
		}
		for i := uint64(21); i <= 24; i++ {
			e := testEntry(i, 4, "right")
			m1.save(e)
			m1.apply(e)
		}
		r.cluster.mu.Unlock()
		r.waitFor("timeline 2", 2*time.Minute, func() bool { return b.State().Timeline.N == 2 })
		r.waitArchived(b, 24, time.Minute)
		r.sameAs(1, m0.entries)
		r.sameAs(2, m1.entries[20:])
	})
}

// A disk that was set back is reported also where another member's archiver wrote.
func TestRolledBackFollower(t *testing.T) {
	inFakeTime(t, 3, func(t *testing.T, r *rig) {
		a := r.start(0)
		r.load(5)
		b := r.start(1)
		r.load(5)
		r.waitAll(40, 10*time.Second, a, b)
		b.stop()
		r.cluster.mu.Lock()
		m := r.cluster.members[1]
		m.entries = m.entries[:20:20]
		m.version, m.lowest, m.applied = m.version+1, 21, 20
		r.cluster.mu.Unlock()
		b = r.startWith(b.config)
		r.waitFor("alarm", 30*time.Second, func() bool { return b.has(AlarmRolledBack) })
		r.cluster.catchUp(1, 0)
		r.load(5)
		r.waitFor("end of the alarm", 30*time.Second, func() bool { return !b.has(AlarmRolledBack) })
		r.oneSpan()
		require.Equal(t, 1, b.State().Timeline.N)
	})
}
