// Package deploytest tries what lies in deploy/: each file is read by what is to
// read it, and each command line in it is run by the real binary.
package deploytest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// top is the root of the repository.
var top = filepath.Join("..", "..")

var built struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	os.RemoveAll(built.dir)
	os.Exit(code)
}

// binary is the static one that the image holds, for everybody to run.
func binary(t testing.TB) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "requorum-deploy-"); built.err != nil {
			return
		}
		if built.err = os.Chmod(built.dir, 0o755); built.err != nil {
			return
		}
		cmd := exec.Command("go", "build", "-trimpath", "-o", built.dir, "./cmd/requorum")
		cmd.Dir = top
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

// needs skips a test that cannot run here, loudly; where everything is promised to
// be there it fails.
func needs(t testing.TB, have bool, what string) {
	t.Helper()
	if have {
		return
	}
	if os.Getenv("REQUORUM_CI") == "1" {
		t.Fatalf("cannot run, and REQUORUM_CI=1 wants it to: %s", what)
	}
	t.Skipf("SKIPPED: %s", what)
}

// deployed is a file of deploy/.
func deployed(t testing.TB, path ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{top, "deploy"}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// replaced fills in what a user of a file has to; everything has to stand there.
func replaced(t testing.TB, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("there is no %q to be replaced in:\n%s", pairs[i], text)
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}

func write(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// ended is how a command ended.
type ended struct {
	code int
	text string // of both its outputs
}

// run runs a command with no more environment than that.
func run(t testing.TB, env []string, name string, args ...string) ended {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatalf("%s: %v", name, err)
	}
	return ended{cmd.ProcessState.ExitCode(), string(out)}
}

// must runs a command that has to end well.
func must(t testing.TB, env []string, name string, args ...string) string {
	t.Helper()
	e := run(t, env, name, args...)
	if e.code != 0 {
		t.Fatalf("%s %s: exit code %d\n%s", name, strings.Join(args, " "), e.code, e.text)
	}
	return e.text
}

// output is what a process writes, while it does.
type output struct {
	lock sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.text.String()
}

// eventually waits for something that takes a moment.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Since(start) > 60*time.Second {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
