package processes

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain: as `PROGRAM named NAME` this program prints the table of a name.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "named" {
		table, err := Named(os.Args[2])
		if err != nil {
			_, _ = os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		_ = json.NewEncoder(os.Stdout).Encode(table) // whoever asked sees what is missing
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// sleeper runs a program of a name until the test ends.
func sleeper(t *testing.T, path, argv0 string) {
	t.Helper()
	cmd := exec.Command(path, "60")
	if argv0 != "" {
		cmd.Args[0] = argv0
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
}

// copied is a copy of sleep under a name.
func copied(t *testing.T, name string) string {
	t.Helper()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	if sleep, err = filepath.EvalSymlinks(sleep); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestNamed (promise 4): a program is found by its own name, by its first argument,
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
		table, err := Named(program)
		if err != nil {
			t.Fatal(err)
		}
		if len(table.Using) != want || table.Seen < 3 {
			t.Errorf("%s: %+v, want %d", program, table, want)
		}
	}
}

// TestNamedInATableThatHides (promise 4): where proc is mounted with hidepid, who has
// no right to trace others is told so, and root is not. Takes root.
func TestNamedInATableThatHides(t *testing.T) {
	unable := func(why string) {
		if os.Getenv("REQUORUM_CI") == "1" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	if os.Getuid() != 0 {
		unable("to mount a process table takes root")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "requorum-named-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program := filepath.Join(dir, "named")
	if err := os.WriteFile(program, data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
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
			unable("unshare, mount or setpriv: " + err.Error())
		}
		var table Table
		if err := json.Unmarshal(out, &table); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		if hides := table.Hidden > 0 || table.Incomplete != ""; hides != c.hides || (table.Incomplete != "") != c.incomplete || len(table.Using) != c.found {
			t.Errorf("hidepid=%s, as %q: %+v", c.option, c.as, table)
		}
		if c.incomplete && !strings.Contains(table.Incomplete, "hidepid") {
			t.Errorf("%q", table.Incomplete)
		}
	}
}
