package archive

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
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

// spooled is what an archiver that was stopped has in its spool.
func (a *running) spooled() *spool {
	a.rig.Helper()
	place, err := a.config.place(filepath.Join(a.config.SpoolDir, "objects"))
	require.NoError(a.rig, err)
	p, err := openSpool(context.Background(), place, time.Now())
	require.NoError(a.rig, err)
	return p
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

// Promise 2: the repository is away for a minute under load. Segments spool,
// follow in order, and nothing is skipped; then the spool is empty.
func TestPromise2RepositoryAway(t *testing.T) {
	inFakeTime(t, 3, func(t *testing.T, r *rig) {
		all := r.three()
		r.load(5)
		r.gone.away.Store(true)
		r.load(60)
		for i, a := range all {
			if s := a.State(); s.Spooled == 0 || s.Behind < 50*time.Second {
				t.Errorf("archiver %d: %+v", i, s)
			}
			if !a.has(AlarmRepository) || !a.has(AlarmBehind) {
				t.Errorf("archiver %d: alarms %+v", i, a.State().Alarms)
			}
		}
		r.gone.away.Store(false)
		r.load(20)
		last := r.cluster.members[0].last()
		r.waitAll(last, 30*time.Second, all...)
		time.Sleep(time.Minute)
		r.load(5)
		time.Sleep(20 * time.Second)
		r.sameAs(1, r.cluster.members[0].entries)
		r.oneSpan()
		for i, a := range all {
			if s := a.State(); s.Spooled != 0 || s.Behind != 0 || a.has(AlarmRepository) || a.has(AlarmBehind) {
				t.Errorf("archiver %d: %+v", i, s)
			}
		}
		if n, _ := writers(all); n != 1 {
			t.Errorf("%d writers", n)
		}
	})
}

// What is spooled survives the process being killed, and the member purging
// its log: the next process stores it, also when it starts while the repository
// is still away.
func TestPromise2SpoolSurvivesKill(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		m := r.cluster.members[0]
		a := r.archived(15, onDisk)
		want := m.entries
		r.gone.away.Store(true)
		r.load(30)
		// A kill leaves what is on the disk, and nothing else.
		dir := t.TempDir()
		copyFolder(t, a.config.SpoolDir, dir)
		spooled := a.State().Read - 12 // what is younger was in memory
		a.stop()
		want = append(want[:len(want):len(want)], m.entries[len(want):]...)
		m.purge(spooled)

		config := a.config
		config.SpoolDir = dir
		b := r.startWith(config)
		r.load(10)
		want = append(want, m.entries[uint64(len(want))-m.first+1:]...)
		r.gone.away.Store(false)
		r.waitArchived(b, want[len(want)-1].Index, 40*time.Second)
		r.sameAs(1, want)
		r.oneSpan()
		if len(b.snapshots()) > 0 {
			t.Errorf("gaps: %+v", b.snapshots())
		}
	})
}

func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	require.NoError(t, os.CopyFS(to, os.DirFS(from)))
}

// An archiver that was killed after it stored what was spooled, and before that left the
// disk, finds both.
func TestSpool_KilledBeforeASegmentLeftIt_StoresNothingTwice(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.archived(5, onDisk)
		r.gone.away.Store(true)
		r.load(20)
		dir := t.TempDir()
		copyFolder(t, a.config.SpoolDir, dir)
		r.gone.away.Store(false)
		r.waitArchived(a, r.cluster.members[0].last(), time.Minute)
		a.stop()
		stored := len(logNames(r.names()))

		config := a.config
		config.SpoolDir = dir
		b := r.startWith(config)
		r.waitFor("the spool is empty", time.Minute, func() bool { return b.State().Role == Writer && b.State().Spooled == 0 })
		if n := len(logNames(r.names())); n != stored {
			t.Errorf("%d segments, and %d before", n, stored)
		}
		if files := b.spooled().segments; len(files) > 0 {
			t.Errorf("%d segments stay on the disk", len(files))
		}
		r.sameAs(1, r.cluster.members[0].entries)
	})
}

// The spool is readable by its owner only, and not encrypted: what is stored of it is, so that
// an agent without an identity can cut it again.
func TestSpool_OfAnEncryptedArchive_IsPlainAndPrivate(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		identity, err := age.GenerateX25519Identity()
		require.NoError(t, err)
		a := r.start(0, onDisk, func(c *Config) { c.Codec.Recipients = []age.Recipient{identity.Recipient()} })
		r.load(5)
		r.gone.away.Store(true)
		r.load(20)
		files := 0
		err = filepath.WalkDir(a.config.SpoolDir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			if path == a.config.SpoolDir {
				return nil // the test's own
			}
			if want := fs.FileMode(0o600); d.IsDir() && info.Mode().Perm() != 0o700 || !d.IsDir() && info.Mode().Perm() != want {
				t.Errorf("%s has mode %s", path, info.Mode())
			}
			if strings.Contains(path, "/l0/") && !d.IsDir() {
				files++
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				if strings.Contains(string(data), "age-encryption.org") {
					t.Errorf("%s is encrypted", path)
				}
			}
			return nil
		})
		if err != nil || files == 0 {
			t.Fatalf("%d segments spooled, %v", files, err)
		}
		r.gone.away.Store(false)
		r.waitArchived(a, 100, 40*time.Second)
		for _, h := range r.openLog(1).Headers() {
			require.True(t, h.Object.Encrypted(), h.Name())
		}
		for e, err := range r.openLog(1, identity).Entries(context.Background(), 1, 100) {
			require.NoError(t, err)
			require.True(t, e.Equal(r.cluster.members[0].entries[e.Index-1]))
		}
	})
}

// An agent that lost its recipients stores nothing of its spool in a timeline that is
// encrypted: whether the repository is reachable at its start or comes back later, and also if
// its member does not answer.
func TestSpool_WithoutRecipients_StaysOutOfAnEncryptedTimeline(t *testing.T) {
	identity, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	for _, c := range []struct{ away, down bool }{{false, false}, {true, false}, {false, true}} {
		inFakeTime(t, 1, func(t *testing.T, r *rig) {
			a := r.archived(5, func(c *Config) { c.Codec.Recipients = []age.Recipient{identity.Recipient()} })
			r.full(10, r.cluster.members[0].term, codec.Age)
			r.gone.away.Store(true)
			r.load(20)
			a.stop()
			spooled := a.spooled().segments
			require.NotEmpty(t, spooled)
			r.gone.away.Store(c.away)
			r.cluster.members[0].down = c.down
			b := r.startWith(a.config, func(c *Config) { c.Codec.Recipients = nil })
			time.Sleep(5 * time.Second)
			r.gone.away.Store(false)
			var must *snapshot.MustEncryptError
			require.ErrorAs(t, b.ended(time.Minute), &must)
			require.Subset(t, b.spooled().segments, spooled)
			for _, h := range r.openLog(1).Headers() {
				require.True(t, h.Object.Encrypted(), h.Name())
			}
		})
	}
}

// A spooled segment that reaches over the archive's end, and whose entries the member has
// purged, is cut there: the rest of it continues the archive, in its chain, under the name that
// every writer chooses, with the marks from the archive's end on. It takes no identity.
func TestSpool_OverTheEnd_IsCutThere(t *testing.T) {
	identity, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		m := r.cluster.members[0]
		a := r.archived(5, func(c *Config) { c.Codec.Recipients = []age.Recipient{identity.Recipient()} })
		a.stop()
		headers := r.openLog(1).Headers()
		end := headers[len(headers)-1]
		r.cluster.commit(int(40-end.LastIndex), "load")
		want := m.entries
		var before raftlog.Sum
		for _, e := range want[:14] {
			before = before.Next(e)
		}
		batch := segment.Batch{Entries: want[14:30]}
		for _, index := range []uint64{end.LastIndex - 1, end.LastIndex, 25} {
			batch.Marks = append(batch.Marks, raftlog.Mark{Index: index, Term: m.term, Time: time.Now(), Member: 1})
		}
		h, object, err := segment.Encode(t.Context(), timelineN(1), before, false, batch, segment.Meta{Member: 1, Cut: time.Now()}, segment.Options{})
		require.NoError(t, err)
		require.NoError(t, a.spooled().add(h, object))
		m.purge(35)
		b := r.startWith(a.config)
		r.waitArchived(b, 30, time.Minute)
		got, stored, err := segment.Read(t.Context(), r.repo(), repository.SegmentName{Timeline: timelineN(1), First: end.LastIndex + 1, Previous: end.FirstIndex}.String(), identity)
		require.NoError(t, err)
		require.Equal(t, end.After, got.Before)
		require.Equal(t, h.After, got.After)
		require.Len(t, stored.Marks, 2)
		require.Empty(t, b.spooled().segments)
	})
}

// Another archiver goes on while this one is cut off from the repository. What
// was spooled meanwhile is compared with the archive and dropped; the rest is
// cut anew. The other one's segments end elsewhere than the spooled ones.
func TestTakeoverWhileSpooling(t *testing.T) {
	inFakeTime(t, 2, func(t *testing.T, r *rig) {
		mine := &goneSink{Sink: r.memory}
		a := r.start(0, func(c *Config) { c.Sink = mine })
		r.load(5)
		b := r.start(1, func(c *Config) { c.Interval = 1700 * time.Millisecond })
		r.load(5)
		mine.away.Store(true)
		r.load(60)
		if a.State().Spooled == 0 || b.State().Role != Writer {
			t.Fatalf("spooled %d bytes, the other one is %s", a.State().Spooled, b.State().Role)
		}
		mine.away.Store(false)
		r.load(30)
		last := r.cluster.members[0].last()
		r.waitAll(last, 20*time.Second, a, b)
		if s := a.State(); s.Spooled != 0 {
			t.Errorf("%d bytes stay in the spool", s.Spooled)
		}
		r.sameAs(1, r.cluster.members[0].entries)
		r.oneSpan()
		if a.raised(AlarmTimeline) || a.raised(AlarmGap) {
			t.Errorf("events: %+v", a.events)
		}
	})
}

// Both the same, and the member has purged what would have to be cut anew: what is spooled is
// stored, and no two segments overlap.
func TestOverlappingSpool(t *testing.T) {
	inFakeTime(t, 2, func(t *testing.T, r *rig) {
		mine := &goneSink{Sink: r.memory}
		a := r.start(0, func(c *Config) { c.Sink = mine })
		r.load(10)
		b := r.start(1, func(c *Config) { c.Interval = 1700 * time.Millisecond })
		r.load(5)
		mine.away.Store(true)
		r.load(30)
		b.stop() // it archived a part
		ended := r.openLog(1).Headers()
		end := ended[len(ended)-1].LastIndex
		r.load(20)
		want := r.cluster.members[0].entries
		a.stop()
		r.cluster.members[0].purge(uint64(len(want)) - 1)
		mine.away.Store(false)
		if end >= uint64(len(want)) {
			t.Fatal("the other one archived everything")
		}
		again := r.startWith(a.config, func(c *Config) { c.Sink = mine })
		r.waitArchived(again, uint64(len(want)), time.Minute)
		r.sameAs(1, want)
		next := uint64(1)
		for _, h := range r.openLog(1).Headers() {
			require.Equal(t, next, h.FirstIndex, h.Name())
			require.Zero(t, h.Level, h.Name())
			next = h.LastIndex + 1
		}
	})
}

// The spool's bound counts the purged files that are kept from vanishing. Near
// it and at it there are alarms; past it the pins are dropped. What the member
// did not purge follows all the same.
func TestSpoolBound(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		m := r.cluster.members[0]
		a := r.start(0, func(c *Config) { c.SpoolLimit = 60 << 10 })
		r.load(5)
		r.gone.away.Store(true)
		for range 100 {
			r.load(1)
			if s := a.State(); s.Spooled+s.Pinned > 60<<10 {
				t.Fatalf("%d bytes spooled, %d pinned: more than the bound", s.Spooled, s.Pinned)
			}
		}
		if !a.raised(AlarmSpool) {
			t.Error("no alarm near the bound")
		}
		r.cluster.mu.Lock()
		m.pinned = 50 << 10
		r.cluster.mu.Unlock()
		time.Sleep(time.Second)
		if s := a.State(); s.Pinned != 0 || s.Spooled == 0 || !a.raised(AlarmSpoolFull) {
			t.Errorf("events: %+v", a.events)
		}
		r.gone.away.Store(false)
		r.waitArchived(a, m.last(), time.Minute)
		r.sameAs(1, m.entries)
	})
}

// A damaged file in the spool is not stored; the member's log fills in.
func TestDamagedSpool(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.start(0, onDisk)
		r.load(5)
		r.gone.away.Store(true)
		r.load(20)
		hit := 0
		err := filepath.WalkDir(a.config.SpoolDir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && strings.Contains(path, "/l0/") && hit == 0 {
				hit++
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				data[len(data)-20] ^= 1
				return os.WriteFile(path, data, 0o600)
			}
			return err
		})
		if err != nil || hit == 0 {
			t.Fatal(hit, err)
		}
		r.gone.away.Store(false)
		r.load(5)
		r.waitArchived(a, r.cluster.members[0].last(), time.Minute)
		r.sameAs(1, r.cluster.members[0].entries)
		if !strings.Contains(a.State().LastError, "spool") {
			t.Errorf("last error %q", a.State().LastError)
		}
	})
}

// A stop stores what is committed and read; while the repository is away, in
// the spool.
func TestFinalFlush(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.start(0, func(c *Config) { c.Interval = 10 * time.Minute })
		time.Sleep(time.Second)
		r.cluster.commit(7, "x")
		time.Sleep(time.Second)
		require.NoError(t, a.stop())
		r.sameAs(1, r.cluster.members[0].entries)

		b := r.startWith(a.config)
		time.Sleep(2 * time.Second)
		r.gone.away.Store(true)
		r.cluster.commit(7, "y")
		time.Sleep(time.Second)
		began := time.Now()
		if err := b.stop(); err != nil || time.Since(began) > 20*time.Second {
			t.Fatalf("%v after %s", err, time.Since(began))
		}
		if p := b.spooled(); len(p.following(timelineN(1), r.openLog(1).Headers()[0])) != 1 {
			t.Errorf("spool %+v", p)
		}
	})
}

// Two archivers cannot share a spool folder.
func TestSpoolIsOfOne(t *testing.T) {
	inFakeTime(t, 2, func(t *testing.T, r *rig) {
		a := r.start(0)
		time.Sleep(time.Second)
		b := r.start(1, func(c *Config) { c.SpoolDir = a.config.SpoolDir })
		require.ErrorContains(t, b.ended(time.Minute), "another archiver")
	})
}

// A put that hangs does not keep entries in memory alone.
func TestHangingPutSpools(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.start(0)
		r.load(5)
		r.sink.Add(sinktest.Delay(sinktest.Commit, 1, time.Hour).Of("/l0/"))
		r.load(20)
		if a.State().Spooled == 0 {
			t.Error("nothing is spooled")
		}
		r.load(60)
		r.waitArchived(a, r.cluster.members[0].last(), 10*time.Second)
		r.sameAs(1, r.cluster.members[0].entries)
		if s := a.State(); s.Spooled != 0 {
			t.Errorf("%d bytes stay spooled", s.Spooled)
		}
	})
}

// Before the first segment is stored, too, a restarted archiver knows its repository.
func TestPosition_WithoutSegment_IsReadBack(t *testing.T) {
	dir := t.TempDir()
	want := position{Place: place{URL: "file:///backups", Repository: "0123"}}
	require.NoError(t, want.write(dir))
	got, err := readPosition(dir)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// A spool directory that belongs to another user is refused, with what to type.
func TestSpool_OfAnotherUser_IsRefused(t *testing.T) {
	storetest.NeedRoot(t)
	dir := t.TempDir()
	require.NoError(t, os.Chown(dir, 2379, 2379))
	_, err := lockFolder(dir)
	require.ErrorContains(t, err, "belongs to user 2379")
	require.ErrorContains(t, err, "chown -R 0 "+dir)
	require.NoError(t, os.Chown(dir, 0, 0))
	unlock, err := lockFolder(dir)
	require.NoError(t, err)
	require.NoError(t, unlock())
}
