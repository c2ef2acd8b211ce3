package storetest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Process is a program that a test has started. It ends with the test's own process.
type Process struct {
	Cmd *exec.Cmd
	Log string // the file that it prints to

	done chan struct{}
}

// StartProcess starts a command, which appends what it prints to the file log.
func StartProcess(cmd *exec.Cmd, log string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the process has its own
	p := &Process{Cmd: cmd, Log: log, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = WithParent(syscall.SIGKILL)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", cmd.Path, err)
	}
	go func() {
		_ = cmd.Wait() // how it ended stands in its log
		close(p.done)
	}()
	return p, nil
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether it has been started, and has not ended.
func (p *Process) Running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Kill is kill -9, and returns when the process is gone; of one that was never started, at
// once.
func (p *Process) Kill() {
	if p.Running() {
		_ = p.Cmd.Process.Kill() // it may have ended
		<-p.done
	}
}

// Stop is SIGTERM, and SIGKILL when that takes longer than grace.
func (p *Process) Stop(grace time.Duration) {
	_ = p.Cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.done:
	case <-time.After(grace):
		p.Kill()
	}
}

// Tail is the end of a log, for the output of a failed test.
func Tail(log string, lines int) string {
	data, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(string(bytes.TrimSpace(data)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
