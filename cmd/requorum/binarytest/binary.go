// Package binarytest has the real binary for tests: what a user runs, to be killed
// and measured.
package binarytest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// built is made once for all tests of a package that want it.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// M runs a package's tests, and removes the binary after them: for TestMain.
type M struct{ *testing.M }

// Run is that of testing.M.
func (m M) Run() int {
	defer func() { _ = os.RemoveAll(built.dir) }() // in the system's temporary folder
	return m.M.Run()
}

// Path is the path of requorum.
func Path(t testing.TB) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "requorum-binary-"); built.err != nil {
			return
		}
		cmd := exec.Command("go", "build", "-o", built.dir, "github.com/requorum/requorum/cmd/requorum")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "requorum")
}

// Environment has nothing of the tester's that steers requorum or etcd; more is
// added.
func Environment(home string, more ...string) []string {
	var env []string
	for _, e := range os.Environ() {
		steers := false
		for _, prefix := range []string{"AWS_", "ETCD", "REQUORUM_", "HOME="} {
			steers = steers || strings.HasPrefix(e, prefix)
		}
		if !steers {
			env = append(env, e)
		}
	}
	return append(append(env, "HOME="+home, "AWS_EC2_METADATA_DISABLED=true"), more...)
}
