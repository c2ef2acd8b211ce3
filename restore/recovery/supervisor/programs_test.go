package supervisor

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestStartKeepsWhatADaemonPrints: what a program leaves behind goes on printing into a
// file that has a name, and an error shows its own attempt only.
func TestStartKeepsWhatADaemonPrints(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log, may, pid := filepath.Join(dir, "m1.log"), filepath.Join(dir, "may"), filepath.Join(dir, "pid")
	daemon := "echo early; (until [ -e " + may + " ]; do sleep 0.02; done; echo late) & echo $! >" + pid
	require.NoError(t, startProgram(t.Context(), []string{"sh", "-c", daemon}, log))
	t.Cleanup(func() { _ = exec.Command("sh", "-c", "kill $(cat "+pid+")").Run() }) // it may have ended
	if i, err := os.Stat(log); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", i, err)
	}
	if data, err := os.ReadFile(log); err != nil || string(data) != "early\n" {
		t.Errorf("%q, %v", data, err)
	}
	if err := os.Truncate(log, 0); err != nil { // as logrotate's copytruncate does
		t.Fatal(err)
	}
	require.NoError(t, os.WriteFile(may, nil, 0o600))
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		data, err := os.ReadFile(log)
		if err == nil && string(data) == "late\n" {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("%q, %v", data, err)
		}
	}
	var exit *ExitError
	if err := startProgram(t.Context(), []string{"sh", "-c", "echo no data >&2; exit 7"}, log); !errors.As(err, &exit) || exit.Code != 7 || exit.Said != "no data" {
		t.Errorf("%v", err)
	}
}

// TestStartThatDoesNotEnd: a start program that stays in the foreground is distinguished
// from one that is slow, by what to do.
func TestStartThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("after 50ms (start-timeout)"))
	defer cancel()
	log := filepath.Join(t.TempDir(), "m1.log")
	err := startProgram(ctx, []string{"sleep", "60"}, log)
	if err == nil || !strings.Contains(err.Error(), "has to end by itself") || !strings.Contains(err.Error(), log) {
		t.Errorf("%v", err)
	}
}
