package archive

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
)

// lines are of a log.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(line))
	return len(line), nil
}

func (l *lines) count(part string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

// The repository is away when the very first archiver starts: an alarm, and
// nothing is lost when it comes.
func TestPromise2AwayFromTheStart(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		r.gone.away.Store(true)
		var log lines
		a := r.start(0, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		r.load(30)
		if n := log.count("level=WARN"); n != 1 { // the same each time
			t.Errorf("%d lines for one cause", n)
		}
		if !a.has(AlarmRepository) || a.raised(AlarmRestarted) {
			t.Errorf("alarms: %+v", a.State().Alarms) // one for one cause
		}
		r.gone.away.Store(false)
		r.waitArchived(a, 120, 45*time.Second)
		r.sameAs(1, r.cluster.members[0].entries)
		time.Sleep(2 * time.Minute)
		if len(a.State().Alarms) > 0 {
			t.Errorf("alarms: %+v", a.State().Alarms)
		}
	})
}

// The member is dead, and what it acknowledged last is in the spool: it is
// stored without the member.
func TestPromise2SpoolOfADeadMember(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		m := r.cluster.members[0]
		a := r.archived(10)
		r.gone.away.Store(true)
		r.load(20)
		a.stop()
		m.down = true
		m.entries = m.entries[:len(m.entries):len(m.entries)]
		r.gone.away.Store(false)
		b := r.startWith(a.config)
		r.waitArchived(b, 116, time.Minute)
		r.sameAs(1, m.entries[:116])
		time.Sleep(20 * time.Second)
		if s := b.State(); s.Spooled != 0 || b.raised(AlarmRolledBack) || !b.has(AlarmMember) {
			t.Errorf("state: %+v", s)
		}
	})
}

// A timeline with full snapshots and no log: the log begins behind the newest
// one, which the member's log agrees with.
func TestLogBeginsBehindTheFullSnapshot(t *testing.T) {
	for name, c := range map[string]struct {
		term     uint64
		timeline int
	}{"agrees": {2, 1}, "another term": {1, 2}} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, 1, func(t *testing.T, r *rig) {
				r.cluster.commit(50, "x")
				ctx := context.Background()
				repo, err := repository.Init(ctx, r.memory, time.Now())
				require.NoError(t, err)
				_, err = repo.EnsureTimeline(ctx, repository.Timeline{ID: timelineN(1)})
				require.NoError(t, err)
				r.full(30, c.term)
				a := r.start(0)
				r.waitArchived(a, 50, 20*time.Second)
				want := r.cluster.members[0].entries
				if c.timeline == 1 {
					want = want[30:]
				}
				if got := a.State().Timeline; got != timelineN(c.timeline) {
					t.Errorf("timeline %s", got)
				}
				r.sameAs(c.timeline, want)
				if h := r.openLog(c.timeline).Headers()[0]; !h.ChainStart || h.FirstIndex != want[0].Index {
					t.Errorf("begins with %+v", h)
				}
			})
		})
	}
}

// Archivers whose logs begin at different indexes begin an archive under
// different names. In the end one of them writes.
func TestDifferentBeginnings(t *testing.T) {
	inFakeTime(t, 3, func(t *testing.T, r *rig) {
		r.cluster.commit(50, "x")
		r.cluster.members[1].purge(20)
		r.cluster.members[2].purge(30)
		r.sink.Add(sinktest.Delay(sinktest.Commit, 1, 300*time.Millisecond).Of("/l0/"))
		all := make([]*running, 3)
		for i := range all {
			all[i] = r.start(i, func(c *Config) { c.Interval += time.Duration(i) * 370 * time.Millisecond })
		}
		for range 60 { // so that they end at different indexes, too
			r.cluster.commit(1, "x")
			time.Sleep(70 * time.Millisecond)
		}
		if n, _ := writers(all); n != 1 {
			t.Errorf("%d writers", n)
		}
		r.load(40)
		last := r.cluster.members[0].last()
		r.waitAll(last, 30*time.Second, all...)
		if n, _ := writers(all); n != 1 {
			t.Errorf("%d writers", n)
		}
		creates := r.sink.Calls(sinktest.Create)
		r.load(20)
		if n := r.sink.Calls(sinktest.Create) - creates; n > 25 {
			t.Errorf("%d puts in 20 intervals", n)
		}
		r.waitArchived(all[0], r.cluster.members[0].last(), 5*time.Second)
		r.sameAs(1, r.cluster.members[0].entries[30:])
	})
}

// Promise 6: the member is down when the archiver starts, so nobody says whose log it
// is, and what answers later is of another cluster. What was archived is the log
// itself, under its own cluster; nothing that the other one said is stored.
func TestPromise6AnotherClusterAnswersLater(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		m := r.cluster.members[0]
		r.cluster.commit(40, "x")
		m.recorded, m.down = 30, true
		m.answers = Identity{ClusterID: testCluster + 1, MemberID: 77}
		a := r.start(0)
		r.waitArchived(a, 30, 30*time.Second)
		r.cluster.mu.Lock()
		m.down = false
		r.cluster.mu.Unlock()
		var wrong *IdentityError
		if err := a.ended(time.Minute); !errors.As(err, &wrong) {
			t.Fatalf("got %v", err)
		}
		r.sameAs(1, m.entries[:30])
		ids, err := r.repo().TimelineIDs(context.Background())
		if err != nil || len(ids) != 1 || ids[0] != timelineN(1) {
			t.Errorf("timelines %v, %v", ids, err)
		}
		l := r.openLog(1)
		if n := l.Headers()[len(l.Headers())-1].LastIndex; n != 30 || len(l.Heartbeat()) > 0 {
			t.Errorf("archived to %d, marks %+v", n, l.Heartbeat())
		}
		if marks := r.marks(); len(marks) > 0 {
			t.Errorf("marks %+v", marks)
		}
	})
}
