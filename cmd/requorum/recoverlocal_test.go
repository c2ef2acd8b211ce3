package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/sources"
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
		l := &localRecovery{survivors: []sources.Survivor{{Name: "m0", DataDir: folder(t, dir, "m0")}, {Name: "m1", DataDir: given, WALDir: wal}}}
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
			err := l.keepsOut(plan)
			var usage usageError
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
			if err := l.onlyRead("", path); (err != nil) != refused {
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
	l := &localRecovery{survivors: []sources.Survivor{{Name: "m1", DataDir: dir}, {Name: "m2", DataDir: folder(t, t.TempDir(), "gone")}}}
	folder(t, l.survivors[1].DataDir, "member", "wal")
	read, err := logSums(l.survivors)
	require.NoError(t, err)
	require.Len(t, read, 2)
	require.NoError(t, os.RemoveAll(l.survivors[1].DataDir))
	name, err := l.changed(read)
	require.NoError(t, err)
	require.Empty(t, name)
	past := time.Now().Add(-time.Hour)
	for what, change := range map[string]func() error{
		"in the past":    func() error { return os.Chtimes(path, past, past) },
		"a file more":    func() error { return os.WriteFile(filepath.Join(log, "1.wal"), nil, 0o600) },
		"another length": func() error { return os.Truncate(path, 8) },
	} {
		before, err := logSums(l.survivors)
		require.NoError(t, err)
		require.NoError(t, change())
		if name, err := l.changed(before); err != nil || name != "m1" {
			t.Errorf("%s: %q %v", what, name, err)
		}
	}
}

// Promise 2: what a restore left unfinished is not taken for what an old member left.
func TestPromise2UnfinishedIsNoSurvivor(t *testing.T) {
	dir := t.TempDir()
	folder(t, dir, "member", "wal")
	survivors := []sources.Survivor{{Name: "m1", DataDir: dir, WALDir: folder(t, t.TempDir(), "wal")}}
	require.NoError(t, left(survivors))
	aside, err := restore.PlanAside(restore.Aside{Member: "m1", DataDir: dir, Run: "r1", Time: time.Now()})
	if err == nil {
		err = aside.Do(t.Context())
	}
	require.NoError(t, err)
	var usage usageError
	err = left(survivors)
	if !errors.As(err, &usage) {
		t.Fatal(err)
	}
	for _, want := range []string{"not what m1 left", "the newest " + dir + "/member.set-aside-TIME to " + dir + "/member", survivors[0].WALDir + "/set-aside-TIME"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not said: %v", want, err)
		}
	}
}

// Two commands are the same where they ask for the same, wherever they are started.
func TestSameCommand(t *testing.T) {
	fingerprint := func(args ...string) string {
		t.Helper()
		var o recoverOptions
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.addFlags(flags)
		require.NoError(t, flags.Parse(args))
		l := &localRecovery{o: &o}
		var err error
		l.survivors, err = parseSurvivors(o.local)
		require.NoError(t, err)
		text, err := l.fingerprint()
		require.NoError(t, err)
		return text
	}
	here, err := os.Getwd()
	require.NoError(t, err)
	one := fingerprint("--local", "m1=a:b", "--data-dir", "new/{name}")
	if same := fingerprint("--local", "m1="+here+"/a:"+here+"/b", "--data-dir", here+"/new/{name}", "--yes", "--start"); same != one {
		t.Error("the same from another folder is another one")
	}
	for _, more := range [][]string{{"--revision", "3"}, {"--source", "m1"}, {"--to-snapshot", "f"}, {"--min-lease-ttl", "9s"}, {"--wal-dir", "w"}, {"--declare-dead", "m2"}, {"--local", "m2=b"}} {
		if fingerprint(append([]string{"--local", "m1=a:b", "--data-dir", "new/{name}"}, more...)...) == one {
			t.Errorf("with %q it is the same", more)
		}
	}
}

func TestMemberNamedTwice(t *testing.T) {
	_, err := parseSurvivors([]string{"m1=a", "m1=b"})
	require.ErrorContains(t, err, "named twice")
}
