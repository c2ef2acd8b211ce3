package archive

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// load commits a little for a while.
func (r *rig) load(seconds int) {
	for range seconds {
		r.cluster.commit(4, "load")
		time.Sleep(time.Second)
	}
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
		for _, a := range all {
			r.waitArchived(a, last, 30*time.Second)
		}
		time.Sleep(time.Minute)
		r.load(5)
		time.Sleep(20 * time.Second)
		r.sameAs(1, r.cluster.members[0].entries)
		if n := len(r.openLog(1).Spans()); n != 1 {
			t.Errorf("%d spans", n)
		}
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
		a := r.start(0)
		r.load(15)
		r.waitArchived(a, 60, 3*time.Second)
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

		config := r.config(0)
		config.SpoolDir = dir
		b := r.startWith(config)
		r.load(10)
		want = append(want, m.entries[uint64(len(want))-m.first+1:]...)
		r.gone.away.Store(false)
		r.waitArchived(b, want[len(want)-1].Index, 40*time.Second)
		r.sameAs(1, want)
		if n := len(r.openLog(1).Spans()); n != 1 {
			t.Errorf("%d spans", n)
		}
		if len(b.snapshots()) > 0 {
			t.Errorf("gaps: %+v", b.snapshots())
		}
	})
}

// copyTree copies what is there now; it fails where a file goes meanwhile.
func copyTree(from, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return os.CopyFS(to, os.DirFS(from))
}

func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// The spool is for its owner alone, and holds what will be stored: encrypted
// where the archive is.
func TestSpoolIsAsStored(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		identity, err := age.GenerateX25519Identity()
		if err != nil {
			t.Fatal(err)
		}
		a := r.start(0, func(c *Config) { c.Codec.Recipients = []age.Recipient{identity.Recipient()} })
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
				if strings.Contains(string(data), "load") || !strings.Contains(string(data), "age-encryption.org") {
					t.Errorf("%s is not encrypted", path)
				}
			}
			return nil
		})
		if err != nil || files == 0 {
			t.Fatalf("%d segments spooled, %v", files, err)
		}
		r.gone.away.Store(false)
		r.waitArchived(a, 100, 40*time.Second)
		l, err := segment.OpenLog(context.Background(), r.repo(), timelineN(1), identity)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for e, err := range l.Entries(context.Background(), 1, 100) {
			if err != nil || !e.Equal(r.cluster.members[0].entries[n]) {
				t.Fatalf("%s, %v", e, err)
			}
			n++
		}
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
		r.waitArchived(a, last, 20*time.Second)
		r.waitArchived(b, last, 20*time.Second)
		if s := a.State(); s.Spooled != 0 {
			t.Errorf("%d bytes stay in the spool", s.Spooled)
		}
		r.sameAs(1, r.cluster.members[0].entries)
		if n := len(r.openLog(1).Spans()); n != 1 {
			t.Errorf("%d spans", n)
		}
		if a.raised(AlarmTimeline) || a.raised(AlarmGap) {
			t.Errorf("events: %+v", a.events)
		}
	})
}

// Both the same, and the member has purged what would have to be cut anew: the
// spooled segments overlap the archive, which is legal, and close the hole.
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
		again := r.startWith(func() Config { c := a.config; c.Sink = mine; return c }())
		r.waitArchived(again, uint64(len(want)), time.Minute)
		r.sameAs(1, want)
	})
}

// The overlapping segment may have the name of one that ends sooner.
func TestOverlappingSpoolOfTheSameName(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		m := r.cluster.members[0]
		r.cluster.commit(60, "x")
		want := m.entries
		repo, err := repository.Init(t.Context(), r.memory, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := repo.EnsureTimeline(t.Context(), repository.Timeline{ID: timelineN(1)}); err != nil {
			t.Fatal(err)
		}
		config := r.config(0)
		p, err := openSpoolIn(t, config.SpoolDir)
		if err != nil {
			t.Fatal(err)
		}
		var sums []raftlog.Sum
		sums = append(sums, raftlog.Sum{})
		for i, e := range want {
			sums = append(sums, sums[i].Next(e))
		}
		for _, c := range []struct {
			first, last int
			spooled     bool
		}{{1, 20, false}, {21, 30, false}, {21, 40, true}, {41, 50, true}} {
			h, object, err := segment.Encode(t.Context(), timelineN(1), sums[c.first-1], c.first == 1, segment.Batch{Entries: want[c.first-1 : c.last]}, segment.Meta{Member: 7, Cut: time.Now()}, segment.Options{})
			if err == nil && c.spooled {
				err = p.add(h, object)
			} else if err == nil {
				err = segment.Put(t.Context(), r.memory, h, object)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		m.purge(40)
		a := r.startWith(config)
		r.waitArchived(a, 60, 30*time.Second)
		r.sameAs(1, want)
		if n := len(r.openLog(1).Spans()); n != 1 || len(a.snapshots()) > 0 || a.State().Spooled != 0 {
			t.Errorf("%d spans, snapshots %+v, state %+v", n, a.snapshots(), a.State())
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
		a := r.start(0)
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
		if err := a.stop(); err != nil {
			t.Fatal(err)
		}
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
		p, err := openSpoolIn(t, a.config.SpoolDir)
		if err != nil || len(p.lane(timelineN(1), 7, r.openLog(1).Headers()[0].After)) != 1 {
			t.Errorf("spool %+v, %v", p, err)
		}
	})
}

// Two archivers cannot share a spool folder.
func TestSpoolIsOfOne(t *testing.T) {
	inFakeTime(t, 2, func(t *testing.T, r *rig) {
		a := r.start(0)
		time.Sleep(time.Second)
		b := r.start(1, func(c *Config) { c.SpoolDir = a.config.SpoolDir })
		if err := <-b.done; err == nil || !strings.Contains(err.Error(), "another archiver") {
			t.Errorf("got %v", err)
		}
		b.once.Do(func() {})
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
