package processes

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/requorum/requorum/store/storetest"
)

// TestRealEtcd: a running etcd is found by the files that it writes, under any
// name of the directory; a killed one is not.
func TestRealEtcd(t *testing.T) {
	c := storetest.Start(t, storetest.Options{Version: "3.6"})
	dir := c.Member(0).DataDir
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, link} {
		table, err := Read(path, "")
		if err != nil {
			t.Fatal(err)
		}
		if len(table.Using) != 1 || !strings.HasPrefix(table.Using[0].Name, "etcd") || !strings.Contains(table.Using[0].Why, "writes to") {
			t.Errorf("%s: %+v", path, table)
		}
	}
	c.Kill(0)
	if table, err := Read(dir, ""); err != nil || len(table.Using) > 0 || table.Seen == 0 {
		t.Errorf("after the kill: %+v %v", table, err)
	}
}

// TestWhoCounts: see promises 1 and 2.
func TestWhoCounts(t *testing.T) {
	dir := t.TempDir()
	wal := filepath.Join(dir, "member", "wal")
	segment := filepath.Join(wal, "0.wal")
	if err := errors.Join(os.MkdirAll(wal, 0o700), os.WriteFile(segment, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		table, err := Read(dir, "")
		if err != nil || (len(table.Using) == 1) != c.want {
			t.Errorf("%s: %+v %v", c.name, table, err)
		}
		if c.want && len(table.Using) == 1 && table.Using[0].PID != c.cmd.Process.Pid {
			t.Errorf("%s: %v", c.name, table.Using)
		}
		in.Close()
		_ = c.cmd.Wait()
		if _, err := Started(c.cmd.Process.Pid); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: it has ended: %v", c.name, err)
		}
	}
}
