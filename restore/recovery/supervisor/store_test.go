package supervisor

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/store/storetest"
)

func storeOf(t *testing.T, dir, state string, command ...string) *bundled {
	t.Helper()
	c, err := NewMember(MemberConfig{Name: "m1", DataDir: dir, ServiceConfig: ServiceConfig{Kind: Store}, Store: StoreMember{Command: command, LogFile: filepath.Join(state, "m1.log")}}, state)
	require.NoError(t, err)
	return c.(*bundled)
}

// TestStore: the bundled store is started once, survives its host process, is
// stopped by the next one, and killed where it does not end. It gets nothing of what
// the host process was given.
func TestStore(t *testing.T) {
	t.Setenv("REQUORUM_TEST_SECRET", "SECRETVALUE")
	dir, state := filepath.Join(t.TempDir(), "data"), t.TempDir()
	command := []string{os.Args[0], "store", dir}
	s := storeOf(t, dir, state, command...)
	require.NoError(t, s.Check(t.Context()))
	require.NoError(t, s.Stopped(t.Context()))
	t.Cleanup(func() { _ = s.signal(syscall.SIGKILL) })
	var first *pid
	for range 2 {
		require.NoError(t, s.Start(soon(t, 30*time.Second)))
		p, err := s.own()
		if err != nil || p == nil || first != nil && *p != *first {
			t.Fatalf("%v after %v: %v", p, first, err)
		}
		first = p
		if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID)); err != nil || len(env) == 0 || strings.Contains(string(env), "SECRETVALUE") {
			t.Errorf("its environment: %q, %v", env, err)
		}
		s = storeOf(t, dir, state, command...) // a host process started anew
	}
	require.ErrorIs(t, s.Stopped(t.Context()), ErrRuns)
	require.NoError(t, s.Stop(soon(t, 30*time.Second)))
	if log, err := os.ReadFile(s.LogFile); err != nil || strings.Contains(string(log), "panic") {
		t.Errorf("%v:\n%s", err, log)
	}

	// One that doesn't listen is killed.
	require.NoError(t, s.Start(soon(t, 30*time.Second)))
	p, err := s.own()
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(p.PID, syscall.SIGSTOP))
	s.killAfter = 300 * time.Millisecond
	require.NoError(t, s.Stop(soon(t, 30*time.Second)))

	// One that was started by hand is found as well.
	require.NoError(t, s.Start(soon(t, 30*time.Second)))
	require.NoError(t, os.Remove(s.pidFile))
	s.killAfter = 20 * time.Second
	require.NoError(t, s.Stop(soon(t, 30*time.Second)))
}

// TestStoreThatEnds is reported at once, and where to read why.
func TestStoreThatEnds(t *testing.T) {
	dir, state := filepath.Join(t.TempDir(), "data"), t.TempDir()
	s := storeOf(t, dir, state, "/bin/false")
	began := time.Now()
	err := s.Start(soon(t, time.Minute))
	if err == nil || !strings.Contains(err.Error(), s.LogFile) || time.Since(began) > 50*time.Second {
		t.Errorf("%v", err)
	}
	require.NoError(t, s.Stopped(t.Context()))
}

// TestLogFileOfAnother: a link that the store's user put in the place of the log file, in a
// folder of its own, is found by Check, and is not written through.
func TestLogFileOfAnother(t *testing.T) {
	storetest.NeedRoot(t)
	logs, secret := t.TempDir(), filepath.Join(t.TempDir(), "secret")
	s := storeOf(t, filepath.Join(t.TempDir(), "data"), t.TempDir(), "/bin/echo", "written")
	s.LogFile = filepath.Join(logs, "m1.log")
	require.NoError(t, errors.Join(os.WriteFile(secret, nil, 0o600), os.Symlink(secret, s.LogFile), os.Chown(logs, 65534, 65534)))
	require.ErrorIs(t, s.Check(t.Context()), safedir.ErrLink)
	ended := make(chan error, 1)
	if err := s.spawn(ended); !errors.Is(err, safedir.ErrLink) {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(secret); err != nil || len(text) > 0 {
		t.Errorf("root's file has %q, %v", text, err)
	}
	// A file of its own gets more at its end.
	require.NoError(t, errors.Join(os.Remove(s.LogFile), os.WriteFile(s.LogFile, []byte("before\n"), 0o600), s.Check(t.Context()), s.spawn(ended)))
	<-ended
	if text, err := os.ReadFile(s.LogFile); err != nil || string(text) != "before\nwritten\n" {
		t.Errorf("the log has %q, %v", text, err)
	}
}

// TestPIDOfAnother: a process that got the number of one that has ended is not
// taken for it.
func TestPIDOfAnother(t *testing.T) {
	dir, state := filepath.Join(t.TempDir(), "data"), t.TempDir()
	s := storeOf(t, dir, state, "/bin/sleep")
	other := exec.Command("/bin/sleep", "60")
	require.NoError(t, other.Start())
	defer func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	}()
	started, err := processStarted(other.Process.Pid)
	require.NoError(t, err)
	require.NoError(t, s.remember(pid{other.Process.Pid, started - 1}))
	require.NoError(t, s.Stop(soon(t, 10*time.Second)))
	require.NoError(t, (pid{other.Process.Pid, started - 1}).signal(syscall.SIGKILL))
	if now, err := processStarted(other.Process.Pid); err != nil || now != started {
		t.Errorf("it was killed: %v", err)
	}
}
