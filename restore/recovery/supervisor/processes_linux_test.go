package supervisor

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/store/storetest"
)

// TestRealEtcd: a running etcd is found by the files that it writes, under any
// name of the directory; a killed one is not.
func TestRealEtcd(t *testing.T) {
	c := storetest.Start(t, storetest.Options{Version: "3.6"})
	dir := c.Member(0).DataDir
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	for _, path := range []string{dir, link} {
		table, err := ProcessesUsing(path, "")
		require.NoError(t, err)
		if len(table.Using) != 1 || !strings.HasPrefix(table.Using[0].Name, "etcd") || !strings.Contains(table.Using[0].Why, "writes to") {
			t.Errorf("%s: %+v", path, table)
		}
	}
	c.Kill(0)
	if table, err := ProcessesUsing(dir, ""); err != nil || len(table.Using) > 0 || table.Seen == 0 {
		t.Errorf("after the kill: %+v %v", table, err)
	}
}

// TestWhoCounts: see promises 1 and 2.
func TestWhoCounts(t *testing.T) {
	dir := t.TempDir()
	wal := filepath.Join(dir, "member", "wal")
	segment := filepath.Join(wal, "0.wal")
	require.NoError(t, errors.Join(os.MkdirAll(wal, 0o700), os.WriteFile(segment, nil, 0o600)))
	sleep := func(env string, args ...string) *exec.Cmd {
		cmd := exec.Command("/bin/sh")
		cmd.Args = args
		cmd.Env = append(os.Environ(), env)
		return cmd
	}
	script := []string{"-c", "echo; read x"}
	for _, c := range []struct {
		name string
		cmd  *exec.Cmd
		want bool
	}{
		{"a reader", sleep("", "sh", "-c", "exec 3<"+segment+"; echo; read x"), false},
		{"a writer", sleep("", "sh", "-c", "exec 3<>"+segment+"; echo; read x"), true},
		{"one that starts", sleep("", append(append([]string{"etcd"}, script...), "sh", "--data-dir="+dir)...), true},
		{"with two words", sleep("", append(append([]string{"etcd"}, script...), "sh", "-data-dir", dir+"/")...), true},
		{"our archiver", sleep("", append(append([]string{"requorum"}, script...), "sh", "--data-dir", dir)...), false},
		{"another directory", sleep("", append(append([]string{"etcd"}, script...), "sh", "--data-dir="+filepath.Dir(dir))...), false},
		{"a shell with the environment", sleep("ETCD_DATA_DIR="+dir, append([]string{"sh"}, script...)...), false},
	} {
		in, err := c.cmd.StdinPipe()
		require.NoError(t, err)
		out, err := c.cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, c.cmd.Start())
		_, err = out.Read(make([]byte, 1))
		require.NoError(t, err)
		table, err := ProcessesUsing(dir, "")
		if err != nil || (len(table.Using) == 1) != c.want {
			t.Errorf("%s: %+v %v", c.name, table, err)
		}
		if c.want && len(table.Using) == 1 && table.Using[0].PID != c.cmd.Process.Pid {
			t.Errorf("%s: %v", c.name, table.Using)
		}
		in.Close()
		_ = c.cmd.Wait()
		if err := checkRunning(c.cmd.Process.Pid); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: it has ended: %v", c.name, err)
		}
	}
}

// TestOtherUsersArguments: a process of another user whose arguments name the data
// directory proves nothing, one of root's or of the owner's does.
func TestOtherUsersArguments(t *testing.T) {
	storetest.NeedRoot(t)
	const owner, stranger = 65533, 65534
	dir := t.TempDir()
	require.NoError(t, os.Chown(dir, owner, owner))
	for uid, want := range map[uint32]bool{0: true, owner: true, stranger: false} {
		cmd := exec.Command("/bin/sh", "-c", "echo; read x", "sh", "--data-dir="+dir)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		_, err = out.Read(make([]byte, 1))
		require.NoError(t, err)
		if table, err := ProcessesUsing(dir, ""); err != nil || (len(table.Using) == 1) != want {
			t.Errorf("user %d: %+v %v", uid, table, err)
		}
		in.Close()
		_ = cmd.Wait()
	}
}

// TestLinksToOthersFiles: a link to another user's file, symbolic or not, which etcd's user
// can make, does not make the process that writes there the member's; one to a file of its
// own does. One to another user's folder proves nothing.
func TestLinksToOthersFiles(t *testing.T) {
	storetest.NeedRoot(t)
	const owner, stranger = 65533, 65534
	for _, c := range []struct {
		uid  int
		link func(theirs, dir string) error
		want int // -1: an error
	}{
		{owner, symbolic("snap/db"), 1}, {stranger, symbolic("snap/db"), 0}, {0, symbolic("snap/db"), 0},
		{owner, hard, 1}, {stranger, hard, 0}, {0, hard, 0},
		{0, symbolic("snap"), -1}, {stranger, symbolic(""), -1},
	} {
		dir, theirs := t.TempDir(), t.TempDir()
		path := filepath.Join(theirs, "snap", "db")
		require.NoError(t, os.Mkdir(filepath.Dir(path), 0o700))
		f, err := os.Create(path)
		if err := errors.Join(err, os.Chown(path, c.uid, c.uid), os.MkdirAll(filepath.Join(dir, "member", "snap"), 0o700), c.link(theirs, dir),
			os.Chown(dir, owner, owner), os.Lchown(filepath.Join(dir, "member"), owner, owner)); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/bin/sh", "-c", "echo; read x")
		cmd.ExtraFiles = []*os.File{f}
		in, err := cmd.StdinPipe()
		out, errOut := cmd.StdoutPipe()
		require.NoError(t, errors.Join(err, errOut, cmd.Start(), f.Close()))
		_, err = out.Read(make([]byte, 1))
		require.NoError(t, err)
		switch table, err := ProcessesUsing(dir, ""); {
		case c.want < 0 && !errors.Is(err, safedir.ErrLink):
			t.Errorf("a folder of user %d: %+v %v", c.uid, table, err)
		case c.want >= 0 && (err != nil || len(table.Using) != c.want):
			t.Errorf("a file of user %d: %+v %v", c.uid, table, err)
		}
		in.Close()
		_ = cmd.Wait()
	}
}

// symbolic puts a link to what another folder has in the place of a name in member.
func symbolic(name string) func(theirs, dir string) error {
	return func(theirs, dir string) error {
		path := filepath.Join(dir, "member", name)
		return errors.Join(os.RemoveAll(path), os.Symlink(filepath.Join(theirs, name), path))
	}
}

func hard(theirs, dir string) error {
	return os.Link(filepath.Join(theirs, "snap", "db"), filepath.Join(dir, "member", "snap", "db"))
}

// sleeper runs a program of a name until the test ends.
func sleeper(t *testing.T, path, argv0 string) {
	t.Helper()
	cmd := exec.Command(path, "60")
	if argv0 != "" {
		cmd.Args[0] = argv0
	}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
}

// copied is a copy of sleep under a name.
func copied(t *testing.T, name string) string {
	t.Helper()
	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)
	sleep, err = filepath.EvalSymlinks(sleep)
	require.NoError(t, err)
	data, err := os.ReadFile(sleep)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, storetest.WriteProgram(path, data, 0o700))
	return path
}

// TestNamed: a program is found by its own name, by its first argument,
// and by a name that the kernel cut off, which another program does not have because
// of its first 15 letters.
func TestNamed(t *testing.T) {
	const long = "kube-controller-requorum-test"
	sleeper(t, copied(t, "requorum-t1"), "other")
	sleeper(t, copied(t, "requorum-t2"), "/usr/bin/requorum-t3")
	sleeper(t, copied(t, long), "hidden")
	for program, want := range map[string]int{
		"requorum-t1": 1, "requorum-t2": 1, "requorum-t3": 1, long: 1,
		"kube-controller-requorum-other": 0, "requorum-t": 0, "kube-controller": 1,
	} {
		table, err := ProcessesNamed(program)
		require.NoError(t, err)
		if len(table.Using) != want || table.Seen < 3 {
			t.Errorf("%s: %+v, want %d", program, table, want)
		}
	}
}

// TestNamedInATableThatHides: where proc is mounted with hidepid, who has
// no right to trace others hears of it, and proves nothing by it; root does not. Takes root.
func TestNamedInATableThatHides(t *testing.T) {
	storetest.NeedRoot(t)
	exe, err := os.Executable()
	require.NoError(t, err)
	data, err := os.ReadFile(exe)
	require.NoError(t, err)
	dir, err := os.MkdirTemp("/tmp", "requorum-named-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	program := filepath.Join(dir, "named")
	require.NoError(t, storetest.WriteProgram(program, data, 0o755))
	require.NoError(t, os.Chmod(dir, 0o755))
	sleeper(t, copied(t, "requorum-t4"), "")
	drop := "setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all --bounding-set=-all "
	for _, c := range []struct {
		option, as        string
		hides, incomplete bool
		found             int
	}{
		{"0", "", false, false, 1},
		{"0", drop, false, false, 1},
		{"2", "", false, false, 1},
		{"2", drop, true, true, 0},
		{"1", drop, true, true, 0},
	} {
		cmd := exec.Command("unshare", "--mount", "sh", "-c", "mount -t proc -o hidepid="+c.option+" proc /proc && exec "+c.as+program+" named requorum-t4")
		out, err := cmd.Output()
		if err != nil {
			storetest.Unavailable(t, "unshare, mount or setpriv: "+err.Error())
		}
		var table named
		require.NoError(t, json.Unmarshal(out, &table), string(out))
		if table.Runs != (c.found > 0) || table.Unproven != c.hides {
			t.Errorf("hidepid=%s, as %q: the evidence: %+v", c.option, c.as, table)
		}
		if hides := table.Hidden > 0 || table.Incomplete != ""; hides != c.hides || (table.Incomplete != "") != c.incomplete || len(table.Using) != c.found {
			t.Errorf("hidepid=%s, as %q: %+v", c.option, c.as, table)
		}
		if c.incomplete && !strings.Contains(table.Incomplete, "hidepid") {
			t.Errorf("%q", table.Incomplete)
		}
	}
}
