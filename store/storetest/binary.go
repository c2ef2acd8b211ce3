package storetest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Versions are those that requorum archives, replays and recovers, oldest first.
func Versions() []string { return []string{"3.5", "3.6", "3.7"} }

// Unavailable skips the test because something it needs is missing, or fails it
// where everything has to run.
func Unavailable(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("REQUORUM_CI") == "1" {
		t.Fatalf("cannot run, and REQUORUM_CI=1 wants it to: %s", reason)
	}
	t.Skipf("SKIPPED: %s", reason)
}

// NeedRoot is for what only root can do.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Unavailable(t, "it takes root")
	}
}

// Program is the path of one that the system has.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Unavailable(t, name+" is not installed")
	}
	return path
}

// BuildAge builds age's own command line into dir, of the version that we use, and gives its
// path. It is built as a module of its own: it needs modules that ours has no use for.
func BuildAge(t testing.TB, dir string) string {
	t.Helper()
	version, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "filippo.io/age").Output()
	if err != nil {
		Unavailable(t, "go list: "+err.Error())
	}
	cmd := exec.Command("go", "install", "filippo.io/age/cmd/age@"+strings.TrimSpace(string(version)))
	cmd.Env = append(os.Environ(), "GOBIN="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		Unavailable(t, "age cannot be built: "+string(out))
	}
	return filepath.Join(dir, "age")
}

// Binary is the path of etcd, etcdctl or etcdutl of a version, which
// is built when it is missing.
func Binary(t testing.TB, version, name string) string {
	t.Helper()
	bin := filepath.Join(Root(t), ".cache", "bin", "etcd-"+version)
	path := filepath.Join(bin, name)
	if !slices.Contains(Versions(), version) {
		t.Fatalf("etcd %s: want one of %v", version, Versions())
	}
	if err := build(Root(t), version, path); err != nil {
		Unavailable(t, err.Error())
	}
	_, err := os.Stat(path)
	require.NoError(t, err, "etcd %s has no %s", version, name)
	return path
}

// started is the folder that the tests of a package begin in: the package's own.
var started, errStarted = os.Getwd()

// Root is the top of the repository.
func Root(t testing.TB) string {
	if errStarted != nil {
		t.Fatal(errStarted)
	}
	for dir := started; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, ".tools", "build")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatalf("no .tools/build in or above %s", started)
		}
	}
}

// build runs .tools/build unless its own stamp says that there is nothing to
// do: it holds a lock while it builds anything, and tests would wait for it.
func build(root, version, path string) error {
	tool := filepath.Join(root, ".tools", "etcd-"+version)
	sum := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(tool, name))
		if err != nil {
			return fmt.Errorf("etcd %s: %w", version, err)
		}
		sum.Write(data)
	}
	want := hex.EncodeToString(sum.Sum(nil)) + "-" + runtime.Version()
	stamp, err := os.ReadFile(path + ".stamp")
	if err == nil && strings.TrimSpace(string(stamp)) == want {
		return nil
	}
	cmd := exec.Command(filepath.Join(root, ".tools", "build"), "etcd-"+version)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building etcd %s: %w\n%s", version, err, out)
	}
	return nil
}

// Etcdctl runs a version's etcdctl and gives its output; a failure ends the
// test.
func Etcdctl(t testing.TB, version string, args ...string) string {
	t.Helper()
	return output(t, Binary(t, version, "etcdctl"), args...)
}

// Etcdutl runs a version's etcdutl, as Etcdctl does.
func Etcdutl(t testing.TB, version string, args ...string) string {
	t.Helper()
	return output(t, Binary(t, version, "etcdutl"), args...)
}

func output(t testing.TB, path string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(os.Environ(), "ETCDCTL_API=3")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s%s", filepath.Base(path), strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String()
}

// Soak reports whether the long forms of tests are asked for: REQUORUM_SOAK=1, as
// `make soak` sets it.
func Soak() bool { return os.Getenv("REQUORUM_SOAK") == "1" }

// Some are all of the versions in a soak, the last of those given with -short,
// and otherwise those given.
func Some(versions ...string) []string {
	switch {
	case Soak():
		return Versions()
	case testing.Short():
		return versions[len(versions)-1:]
	}
	return versions
}

// Amount is how much a test does: with -short, without it, and in a soak.
func Amount(short, long, soak int) int {
	switch {
	case Soak():
		return soak
	case testing.Short():
		return short
	}
	return long
}

// WriteProgram writes a program that the test, or a process which it starts, is to run. A
// process that is forked meanwhile would have it open for writing until it is another
// program, and the kernel runs no such file ("text file busy", golang.org/issue/22315).
func WriteProgram(path string, data []byte, mode os.FileMode) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, data, mode)
}
