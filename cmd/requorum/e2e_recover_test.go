package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/requorum/requorum/store/storetest"
)

// lost is a cluster of three that lost its power while somebody wrote.
func lost(t *testing.T, version string) (*storetest.Cluster, []storetest.Ack) {
	t.Helper()
	c := storetest.Start(t, storetest.Options{Version: version, Members: 3})
	w := storetest.StartWriter(t, c.Client(t), writerPrefix)
	w.WaitFor(t, 60)
	c.KillAll()
	return c, w.Stop()
}

// survivors is the value of --local for some members.
func survivors(c *storetest.Cluster, members ...int) string {
	var all []string
	for _, i := range members {
		all = append(all, c.Member(i).Name+"="+c.Member(i).DataDir)
	}
	return strings.Join(all, ",")
}

func recovered(t *testing.T, e ended) recoveryReport {
	t.Helper()
	var r recoveryReport
	if err := json.Unmarshal([]byte(e.stdout), &r); err != nil {
		t.Fatalf("%v: %s", err, e)
	}
	return r
}

// expectRecovered boots what was built, and wants every acknowledged write in it.
func expectRecovered(t *testing.T, version string, r recoveryReport, acks []storetest.Ack) {
	t.Helper()
	n := startRestored(t, version, restoreReport{Restore: r.Restore})
	expectWrites(t, t.Context(), n.Client(t), acks)
	expectEqual(t, t.Context(), n)
}

// Promise 2 by the command line: all members are killed after the last
// acknowledgement. From any two it is proven, nothing is lost and the revision stays
// (promise 8); from one it is unproven, which has to be accepted by name. Promise 3:
// no survivor's file changes.
func TestPromise2RecoverLocal(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"3.5", "3.7"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c, acks := lost(t, version)
			u := newUser(t)
			before := filesOf(t, c)

			plan := recovered(t, u.must(t, exitOK, "recover", "--local", survivors(c, 0, 2), "--data-dir", dataDirs(u.path("new")), "--dry-run", "--output", "json"))
			if !plan.Proven || plan.Plan.Bump.Raise || len(plan.Members) != 3 {
				t.Errorf("from two of three: proven %v, raise %v, members %+v", plan.Proven, plan.Plan.Bump.Raise, plan.Members)
			}
			one := []string{"recover", "--local", survivors(c, 1), "--data-dir", dataDirs(u.path("one"))}
			e := u.must(t, exitUsage, append(one, "--yes")...)
			if !strings.Contains(e.stderr, "--declare-dead") {
				t.Errorf("two members that may come back: %s", e)
			}
			one = append(one, "--declare-dead", "m1,m3", "--yes")
			e = u.must(t, exitUsage, one...)
			id := plan.Plan.ClusterID.String()
			if !strings.Contains(e.stderr, "--accept-loss "+id) || !strings.Contains(e.stdout, "UNPROVEN") {
				t.Errorf("unproven, and nobody there: %s", e)
			}
			if _, err := os.Stat(u.path("one")); err == nil {
				t.Error("something was built that nobody agreed to")
			}
			r := recovered(t, u.must(t, exitUnproven, append(one, "--accept-loss", id, "--output", "json")...))
			if r.Proven || r.Restore.RevisionAfter < r.Restore.RevisionBefore+1_000_000_000 {
				t.Errorf("from one of three: proven %v, revision %d to %d", r.Proven, r.Restore.RevisionBefore, r.Restore.RevisionAfter)
			}

			r = recovered(t, u.must(t, exitOK, "recover", "--local", survivors(c, 0, 2), "--data-dir", dataDirs(u.path("new")), "--initial-cluster", storetest.InitialCluster(t, "m1", "m2", "m3"), "--yes", "--output", "json"))
			if r.Restore.RevisionAfter != r.Restore.RevisionBefore {
				t.Errorf("nothing was lost, and the revision went from %d to %d", r.Restore.RevisionBefore, r.Restore.RevisionAfter)
			}
			last := acks[len(acks)-1]
			past := recovered(t, u.must(t, exitUnproven, "recover", "--local", survivors(c, 0, 2), "--data-dir", dataDirs(u.path("past")), "--before", last.Key, "--accept-loss", id, "--output", "json"))
			if past.Restore.RevisionBefore != last.Revision-1 || past.Restore.RevisionAfter < last.Revision {
				t.Errorf("before the last write, of revision %d: revision %d, raised to %d", last.Revision, past.Restore.RevisionBefore, past.Restore.RevisionAfter)
			}
			for path, was := range filesOf(t, c) {
				if before[path] != was {
					t.Errorf("%s was changed", path)
				}
			}
			expectRecovered(t, version, r, acks)
		})
	}
}

// filesOf are the sizes and times of the members' files.
func filesOf(t *testing.T, c *storetest.Cluster) map[string]string {
	t.Helper()
	all := map[string]string{}
	for i := range c.Size() {
		err := filepath.WalkDir(c.Member(i).DataDir, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			info, err := d.Info()
			all[path] = info.ModTime().String() + info.Mode().String()
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// Promise 1: the command is killed while it builds over the survivors themselves,
// at several points, and run again: the same end, with every acknowledged write, and
// at no point a member folder without a log.
func TestPromise1RecoverKilled(t *testing.T) {
	t.Parallel()
	t.Run("3.6", func(t *testing.T) { t.Parallel(); recoverKilled(t, "3.6", false) })
	t.Run("3.5 with WAL directories", func(t *testing.T) { t.Parallel(); recoverKilled(t, "3.5", true) })
}

func recoverKilled(t *testing.T, version string, wal bool) {
	c, acks := lost(t, version)
	u := newUser(t)
	root := filepath.Dir(c.Member(0).DataDir)
	args := []string{"recover", "--data-dir", dataDirs(root), "--set-aside", "--initial-cluster", storetest.InitialCluster(t, "m1", "m2", "m3"), "--yes", "--output", "json"}
	logs := filepath.Join(root, "{name}", "member", "wal")
	if wal {
		logs = filepath.Join(u.dir, "wal", "{name}")
		args = append(args, "--wal-dir", logs)
	}
	logOf := func(i int) string { return strings.ReplaceAll(logs, "{name}", c.Member(i).Name) }
	for i := range c.Size() {
		m := c.Member(i)
		if m.DataDir != filepath.Join(root, m.Name) {
			t.Fatalf("the test wants members side by side, not %s", m.DataDir)
		}
		survivor := m.Name + "=" + m.DataDir
		if wal {
			if err := errors.Join(os.MkdirAll(filepath.Dir(logOf(i)), 0o700), os.Rename(filepath.Join(m.DataDir, "member", "wal"), logOf(i))); err != nil {
				t.Fatal(err)
			}
			survivor += ":" + logOf(i)
		}
		args = append(args, "--local", survivor)
	}
	record := filepath.Join(root, ".requorum-recover-NAME.json")
	points := []string{record, filepath.Join(root, "m1", "member.set-aside-*"), filepath.Join(root, "m3", "member.set-aside-*"), filepath.Join(root, "m3", "member", "requorum-restored.json")}
	if wal {
		points = slices.Insert(points, 1, filepath.Join(logOf(0), "set-aside-*"))
	}
	killed := 0
	var data []byte // of the record, as the last kill left it
	var r *recoveryReport
	for _, at := range points {
		p := u.start(t, args...)
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
			if now, _ := filepath.Glob(at); len(now) > 0 {
				break
			}
			time.Sleep(200 * time.Microsecond) // who spins has to wait for the others on a busy machine
		}
		if err := p.cmd.Process.Kill(); err != nil {
			t.Logf("%s: it had ended: %v", at, err)
		}
		e := p.wait(t)
		if e.code == exitOK { // it was faster than the test
			t.Logf("not killed in time at %s", at)
			done := recovered(t, e)
			r = &done
			break
		}
		if e.code != -1 {
			t.Fatal(e)
		}
		killed++
		for i := range c.Size() {
			if log, _ := filepath.Glob(filepath.Join(logOf(i), "*.wal")); len(log) == 0 {
				t.Errorf("killed at %s: member %s has no log: it would begin an empty cluster", at, c.Member(i).Name)
			}
		}
		now, err := os.ReadFile(record)
		if errors.Is(err, fs.ErrNotExist) && killed > 2 { // it had done all, and had not ended yet
			t.Logf("killed too late at %s", at)
			if err := os.WriteFile(record, data, 0o600); err != nil {
				t.Fatal(err)
			}
			break
		}
		if data = now; err != nil {
			t.Fatalf("killed at %s, and there is no record to go on from: %v", at, err)
		}
	}
	if killed == 0 {
		t.Fatal("it was never killed: the test shows nothing")
	}
	t.Logf("killed %d times", killed)
	if r == nil {
		done := completed(t, u, args, record, data)
		r = &done
	}
	if _, err := os.Stat(record); err == nil {
		t.Error("all is done, and the record is still there")
	}
	if wal { // the harness starts members with their log inside
		for i := range c.Size() {
			if err := os.Rename(logOf(i), filepath.Join(c.Member(i).DataDir, "member", "wal")); err != nil {
				t.Fatal(err)
			}
		}
	}
	expectRecovered(t, version, *r, acks)
}

// completed is what the command comes to that was killed after it had begun to build,
// with what its record was then.
func completed(t *testing.T, u *user, args []string, record string, data []byte) recoveryReport {
	t.Helper()
	if e := u.must(t, exitUsage, append(args, "--declare-dead", "m1")...); !strings.Contains(e.stderr, "was not completed") {
		t.Errorf("other options: %s", e)
	}
	r := recovered(t, u.must(t, exitOK, args...))
	// Killed after the last step, before the record was gone: what was built is found.
	if err := os.WriteFile(record, data, 0o600); err != nil {
		t.Fatal(err)
	}
	again := recovered(t, u.must(t, exitOK, args...))
	if !again.Restore.CompletedEarlier || again.Restore.Plan.ClusterID != r.Restore.Plan.ClusterID {
		t.Errorf("run again after it was done: %+v", again.Restore)
	}
	return r
}
