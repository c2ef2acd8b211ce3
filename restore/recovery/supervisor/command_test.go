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

	"github.com/requorum/requorum/store/storetest"
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

// TestCommandKill (promise 3): a client that does not end is killed while its stop program
// waits for it, or its status program says that it runs; never one of several processes.
func TestCommandKill(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ waits, status, two, kills bool }{
		"the stop program waits":        {waits: true, kills: true},
		"the status program says so":    {status: true, kills: true},
		"both":                          {waits: true, status: true, kills: true},
		"neither":                       {},
		"two of its name":               {waits: true, status: true, two: true},
		"it is another's by its status": {waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, exe, _ := newCommand(t, "deaf")
			require.NoError(t, c.Start(soon(t, 10*time.Second)))
			ready(t, exe)
			dir := filepath.Dir(c.CommandMember.Stop[0])
			if test.waits {
				write(t, c.CommandMember.Stop[0], fmt.Sprintf("#!/bin/sh\nkill $(cat %q/pid)\nwhile kill -0 $(cat %[1]q/pid) 2>/dev/null; do sleep 0.05; done\n", dir), 0o700)
			}
			switch {
			case name == "it is another's by its status":
				c.Status = []string{"/bin/sh", "-c", "exit 3"}
			case !test.status:
				c.Status = nil
			}
			if test.two {
				other := exec.Command(exe, "client", "busy")
				require.NoError(t, other.Start())
				t.Cleanup(func() { _ = other.Process.Kill(); _ = other.Wait() })
			}
			if killed, err := c.Kill(t.Context()); err != nil || killed {
				t.Fatalf("nobody stops it: %v %v", killed, err)
			}
			stopped := make(chan error, 1)
			ctx := soon(t, 5*time.Second)
			go func() { stopped <- c.Stop(ctx) }()
			time.Sleep(time.Second) // a stop program that does not wait has ended
			killed, err := c.Kill(t.Context())
			if err != nil || killed != test.kills {
				t.Errorf("killed %v, %v", killed, err)
			}
			if err := <-stopped; (err == nil) != test.kills {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestCommand_ProgramThatEnds_NamesItsOutput: the start program succeeds, and what it
// started ends at once.
func TestCommand_ProgramThatEnds_NamesItsOutput(t *testing.T) {
	t.Parallel()
	c, _, _ := newCommand(t, "quick")
	c.CommandMember.Start = []string{"/bin/sh", "-c", "setsid sh -c 'echo it is broken; exit 1' &"}
	err := c.Start(soon(t, time.Second))
	require.ErrorIs(t, err, errNotRunning)
	require.ErrorContains(t, err, c.log)
	storetest.Eventually(t, "its output is there", func() error {
		text, err := os.ReadFile(c.log)
		if err == nil && !strings.Contains(string(text), "it is broken") {
			err = fmt.Errorf("the log has %q", text)
		}
		return err
	})
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
