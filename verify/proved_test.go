package verify

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/signing"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/verdict"
	"github.com/requorum/requorum/walreplay"
)

// seenWorld is signed, and was verified by a reader who remembers that.
func seenWorld(t *testing.T, prepare ...func(*world)) *world {
	t.Helper()
	keys := sinktest.NewKeys(t)
	keys.Memory = &signing.Memory{Dir: filepath.Join(t.TempDir(), "seen"), Unkept: func(err error) { t.Error(err) }}
	w := newWorld(t, repository.WithKeys(onMemory(), keys))
	for _, one := range prepare {
		one(w)
	}
	wantKinds(t, w.verify(Request{}))
	return w
}

// proves verifies everything and writes the verdicts.
func (w *world) proves() *report.Report {
	w.Helper()
	r := w.verify(Request{})
	w.must(verdict.Write(w.Context(), w.repo, verdict.FromReport(r)))
	return r
}

// erase deletes all of a backup.
func (w *world) erase(id string) {
	w.Helper()
	w.remove(manifestObject(id))
	w.remove(snapshotObject(id))
}

// lose deletes all of the world's timeline.
func (w *world) lose() {
	w.Helper()
	w.removeAll("timelines/" + worldTimeline.String())
	w.removeAll(worldTimeline.String())
}

// Who verified a repository before knows that its newest objects are not there any more.
func TestVerify_NewestObjectsGone_Refused(t *testing.T) {
	moved := func(id string) func(*world) { return func(w *world) { w.move(id) } }
	for _, c := range []struct {
		name    string
		prepare func(*world)
		inject  func(*world)
		refused bool
	}{
		{"nothing", nil, func(*world) {}, false},
		{"the log's end", nil, func(w *world) { w.remove(l0(41)) }, true},
		{"the whole log", nil, func(w *world) { w.removeAll(worldTimeline.String() + "/l") }, true},
		{"the log, and the newest backup", nil, func(w *world) { w.removeAll(worldTimeline.String() + "/l"); w.erase(newBackup) }, true},
		{"the timeline", nil, (*world).lose, true},
		{"the newer of two timelines", moved(oldBackup), (*world).lose, true},
		{"a backup of the timeline that is older", moved(newBackup), func(w *world) { w.erase(oldBackup) }, false},
		{"an old backup", nil, func(w *world) { w.erase(oldBackup) }, false},
		{"a log that was pruned before a newer backup", nil, func(w *world) {
			w.removeAll(worldTimeline.String() + "/l")
			w.backup(thirdBackup, 60)
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			prepare := c.prepare
			if prepare == nil {
				prepare = func(*world) {}
			}
			w := seenWorld(t, prepare)
			c.inject(w)
			for _, req := range []Request{{Backup: All}, {Backup: Latest}} {
				req.Level, req.ScratchDir = report.Checksum, t.TempDir()
				_, err := Repository(t.Context(), w.repo, req)
				var less *walreplay.RolledBackError
				if errors.As(err, &less) != c.refused && (!c.refused || !errors.Is(err, snapshot.ErrNoBackup)) {
					t.Errorf("%s: %v", req.Backup, err)
				}
			}
		})
	}
}

// A backup that took the place of another one, or whose manifest was altered, is not
// proved by the verdict on what was there before.
func TestVerdict_ManifestReplaced_DoesNotCount(t *testing.T) {
	for name, inject := range map[string]func(*world){
		"a manifest was altered and sealed anew": func(w *world) {
			reseal(w, manifestObject(newBackup), func(m *snapshot.Manifest) { m.HashKV.Hash++ })
		},
		"a backup took another one's place": func(w *world) { w.backupOf(newBackup, 35, database(oldBackup)) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, onMemory())
			w.proves()
			proved := func() bool {
				m, err := snapshot.ReadManifest(t.Context(), w.repo, worldTimeline, newBackup)
				w.must(err)
				all, err := verdict.ReadAll(t.Context(), w.repo)
				w.must(err)
				_, ok := all.Best(m)
				return ok
			}
			require.True(t, proved())
			inject(w)
			require.False(t, proved())
			w.proves()
			require.True(t, proved())
		})
	}
}

// A repository of which nothing is left, or no backup, never passes.
func TestNothingLeft(t *testing.T) {
	for name, inject := range map[string]func(*world){
		"all objects of the timeline": (*world).lose,
		"the backups":                 func(w *world) { w.erase(oldBackup); w.erase(newBackup) },
		"the manifests":               func(w *world) { w.remove(manifestObject(oldBackup)); w.remove(manifestObject(newBackup)) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, onMemory())
			w.proves()
			inject(w)
			for _, req := range []Request{
				{Backup: All}, {Backup: Latest}, {Backup: All, Timeline: worldTimeline.String()}, {Backup: Latest, Timeline: worldTimeline.String()},
			} {
				if r, err := Repository(t.Context(), w.repo, req); !errors.Is(err, snapshot.ErrNoBackup) {
					t.Errorf("%+v: %+v, %v", req, r, err)
				}
			}
		})
	}
}

func (w *world) removeAll(prefix string) {
	w.Helper()
	for _, name := range w.names(prefix) {
		w.remove(name)
	}
}

// A verdict names the manifests of the backups that were read, whatever else is damaged.
func TestVerdict_Backups_AreThoseThatWereRead(t *testing.T) {
	w := newWorld(t, onMemory())
	w.flip(l0(41), 2060)
	w.flip(manifestObject(oldBackup), 300)
	all := verdict.FromReport(w.verify(Request{}))
	require.Len(t, all, 1)
	require.Equal(t, newBackup, all[0].Backup)
	m, err := snapshot.ReadManifest(t.Context(), w.repo, worldTimeline, newBackup)
	w.must(err)
	require.Equal(t, m.Stored.SHA256, all[0].Manifest)
}
