package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore"
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

// expectRecovered boots what was built, and wants every acknowledged write in it.
func expectRecovered(t *testing.T, version string, r recoveryReport, acks []storetest.Ack) {
	t.Helper()
	n := startRestored(t, version, restoreReport{Restore: r.Restore})
	expectWrites(t, t.Context(), n.Client(t), acks)
	expectEqual(t, t.Context(), n)
}

// TestRecoverLocal_OldCopy_Named: of a copy that was made while its member ran no file shows
// that it is one. The condition stands beside PROVEN, and a log that was last written long
// before the others is named.
func TestRecoverLocal_OldCopy_Named(t *testing.T) {
	t.Parallel()
	c := storetest.Start(t, storetest.Options{Version: "3.7", Members: 3})
	w := storetest.StartWriter(t, c.Client(t), writerPrefix)
	w.WaitFor(t, 60)
	u := newUser(t)
	for _, part := range []string{"snap", "wal"} { // the log reaches further than the database
		require.NoError(t, os.CopyFS(u.Path("copy", "member", part), os.DirFS(filepath.Join(c.Member(0).DataDir, "member", part))))
	}
	files, err := filepath.Glob(u.Path("copy", "member", "wal", "*"))
	require.NoError(t, err)
	for _, path := range files {
		require.NoError(t, os.Chtimes(path, time.Time{}, time.Now().Add(-3*time.Hour)))
	}
	w.WaitFor(t, 120)
	c.KillAll()
	w.Stop()
	recovered := func(m1 string) string {
		local := "m1=" + m1 + "," + survivors(c, 1)
		return u.Must(t, exitOK, "recover", "--local", local, "--declare-dead", "m3", "--data-dir", dataDirs(u.Path("new")), "--dry-run").Stdout
	}
	const named = "Warning: the log of m1 was last written at "
	if out := recovered(u.Path("copy")); !strings.Contains(out, "\nPROVEN: ") || !strings.Contains(out, "Condition: each directory is the member's own, or was copied after all members had stopped") || !strings.Contains(out, named) {
		t.Errorf("the condition or the old copy is not named: %s", out)
	}
	if out := recovered(c.Member(0).DataDir); strings.Contains(out, named) {
		t.Errorf("named without a reason: %s", out)
	}
}

// Promise 2 by the command line: all members are killed after the last
// acknowledgement. From any two it is proven, nothing is lost and the revision stays
// (promise 8); from one it is unproven, which has to be accepted by name. Promise 3:
// no survivor's file changes.
func TestPromise2RecoverLocal(t *testing.T) {
	t.Parallel()
	for _, version := range storetest.Some("3.5", "3.7") {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c, acks := lost(t, version)
			u := newUser(t)
			before := storetest.Fingerprint(t, dataDirsOf(c)...)

			plan := decode[recoveryReport](t, u.Must(t, exitOK, "recover", "--local", survivors(c, 0, 2), "--data-dir", dataDirs(u.Path("new")), "--dry-run", "--output", "json"))
			if !plan.Plan.Proven || plan.Plan.Bump.Raise || len(plan.Members) != 3 {
				t.Errorf("from two of three: proven %v, raise %v, members %+v", plan.Plan.Proven, plan.Plan.Bump.Raise, plan.Members)
			}
			one := []string{"recover", "--local", survivors(c, 1), "--data-dir", dataDirs(u.Path("one"))}
			e := u.Must(t, exitUsage, append(one, "--yes")...)
			if !strings.Contains(e.Stderr, "--declare-dead") {
				t.Errorf("two members that may come back: %s", e)
			}
			one = append(one, "--declare-dead", "m1,m3", "--yes")
			e = u.Must(t, exitUsage, one...)
			id := plan.Plan.ClusterID.String()
			if !strings.Contains(e.Stderr, "--accept-loss "+id) || !strings.Contains(e.Stdout, "UNPROVEN") {
				t.Errorf("unproven, and nobody there: %s", e)
			}
			_, err := os.Stat(u.Path("one"))
			require.Error(t, err, "something was built that nobody agreed to")
			r := decode[recoveryReport](t, u.Must(t, exitUnproven, append(one, "--accept-loss", id, "--output", "json")...))
			if r.Proven || r.Restore.RevisionAfter < r.Restore.RevisionBefore+1_000_000_000 {
				t.Errorf("from one of three: proven %v, revision %d to %d", r.Proven, r.Restore.RevisionBefore, r.Restore.RevisionAfter)
			}
			again := decode[recoveryReport](t, u.Must(t, exitUnproven, append(one, "--accept-loss", id, "--output", "json")...))
			// Whoever has the data directories says there that all was built elsewhere.
			forged := u.Path("forged")
			require.NoError(t, os.CopyFS(forged, os.DirFS(u.Path("one"))))
			rename := func(from, to string) {
				for _, name := range []string{"m1", "m2", "m3"} {
					path := filepath.Join(u.Path("one"), name, "member", "requorum-restored.json")
					record, err := os.ReadFile(path)
					require.NoError(t, err)
					require.Contains(t, string(record), from+"/")
					require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(record), from+"/", to+"/")), 0o600))
				}
			}
			rename(u.Path("one"), forged)
			if e := u.Must(t, exitFailed, append(one, "--accept-loss", id)...); strings.Contains(e.String(), forged) {
				t.Errorf("records that name other directories: %s", e)
			}
			rename(forged, u.Path("one"))
			require.NoError(t, os.Chmod(u.Path("one"), 0o777))
			if e := u.Must(t, exitFailed, append(one, "--accept-loss", id)...); !strings.Contains(e.Stderr, "could have been put there by others") {
				t.Errorf("in a folder that others may write to: %s", e)
			}
			if again.Proven || !again.Restore.CompletedEarlier || again.Restore.Plan.ID != r.Restore.Plan.ID {
				t.Errorf("the same from one of three, done already: proven %v, %+v", again.Proven, again.Restore)
			}

			r = decode[recoveryReport](t, u.Must(t, exitOK, "recover", "--local", survivors(c, 0, 2), "--data-dir", dataDirs(u.Path("new")), "--initial-cluster", storetest.InitialCluster(t, "m1", "m2", "m3"), "--yes", "--output", "json"))
			if r.Restore.RevisionAfter != r.Restore.RevisionBefore {
				t.Errorf("nothing was lost, and the revision went from %d to %d", r.Restore.RevisionBefore, r.Restore.RevisionAfter)
			}
			last := acks[len(acks)-1]
			past := decode[recoveryReport](t, u.Must(t, exitUnproven, "recover", "--local", survivors(c, 0, 2), "--data-dir", dataDirs(u.Path("past")), "--before", last.Key, "--accept-loss", id, "--output", "json"))
			if past.Restore.RevisionBefore != last.Revision-1 || past.Restore.RevisionAfter < last.Revision {
				t.Errorf("before the last write, of revision %d: revision %d, raised to %d", last.Revision, past.Restore.RevisionBefore, past.Restore.RevisionAfter)
			}
			require.Equal(t, before, storetest.Fingerprint(t, dataDirsOf(c)...))
			expectRecovered(t, version, r, acks)
		})
	}
}

func dataDirsOf(c *storetest.Cluster) (all []string) {
	for i := range c.Size() {
		all = append(all, c.Member(i).DataDir)
	}
	return all
}

// Promise 1 and 3: the command is killed at many points, and run again: each time the
// whole cluster is there, at no point a member that would start while another is
// missing, and no file of a survivor has changed. Done again it finds what it built.
func TestPromise1RecoverKilled(t *testing.T) {
	t.Parallel()
	t.Run("3.6", func(t *testing.T) { t.Parallel(); recoverKilled(t, "3.6", false) })
	t.Run("3.5 with WAL directories", func(t *testing.T) { t.Parallel(); recoverKilled(t, "3.5", true) })
}

// killPoints are what the command is killed at once it is there, below the folder of the
// new members.
var killPoints = []string{
	".requorum-scratch-*", ".requorum-scratch-*/db", ".m1.requorum", ".m1.requorum/.requorum/member/snap/db", ".m3.requorum/.requorum/member/wal/*.wal",
	"m1/member/requorum-unfinished.json", "m2/member/requorum-unfinished.json", "m3/member", "m1/member/requorum-restored.json", "m3/member/requorum-restored.json",
}

func recoverKilled(t *testing.T, version string, wal bool) {
	c, acks := lost(t, version)
	u := newUser(t)
	temporary := u.Path("tmp")
	require.NoError(t, os.Mkdir(temporary, 0o700))
	u.Env = append(u.Env, "TMPDIR="+temporary)
	args := []string{"recover", "--initial-cluster", storetest.InitialCluster(t, "m1", "m2", "m3"), "--yes", "--output", "json"}
	old := dataDirsOf(c)
	for i, dir := range old {
		survivor := c.Member(i).Name + "=" + dir
		if wal {
			log := u.Path("wal", c.Member(i).Name)
			require.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(log), 0o700), os.Rename(filepath.Join(dir, "member", "wal"), log)))
			survivor += ":" + log
		}
		args = append(args, "--local", survivor)
	}
	if wal {
		old = append(old, u.Path("wal"))
	}
	before := storetest.Fingerprint(t, old...)
	points := killPoints
	if wal {
		points = append([]string{"log/m1", "log/m3"}, points...)
	}
	var last recoveryReport
	killed := 0
	for i, point := range points {
		if testing.Short() && i%2 == 1 {
			continue
		}
		dir := u.Path(fmt.Sprint("new", i))
		same := append(slices.Clone(args), "--data-dir", dataDirs(dir))
		if wal {
			same = append(same, "--wal-dir", dataDirs(filepath.Join(dir, "log")))
		}
		there := func() bool {
			now, _ := filepath.Glob(filepath.Join(dir, point)) // the pattern is right
			return len(now) > 0
		}
		if u.Start(t, same...).KillOnce(t, there, 0) {
			killed++
		} else {
			t.Logf("it had ended before it was killed at %s", point)
		}
		expectAllOrNone(t, dir, wal, "killed at "+point)
		// Killed later than meant, while it removed its folders beside members that may run
		// by then: those folders stay.
		_, late, err := restore.Restored(filepath.Join(dir, "m1"))
		require.NoError(t, err)
		last = decode[recoveryReport](t, u.Must(t, exitOK, same...))
		expectAllOrNone(t, dir, wal, "killed at "+point+", and run again")
		for _, m := range last.Restore.Members {
			require.NoError(t, restore.CheckStartable(m.DataDir, m.WALDir), "killed at %s, and run again", point)
		}
		again := decode[recoveryReport](t, u.Must(t, exitOK, same...))
		if !again.Proven || !again.Restore.CompletedEarlier || len(again.Restore.Members) != 3 || again.Restore.Plan.ID != last.Restore.Plan.ID {
			t.Errorf("killed at %s, done, and run again: %+v", point, again.Restore)
		}
		for _, pattern := range []string{".requorum*", ".*.requorum", "*/.requorum*", "log/.*.requorum", "log/*/.requorum*"} {
			if left, _ := filepath.Glob(filepath.Join(dir, pattern)); len(left) > 0 && !late {
				t.Errorf("killed at %s, and all is done: it leaves %q", point, left)
			}
		}
	}
	t.Logf("killed %d times of %d", killed, len(points))
	if killed < 2 {
		t.Error("it was hardly ever killed: the test shows little")
	}
	if left := storetest.Fingerprint(t, temporary); len(left) != 1 {
		t.Errorf("it leaves in the folder for temporary files: %v", left)
	}
	require.Equal(t, before, storetest.Fingerprint(t, old...))
	if wal { // the harness starts members with their log inside
		for _, m := range last.Restore.Members {
			require.NoError(t, os.Rename(m.WALDir, filepath.Join(m.DataDir, "member", "wal")))
		}
	}
	expectRecovered(t, version, last, acks)
}

// expectAllOrNone wants all members in their places where any would start.
func expectAllOrNone(t *testing.T, dir string, wal bool, when string) {
	t.Helper()
	starts, there := 0, 0
	for _, name := range []string{"m1", "m2", "m3"} {
		data, log := filepath.Join(dir, name), ""
		if wal {
			log = filepath.Join(dir, "log", name)
		}
		if _, err := os.Stat(filepath.Join(data, "member", "snap", "db")); err == nil {
			there++
		}
		if restore.CheckStartable(data, log) == nil {
			starts++
		}
	}
	if starts > 0 && there < 3 {
		t.Errorf("%s: %d members would start, and %d are there", when, starts, there)
	}
}
