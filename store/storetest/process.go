package storetest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// process is one run of an etcd binary.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// startProcess appends what the server prints to the file log.
func startProcess(binary, log string, args []string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the server has its own
	p := &process{cmd: exec.Command(binary, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	// Go on arm64: 3.4 wants to be told that this is meant.
	p.cmd.Env = append(os.Environ(), "ETCD_UNSUPPORTED_ARCH="+runtime.GOARCH)
	p.cmd.SysProcAttr = WithParent(syscall.SIGKILL)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", binary, err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended stands in its log
		close(p.done)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// kill is kill -9, and returns when the process is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended already
	<-p.done
}

// stop is SIGTERM, and SIGKILL when that takes too long.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		p.kill()
	}
}

// tail is the end of a log, for the output of a failed test.
func tail(log string, lines int) string {
	data, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(string(bytes.TrimSpace(data)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
