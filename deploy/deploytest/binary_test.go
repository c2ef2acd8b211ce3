// Package deploytest tries what lies in deploy/: each file is read by what is to
// read it, and each command line in it is run by the real binary.
package deploytest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/store/storetest"
)

// top is the root of the repository.
var top = filepath.Join("..", "..")

func TestMain(m *testing.M) { os.Exit(storetest.M{M: m}.Run()) }

// needs skips a test that cannot run here, loudly; where everything is promised to
// be there it fails.
func needs(t testing.TB, have bool, what string) {
	t.Helper()
	if !have {
		storetest.Unavailable(t, what)
	}
}

// deployed is a file of deploy/.
func deployed(t testing.TB, path ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{top, "deploy"}, path...)...))
	require.NoError(t, err)
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

// signer makes a key that signs, as docs/keys.md says, and gives its line for a file of
// trusted keys.
func signer(t testing.TB, path string) (line string) {
	t.Helper()
	sinktest.WriteKey(t, path)
	data, err := os.ReadFile(path + ".trust")
	require.NoError(t, err)
	return string(data)
}

func write(t testing.TB, path, text string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
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

// eventually waits for something that takes a moment.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Since(start) > 5*time.Minute {
			t.Fatalf("not within five minutes: %s", what)
		}
	}
}
