package recovery

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/walreplay"
)

func folder(t *testing.T, parts ...string) string {
	t.Helper()
	dir := filepath.Join(parts...)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	return dir
}

func link(t *testing.T, to, path string) string {
	t.Helper()
	require.NoError(t, os.Symlink(to, path))
	return path
}

// Promise 3: nothing is built or written where a member left its data, by whatever
// path, and nothing around it.
func TestPromise3SurvivorsAreOnlyRead(t *testing.T) {
	dir := t.TempDir()
	old := folder(t, dir, "old", "m1")
	folder(t, old, "member", "snap")
	log := folder(t, dir, "disk", "log") // which the member's own folder leads to
	link(t, log, filepath.Join(old, "member", "wal"))
	wal := folder(t, dir, "wal", "m1")
	alias := link(t, old, filepath.Join(dir, "alias"))
	for _, given := range []string{old, alias} {
		d := &coordinator{cfg: LocalConfig([]sources.Survivor{{Name: "m0", DataDir: folder(t, dir, "m0")}, {Name: "m1", DataDir: given, WALDir: wal}}), req: Request{Local: &Local{}}}
		for _, c := range []struct {
			what            string
			dataDir, walDir string
			refused         bool
		}{
			{"elsewhere", filepath.Join(dir, "new", "m1"), filepath.Join(dir, "newlog", "m1"), false},
			{"beside, with a longer name", filepath.Join(dir, "old", "m10"), "", false},
			{"the same", old, "", true},
			{"the same, and both", old, wal, true},
			{"the same by a link", alias, "", true},
			{"the same by another way", filepath.Join(dir, "old", "..", "alias", "."), "", true},
			{"inside", filepath.Join(old, "m1"), "", true},
			{"deep inside, through a link", filepath.Join(alias, "member", "new", "m1"), "", true},
			{"around", filepath.Join(dir, "old"), "", true},
			{"around all", dir, "", true},
			{"the WAL directory as a data directory", wal, "", true},
			{"inside of the WAL directory", filepath.Join(wal, "new"), "", true},
			{"around the WAL directory", filepath.Join(dir, "wal"), "", true},
			{"around a log that a link leads to", filepath.Join(dir, "disk"), "", true},
			{"a new log in the WAL directory", filepath.Join(dir, "new"), wal, true},
			{"a new log inside of the WAL directory", filepath.Join(dir, "new"), filepath.Join(wal, "new"), true},
			{"a new log inside of the data directory", filepath.Join(dir, "new"), filepath.Join(old, "log"), true},
			{"a new log around the data directory", filepath.Join(dir, "new"), filepath.Join(dir, "old"), true},
		} {
			plan := &restore.Plan{Members: []restore.Member{{Name: "m0", DataDir: filepath.Join(dir, "new", "m0")}, {Name: "m1", DataDir: c.dataDir, WALDir: c.walDir}}}
			err := d.keepsOut(plan)
			var usage *restore.RequestError
			if (err != nil) != c.refused || c.refused && !errors.As(err, &usage) {
				t.Errorf("%s: %v", c.what, err)
			}
			for _, way := range []string{"another --data-dir", "--to-snapshot state.db --plan plan.json", "restore --plan plan.json --file state.db --name m1 --set-aside", "--config"} {
				if c.refused && !strings.Contains(err.Error(), way) {
					t.Errorf("%s: %q is not said: %v", c.what, way, err)
				}
			}
		}
		for path, refused := range map[string]bool{"": false, filepath.Join(dir, "state.db"): false, filepath.Join(alias, "state.db"): true, filepath.Join(wal, "plan.json"): true, log: true} {
			d.req.Local.Writes = []string{"", path}
			if err := d.keepsOut(&restore.Plan{}); (err != nil) != refused {
				t.Errorf("%q is written to: %v", path, err)
			}
		}
	}
}

// Promise 2: what a survivor took after it was read is not dropped by taking the members
// that were built for the end of the same command, also where its clock is behind.
func TestPromise2LaterWritesAreNoticed(t *testing.T) {
	dir := t.TempDir()
	log := folder(t, dir, "member", "wal")
	path := filepath.Join(log, "0000000000000000-0000000000000000.wal")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	gone := folder(t, t.TempDir(), "gone")
	folder(t, gone, "member", "wal")
	d := &coordinator{decision: &decision{}}
	for _, h := range LocalConfig([]sources.Survivor{{Name: "m1", DataDir: dir}, {Name: "m2", DataDir: gone}}).Hosts {
		d.hosts = append(d.hosts, &participant{HostConfig: h})
	}
	read := func() map[string]string {
		all := map[string]string{}
		for _, h := range d.hosts {
			var err error
			all[h.Member], err = d.sum(t.Context(), h)
			require.NoError(t, err)
		}
		return all
	}
	d.decision.Read = read()
	require.NoError(t, os.RemoveAll(gone))
	name, err := d.changedHere()
	require.NoError(t, err)
	require.Empty(t, name)
	past := time.Now().Add(-time.Hour)
	for what, change := range map[string]func() error{
		"in the past":    func() error { return os.Chtimes(path, past, past) },
		"a file more":    func() error { return os.WriteFile(filepath.Join(log, "1.wal"), nil, 0o600) },
		"another length": func() error { return os.Truncate(path, 8) },
	} {
		d.decision.Read = read()
		require.NoError(t, change())
		if name, err := d.changedHere(); err != nil || name != "m1" {
			t.Errorf("%s: %q %v", what, name, err)
		}
	}
}

// Promise 2: what a restore left unfinished is not taken for what an old member left.
func TestPromise2UnfinishedIsNoSurvivor(t *testing.T) {
	dir := t.TempDir()
	folder(t, dir, "member", "wal")
	hosts := LocalConfig([]sources.Survivor{{Name: "m1", DataDir: dir, WALDir: folder(t, t.TempDir(), "wal")}}).Hosts
	require.NoError(t, unfinished(hosts))
	aside, err := restore.PlanAside(restore.Aside{Member: "m1", DataDir: dir, Run: "r1", Time: time.Now()})
	if err == nil {
		err = aside.Do(t.Context())
	}
	require.NoError(t, err)
	var usage *restore.RequestError
	err = unfinished(hosts)
	if !errors.As(err, &usage) {
		t.Fatal(err)
	}
	for _, want := range []string{"not what m1 left", "the newest " + dir + "/member.set-aside-TIME to " + dir + "/member", hosts[0].WALDir + "/set-aside-TIME"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not said: %v", want, err)
		}
	}
}

// Two commands are the same if they ask for the same, whenever they are started.
func TestSameCommand(t *testing.T) {
	build := restore.Request{DataDir: "/new/{name}"}
	asked := func(change func(*Asked)) Asked {
		b := build
		a := Asked{Build: &b}
		change(&a)
		return a
	}
	dec := &decision{Asked: asked(func(*Asked) {})}
	same := func(fromNow bool, change func(*Asked)) bool {
		return (&coordinator{req: Request{Asked: asked(change), TargetFromNow: fromNow}}).sameCommand(dec)
	}
	require.True(t, same(false, func(*Asked) {}))
	for what, change := range map[string]func(*Asked){
		"a point":          func(a *Asked) { a.Target = walreplay.Target{Kind: walreplay.AtRevision, Revision: 3} },
		"a source":         func(a *Asked) { a.Source = "m1" },
		"a setting":        func(a *Asked) { a.Replay.MinLeaseTTL = 9 * time.Second },
		"a dead member":    func(a *Asked) { a.DeclareDead = []string{"m2"} },
		"members":          func(a *Asked) { a.Build.InitialCluster = "m1=http://127.0.0.1:1" },
		"a learner":        func(a *Asked) { a.Build.Learners = []string{"m3"} },
		"another place":    func(a *Asked) { a.Build.WALDir = "/log/{name}" },
		"another revision": func(a *Asked) { a.Bump.Mode = restore.BumpOff },
	} {
		require.False(t, same(false, change), what)
	}
	ago := func(a *Asked) { a.Target = walreplay.Target{Kind: walreplay.AtTime, Time: time.Now()} }
	dec.Asked = asked(ago)
	require.True(t, same(true, ago))
	require.False(t, same(false, ago))
}
