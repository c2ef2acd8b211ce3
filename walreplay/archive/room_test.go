package archive

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/disk"
)

// fullDisk is a spool's place whose disk is full now and then.
type fullDisk struct {
	sinks.Sink
	full  *atomic.Bool
	tried *atomic.Int64
}

func (f fullDisk) Create(ctx context.Context, name string, opts sinks.CreateOptions) (sinks.Writer, error) {
	if f.full.Load() {
		f.tried.Add(1)
		return nil, fmt.Errorf("write %s: %w", name, syscall.ENOSPC)
	}
	return f.Sink.Create(ctx, name, opts)
}

func openSpoolIn(t *testing.T, dir string) (*spool, error) {
	t.Helper()
	place, err := disk.New(filepath.Join(dir, "objects"))
	if err != nil {
		t.Fatal(err)
	}
	return openSpool(context.Background(), place, time.Now())
}

func (a *running) times(name Alarm) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, e := range a.events {
		if e.Alarm == name && e.Raised {
			n++
		}
	}
	return n
}

// Promise 2: the spool's disk is full while the repository is away. That is an
// alarm, no error: nothing begins anew, what is spooled is stored as soon as the
// repository is back, and what waits in memory and in the member's log after it.
func TestPromise2SpoolDiskFull(t *testing.T) {
	for name, restart := range map[string]bool{"running": false, "started while away": true} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, 1, func(t *testing.T, r *rig) {
				var full atomic.Bool
				var tried atomic.Int64
				a := r.start(0, func(c *Config) {
					c.place = func(dir string) (sinks.Sink, error) {
						d, err := disk.New(dir)
						return fullDisk{d, &full, &tried}, err
					}
				})
				r.load(10)
				r.gone.away.Store(true)
				r.load(20)
				spooled := a.State().Spooled
				if spooled == 0 {
					t.Fatal("nothing is spooled")
				}
				if restart {
					a.stop()
					r.load(2)
					a = r.startWith(a.config)
					r.load(5)
				}
				full.Store(true)
				r.load(40)
				m := r.cluster.members[0]
				want := m.entries
				if tried.Load() < 3 || tried.Load() > 20 {
					t.Errorf("%d segments were tried in 40 s of a full disk", tried.Load())
				}
				if !a.has(AlarmSpoolFull) || a.raised(AlarmRestarted) {
					t.Fatalf("alarms %+v", a.State().Alarms)
				}
				for _, alarm := range a.State().Alarms {
					if alarm.Alarm == AlarmSpoolFull && (!strings.Contains(alarm.Text, a.config.SpoolDir) || !strings.Contains(alarm.Text, "make room") || !strings.Contains(alarm.Text, "no space left")) {
						t.Errorf("text %q", alarm.Text)
					}
				}
				m.purge(m.last() - 2) // what is in memory is nowhere else
				r.gone.away.Store(false)
				r.waitArchived(a, want[len(want)-1].Index, 30*time.Second)
				r.sameAs(1, want)
				r.load(5)
				r.waitArchived(a, m.last(), 10*time.Second)
				if s := a.State(); s.Spooled != 0 || a.raised(AlarmRestarted) || len(a.snapshots()) > 0 || a.times(AlarmSpoolFull) != 1 {
					t.Errorf("state %+v, gaps %+v", s, a.snapshots())
				}
				full.Store(false)
				r.load(15)
				r.waitFor("clear", 15*time.Second, func() bool { return len(a.State().Alarms) == 0 })
			})
		})
	}
}

// A spool that cannot be made for want of space says so with its own alarm.
func TestSpoolDiskFullFromTheStart(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		var full atomic.Bool
		var tried atomic.Int64
		full.Store(true)
		a := r.start(0, func(c *Config) {
			c.place = func(dir string) (sinks.Sink, error) {
				d, err := disk.New(dir)
				return fullDisk{d, &full, &tried}, err
			}
		})
		r.load(10)
		if tried.Load() == 0 || !a.has(AlarmSpoolFull) || a.raised(AlarmRestarted) {
			t.Errorf("alarms %+v", a.State().Alarms)
		}
		full.Store(false)
		r.load(35)
		r.waitArchived(a, r.cluster.members[0].last(), 20*time.Second)
		r.waitFor("clear", 90*time.Second, func() bool { return len(a.State().Alarms) == 0 })
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
	if err := os.MkdirAll(other, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, "0000000000000000-0000000000000000.wal"), []byte(strings.Repeat("no log of etcd", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
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
						return openWAL(c2.WALDir, from, 1<<20)
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
		if err := os.MkdirAll(filepath.Join(blocked, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
		a := r.startWith(config)
		r.load(10)
		if !a.has(AlarmRestarted) {
			t.Fatalf("alarms %+v", a.State().Alarms)
		}
		if err := os.RemoveAll(blocked); err != nil {
			t.Fatal(err)
		}
		r.waitArchived(a, r.cluster.members[0].last(), 45*time.Second)
		r.waitFor("clear", 10*time.Second, func() bool { return !a.has(AlarmRestarted) })
	})
}
