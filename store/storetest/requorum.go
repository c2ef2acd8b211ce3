package storetest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// built is the requorum of the package under test: another package's tests may build anew.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// M runs a package's tests, and removes the binary after them: for TestMain. Commands that
// the tests run keep no state outside of the system's temporary folder.
type M struct{ *testing.M }

// Run is that of testing.M.
func (m M) Run() int {
	defer func() { _ = os.RemoveAll(built.dir) }() // in the system's temporary folder
	state, err := os.MkdirTemp("", "requorum-state-")
	if err == nil {
		defer func() { _ = os.RemoveAll(state) }()
		err = os.Setenv("XDG_STATE_HOME", state)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.M.Run()
}

// Requorum is the path of the real binary, static and for everybody to run. A package
// that uses it runs its tests by M.
func Requorum(t testing.TB) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "requorum-binary-"); built.err == nil {
			built.err = buildRequorum(filepath.Join(Root(t), ".cache", "test"), built.dir)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "requorum")
}

// buildRequorum keeps the binary in a folder, where go finds that it is up to date, and
// copies it.
func buildRequorum(kept, to string) error {
	if err := errors.Join(os.Chmod(to, 0o755), os.MkdirAll(kept, 0o755)); err != nil {
		return err
	}
	lock, err := os.Create(filepath.Join(kept, ".lock"))
	if err != nil {
		return err
	}
	defer lock.Close() // frees the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-ldflags", "-s -w", "-o", kept, "github.com/requorum/requorum/cmd/requorum")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	data, err := os.ReadFile(filepath.Join(kept, "requorum"))
	if err != nil {
		return err
	}
	return WriteProgram(filepath.Join(to, "requorum"), data, 0o755)
}

// Environment has nothing of the tester's that steers requorum, etcd or an S3 server; more
// is added.
func Environment(home string, more ...string) []string {
	var env []string
	for _, e := range os.Environ() {
		steers := false
		for _, prefix := range []string{"AWS_", "ETCD", "REQUORUM_", "HOME=", "XDG_", "VGW_", "MINIO_", "RCLONE_"} {
			steers = steers || strings.HasPrefix(e, prefix)
		}
		if !steers {
			env = append(env, e)
		}
	}
	return append(append(env, "HOME="+home, "XDG_STATE_HOME="+filepath.Join(home, "state"), "AWS_EC2_METADATA_DISABLED=true"), more...)
}
