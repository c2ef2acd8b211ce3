package archive

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/walreplay/walfile"
)

// A member that does not answer for long is logged once a minute, with the
// reason in the alarm.
func TestMemberDownDoesNotFloodTheLog(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		var log bytes.Buffer
		a := r.start(0, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		r.load(5)
		r.cluster.mu.Lock()
		r.cluster.members[0].down = true
		r.cluster.mu.Unlock()
		time.Sleep(5*time.Minute + time.Second)
		if !a.has(AlarmMember) || a.State().LastError == "" {
			t.Errorf("state: %+v", a.State())
		}
		for _, alarm := range a.State().Alarms {
			if alarm.Alarm == AlarmMember && !strings.Contains(alarm.Text, a.State().LastError) {
				t.Errorf("the alarm does not say why: %s", alarm.Text)
			}
		}
		a.stop()
		lines := strings.Count(log.String(), a.State().LastError)
		if lines < 5 || lines > 20 {
			t.Errorf("%d lines in five minutes:\n%s", lines, log.String())
		}
	})
}

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

// A clock that jumps is an alarm: marks show wrong times.
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

// An alarm that comes again soon was not over: what failed is tried again, and
// works for a moment.
func TestAlarmSinceStays(t *testing.T) {
	now := time.Unix(1000, 0)
	first := now
	a := &alarms{now: func() time.Time { return now }}
	for range 5 {
		a.raise(AlarmRestarted, "x")
		if got := a.list()[0].Since; !got.Equal(first) {
			t.Errorf("since %s, first raised %s", got, first)
		}
		a.clear(AlarmRestarted)
		now = now.Add(time.Minute)
	}
	now = now.Add(backWithin)
	a.raise(AlarmRestarted, "x")
	if got := a.list()[0].Since; !got.Equal(now) {
		t.Errorf("since %s, which was over long ago", got)
	}
}

// Promise 4: a log that cannot be read is an alarm of its own, with what to do,
// as long as it is so.
func TestPromise4LogCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other", "member", "wal")
	require.NoError(t, os.MkdirAll(other, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(other, "0000000000000000-0000000000000000.wal"), []byte(strings.Repeat("no log of etcd", 100)), 0o600))
	for name, c := range map[string]struct{ dir, next string }{
		"no folder":    {filepath.Join(dir, "none"), "member.data-dir"},
		"no log in it": {filepath.Join(dir, "other", "member", "wal"), "member.data-dir"},
		"another file": {filepath.Join(dir, "other"), "member of etcd"},
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, 1, func(t *testing.T, r *rig) {
				var there atomic.Bool
				member := r.cluster.members[0]
				a := r.start(0, func(c2 *Config) {
					c2.WALDir = filepath.Join(c.dir, "member", "wal")
					c2.open = func(from uint64) (Log, error) {
						if there.Load() {
							return member.open(from)
						}
						return walfile.OpenTail(c2.WALDir, walfile.TailOptions{From: from, PinLimit: 1 << 20})
					}
				})
				r.load(90)
				if !a.has(AlarmLog) || a.raised(AlarmRestarted) || a.times(AlarmLog) != 1 {
					t.Fatalf("alarms %+v", a.State().Alarms)
				}
				if text := a.State().Alarms[0].Text; !strings.Contains(text, c.dir) || !strings.Contains(text, c.next) {
					t.Errorf("text %q", text)
				}
				there.Store(true)
				r.waitArchived(a, member.last(), 45*time.Second)
				if len(a.State().Alarms) > 0 {
					t.Errorf("alarms %+v", a.State().Alarms)
				}
			})
		})
	}
}

// An error that is over is not shown for longer than it takes to see that.
func TestRestartedIsOverSoon(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		config := r.config(0)
		blocked := filepath.Join(config.SpoolDir, positionFile)
		require.NoError(t, os.MkdirAll(filepath.Join(blocked, "x"), 0o700))
		a := r.startWith(config)
		r.load(10)
		if !a.has(AlarmRestarted) {
			t.Fatalf("alarms %+v", a.State().Alarms)
		}
		require.NoError(t, os.RemoveAll(blocked))
		r.waitArchived(a, r.cluster.members[0].last(), 45*time.Second)
		r.waitFor("clear", 10*time.Second, func() bool { return !a.has(AlarmRestarted) })
	})
}
