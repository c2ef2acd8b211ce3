package recovertest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// process is one that the harness started on a host.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// start appends what the program prints to the file log.
func (n namespace) start(t testing.TB, log string, env []string, program string, args ...string) *process {
	t.Helper()
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	require.NoError(t, err)
	defer out.Close() // the process has its own
	p := &process{cmd: n.command(program, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = out, out, env
	p.cmd.SysProcAttr = storetest.WithParent(syscall.SIGKILL)
	require.NoError(t, p.cmd.Start(), "%s on host %s", program, n)
	go func() {
		_ = p.cmd.Wait() // how it ended stands in its log
		close(p.done)
	}()
	n.waitFor(t, p)
	return p
}

// waitFor waits until a process has entered the namespace and become its program:
// who looks for the host's processes before would not find it.
func (n namespace) waitFor(t testing.TB, p *process) {
	t.Helper()
	exe := fmt.Sprintf("/proc/%d/exe", p.cmd.Process.Pid)
	program, err := os.Readlink(exe)
	for start := time.Now(); err == nil && filepath.Base(program) == "ip" && !p.ended(); time.Sleep(time.Millisecond) {
		if time.Since(start) > 20*time.Second {
			t.Fatalf("process %d does not enter namespace %s", p.cmd.Process.Pid, n)
		}
		program, err = os.Readlink(exe)
	}
}

func (p *process) ended() bool {
	if p == nil {
		return true
	}
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill is kill -9, and returns when the process is gone; of one that was never
// started, at once.
func (p *process) kill() {
	if p.ended() {
		return
	}
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// tail is the end of a log, for the output of a failed test, without what etcd
// says when all is well.
func tail(log string, lines int) string {
	data, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	all := slices.DeleteFunc(strings.Split(string(bytes.TrimSpace(data)), "\n"), func(line string) bool {
		return strings.HasPrefix(line, `{"level":"info"`)
	})
	return fmt.Sprintf("%s:\n%s", log, strings.Join(all[max(0, len(all)-lines):], "\n"))
}
