package restore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/store/storetest"
)

// asideRig is a member's directories with something of the user's in them.
func asideRig(t *testing.T, walDir bool) Aside {
	t.Helper()
	dir := t.TempDir()
	req := Aside{Member: "m1", Run: "run-00000001", DataDir: filepath.Join(dir, "data"), Time: time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)}
	write(t, filepath.Join(req.DataDir, "member", "snap", "db"), "the user's")
	log := filepath.Join(req.DataDir, "member", "wal")
	if walDir {
		req.WALDir = filepath.Join(dir, "wal")
		log = req.WALDir
	}
	write(t, filepath.Join(log, firstSegment), "the user's log")
	return req
}

func planAside(t *testing.T, req Aside) *Aside {
	t.Helper()
	a, err := PlanAside(req)
	require.NoError(t, err)
	return a
}

// fileSet is the content of all files below a folder, by their paths.
func fileSet(t *testing.T, dirs ...string) string {
	t.Helper()
	out := ""
	for _, dir := range dirs {
		if dir == "" {
			continue
		}
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			out += fmt.Sprintf("%s %q\n", path, data)
			return err
		})
		require.NoError(t, err)
	}
	return out
}

// TestPromise3AsideAndBack: what was set aside is the same folder under another
// name, nothing can start in its place, and undo gives the very same back. Both
// may be done twice.
func TestPromise3AsideAndBack(t *testing.T) {
	for _, walDir := range []bool{false, true} {
		req := asideRig(t, walDir)
		before := fileSet(t, req.DataDir, req.WALDir)
		a := planAside(t, req)
		if got := fileSet(t, req.DataDir, req.WALDir); got != before {
			t.Fatalf("planning changed\n%s", got)
		}
		for range 2 {
			require.NoError(t, a.Do(t.Context()))
		}
		if data, err := os.ReadFile(filepath.Join(a.Folder, "snap", "db")); err != nil || string(data) != "the user's" {
			t.Fatalf("%q %v", data, err)
		}
		if want := map[bool]int{false: 1, true: 2}[walDir]; len(a.Paths()) != want {
			t.Errorf("the data is in %v, want %d places", a.Paths(), want)
		}
		for _, wal := range []string{filepath.Join(req.DataDir, "member", "wal"), req.WALDir} {
			if wal == "" {
				continue
			}
			if b, err := readBlocker(wal); err != nil || b == nil || b.Plan != "set-aside-"+req.Run {
				t.Errorf("%s is not blocked: %v %v", wal, b, err)
			}
		}
		for range 2 {
			if aside, err := a.Undo(t.Context(), req.Time); err != nil || len(aside) > 0 {
				t.Fatal(aside, err)
			}
		}
		if got := fileSet(t, req.DataDir, req.WALDir); got != before {
			t.Errorf("after undo\n%swant\n%s", got, before)
		}
	}
}

// TestPromise3UndoKeepsTheNew: what was built in the place of the old data is set
// aside in turn.
func TestPromise3UndoKeepsTheNew(t *testing.T) {
	for _, walDir := range []bool{false, true} {
		for _, gone := range []string{"", "member", "."} { // nothing, the member folder, the data directory
			had := gone == ""
			dir := asideRig(t, walDir)
			if !had {
				require.NoError(t, os.RemoveAll(filepath.Join(dir.DataDir, gone)))
			}
			a := planAside(t, dir)
			require.NoError(t, a.Do(t.Context()))
			req := Request{Image: small(t), InitialCluster: "m1=http://127.0.0.1:1", DataDir: dir.DataDir, WALDir: dir.WALDir, SetAside: true}
			execute(t, req, ExecOptions{})
			aside, err := a.Undo(t.Context(), dir.Time)
			if want := map[bool]int{false: 1, true: 2}[walDir]; err != nil || len(aside) != want {
				t.Fatalf("had %t, WAL dir %t: %v %v", had, walDir, aside, err)
			}
			if _, r, err := memberStateOf(aside[0]); err != nil || r == nil {
				t.Errorf("%s is not what was built: %v", aside[0], err)
			}
			data, err := os.ReadFile(filepath.Join(dir.DataDir, "member", "snap", "db"))
			if had && string(data) != "the user's" || !had && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("had %t: %q %v", had, data, err)
			}
			if walDir {
				if data, err := os.ReadFile(filepath.Join(dir.WALDir, firstSegment)); err != nil || string(data) != "the user's log" {
					t.Errorf("the log: %.20q %v", data, err)
				}
				if b, err := readBlocker(dir.WALDir); err != nil || b != nil {
					t.Errorf("still blocked: %v %v", b, err)
				}
			}
		}
	}
}

// TestAsideInBetween (promise 1): ended between any two of its steps, a set-aside
// and an undo go on to the same end, and no etcd could have started in between.
func TestAsideInBetween(t *testing.T) {
	for name, step := range map[string]func(a *Aside) error{
		"nothing done":          func(*Aside) error { return nil },
		"the log blocked":       func(a *Aside) error { return writeBlocker(a.WALDir, a.blocker()) },
		"half of the log moved": func(a *Aside) error { return a.halfLog(a.WALDir, a.Log) },
		"the log moved":         func(a *Aside) error { return a.doLog() },
		"a half-built placeholder": func(a *Aside) error {
			write(t, filepath.Join(a.DataDir, stagingName, safedir.LockName), "")
			return errors.Join(a.doLog(), os.MkdirAll(filepath.Join(a.DataDir, stagingName, "blocked", "wal"), 0o700))
		},
		"the placeholder beside": func(a *Aside) error { return errors.Join(a.doLog(), a.placeBlocked(a.Folder)) },
		"all done":               func(a *Aside) error { return errors.Join(a.doLog(), a.doMember()) },
		"swapped back":           func(a *Aside) error { return errors.Join(a.doLog(), a.doMember(), swapDirs(a.Folder, a.live())) },
		"half of the log back": func(a *Aside) error {
			var kept []string
			return errors.Join(a.doLog(), a.doMember(), a.undoMember(a.Time, &kept), a.halfLog(a.Log, a.WALDir))
		},
	} {
		for _, undo := range []bool{false, true} {
			req := asideRig(t, true)
			write(t, filepath.Join(req.WALDir, "0000000000000001-0000000000000009.wal"), "more of it")
			before := fileSet(t, req.DataDir, req.WALDir)
			a := planAside(t, req)
			require.NoError(t, step(a), name)
			if err := CheckStartable(req.DataDir, req.WALDir); (err == nil) != (name == "nothing done") {
				t.Errorf("%s: could be started: %v", name, err)
			}
			if !undo && (name == "swapped back" || name == "half of the log back") {
				continue // an undo is finished, not turned round
			}
			if !undo {
				require.NoError(t, a.Do(t.Context()), "%s: do", name)
				if at, err := inodeOf(a.Folder); err != nil || at != a.Inode {
					t.Errorf("%s: the data is not where it was to go: %v", name, err)
				}
			}
			if kept, err := a.Undo(t.Context(), req.Time.Add(time.Hour)); err != nil || len(kept) > 0 {
				t.Fatalf("%s: undo: %v %v", name, kept, err)
			}
			// What a killed process had under its hands, and nobody else.
			require.NoError(t, os.RemoveAll(filepath.Join(req.DataDir, stagingName)))
			if got := fileSet(t, req.DataDir, req.WALDir); got != before {
				t.Errorf("%s: after undo\n%swant\n%s", name, got, before)
			}
		}
	}
}

// halfLog moves one of the files, and makes the folder that it goes to.
func (a *Aside) halfLog(from, to string) error {
	if err := errors.Join(writeBlocker(a.WALDir, a.blocker()), os.MkdirAll(to, 0o700)); err != nil {
		return err
	}
	for name := range a.LogFiles {
		return move(filepath.Join(from, name), filepath.Join(to, name))
	}
	return nil
}

// TestAsideOfARunningMember: refused, at each step, and nothing is moved; the
// real etcd cannot start from what is left in its place (promise 1).
func TestAsideOfARunningMember(t *testing.T) {
	for _, version := range []string{"3.5", "3.7"} {
		t.Run(version, func(t *testing.T) {
			c := storetest.Start(t, storetest.Options{Version: version})
			req := Aside{Member: "m1", Run: "run-00000001", DataDir: c.Member(0).DataDir, Time: time.Now()}
			_, err := PlanAside(req)
			require.ErrorIs(t, err, ErrInUse, "plan")
			c.Kill(0)
			a := planAside(t, req)
			c.Restart(t, 0)
			c.WaitReady(t)
			require.ErrorIs(t, a.Do(t.Context()), ErrInUse, "do")
			c.Kill(0)
			require.NoError(t, a.Do(t.Context()))
			startRefused(t, version, "--data-dir="+req.DataDir, "--listen-client-urls=http://127.0.0.1:0", "--advertise-client-urls=http://127.0.0.1:1", "--listen-peer-urls=http://127.0.0.1:0")
			if _, r, err := memberStateOf(filepath.Join(req.DataDir, "member")); err != nil || r == nil || r.Plan.ID != a.planID() {
				t.Errorf("what was left is no longer ours: %v %v", r, err)
			}
			_, err = a.Undo(t.Context(), time.Now())
			require.NoError(t, err)
			c.Restart(t, 0)
			c.WaitReady(t)
		})
	}
}

// TestAsideOfAnotherFolder: what came to the place after it was looked at is not
// moved.
func TestAsideOfAnotherFolder(t *testing.T) {
	req := asideRig(t, false)
	a := planAside(t, req)
	live := filepath.Join(req.DataDir, "member")
	require.NoError(t, errors.Join(os.Rename(live, live+".x"), os.MkdirAll(filepath.Join(live, "wal"), 0o700)))
	require.Error(t, a.Do(t.Context()), "done")
	_, err := a.Undo(t.Context(), req.Time)
	require.Error(t, err, "undone")
}
