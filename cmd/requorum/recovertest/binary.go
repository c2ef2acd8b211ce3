package recovertest

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// built is the binary that users run, made once for all tests.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// Main runs a package's tests, several side by side because they mostly wait, and
// removes the binary after them: for TestMain.
func Main(m *testing.M) int {
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err) // there is no such flag any more
	}
	defer func() { _ = os.RemoveAll(built.dir) }() // in the system's temporary folder
	return m.Run()
}

// Binary is the path of requorum.
func Binary(t testing.TB) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "requorum-recovertest-"); built.err != nil {
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

// environment has nothing of the tester's that steers requorum or etcd.
func environment(home string, more ...string) []string {
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
