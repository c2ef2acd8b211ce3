package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// newCommand is a client of one mode in the hands of shell scripts, as init scripts
// are; calls has a line for each start and stop.
func newCommand(t *testing.T, mode string) (c *command, exe string, calls func() string) {
	t.Helper()
	exe = program(t, mode)
	dir := t.TempDir()
	script := func(name, text string) []string {
		path := filepath.Join(dir, name)
		write(t, path, fmt.Sprintf("#!/bin/sh\ndir=%q\n%s", dir, text), 0o700)
		return []string{path}
	}
	c = &command{evidence: evidence{process: filepath.Base(exe)}, log: filepath.Join(dir, "client.log"), CommandMember: CommandMember{
		Start:  script("start", fmt.Sprintf("echo start >>$dir/calls\nsetsid %q client %s >$dir/log 2>&1 &\necho $! >$dir/pid\n", exe, mode)),
		Stop:   script("stop", "echo stop >>$dir/calls\nkill $(cat $dir/pid)\n"),
		Status: script("status", "test -f $dir/pid && kill -0 $(cat $dir/pid) 2>/dev/null && exit 0\nexit 3\n"),
	}}
	t.Cleanup(func() { kill(t, dir) })
	return c, exe, func() string {
		data, err := os.ReadFile(filepath.Join(dir, "calls"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
		return strings.Join(strings.Fields(string(data)), " ")
	}
}

// kill ends what a script of the test's own started.
func kill(t *testing.T, dir string) {
	t.Helper()
	var pid int
	data, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		return
	}
	if _, err := fmt.Sscan(string(data), &pid); err == nil && pid > 1 {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
}

// TestCommand (promises 1 and 2): each program is run once, however often it is
// asked for, and the proof waits for the process.
func TestCommand(t *testing.T) {
	t.Parallel()
	c, exe, calls := newCommand(t, "busy")
	if wanted, err := c.Wanted(t.Context()); err != nil || wanted {
		t.Fatal(wanted, err)
	}
	require.NoError(t, c.Check(t.Context()))
	for range 2 {
		require.NoError(t, c.Start(soon(t, 10*time.Second)))
	}
	ready(t, exe)
	require.NoError(t, c.Check(t.Context()))
	if wanted, err := c.Wanted(t.Context()); err != nil || !wanted {
		t.Error(wanted, err)
	}
	require.ErrorIs(t, c.Stopped(t.Context()), ErrRuns)
	for range 2 {
		require.NoError(t, c.Stop(soon(t, 10*time.Second)))
	}
	require.NoError(t, c.Stopped(t.Context()))
	require.NoError(t, c.Start(soon(t, 10*time.Second)))
	require.NoError(t, c.Restart(soon(t, 10*time.Second)))
	if got := calls(); got != "start stop start stop start" {
		t.Errorf("%s", got)
	}
}

// TestCommandThatIsDeaf (promise 3): a client that ignores SIGTERM is not killed but
// named, and the next attempt goes on when it is gone.
func TestCommandThatIsDeaf(t *testing.T) {
	t.Parallel()
	c, exe, _ := newCommand(t, "deaf")
	require.NoError(t, c.Start(soon(t, 10*time.Second)))
	ready(t, exe)
	c.Status = nil                        // the process table alone
	err := c.Stop(soon(t, 3*time.Second)) // of which its stop program takes a part
	if !errors.Is(err, ErrRuns) || !strings.Contains(err.Error(), "("+c.process[:min(15, len(c.process))]+")") {
		t.Fatalf("%v", err)
	}
	kill(t, filepath.Dir(c.CommandMember.Stop[0]))
	require.NoError(t, c.Stop(soon(t, 10*time.Second)))
}

// TestProcessNameThatIsWrong (promise 1): a name that no process has would prove
// anything: it is found while the supervisor says that the client runs.
func TestProcessNameThatIsWrong(t *testing.T) {
	t.Parallel()
	c, _, _ := newCommand(t, "quick")
	require.NoError(t, c.Start(soon(t, 10*time.Second)))
	c.process = "no-such-program"
	require.ErrorContains(t, c.Check(t.Context()), "correct process:")
}
