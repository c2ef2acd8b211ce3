package storetest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Process is a program that a test has started. It ends with the test's own process.
type Process struct {
	Cmd *exec.Cmd
	Log string // the file that it prints to

	done  chan struct{}
	ended time.Time // this and err are read after done
	err   error
}

// StartProcess starts a command, which appends what it prints to the file log.
func StartProcess(cmd *exec.Cmd, log string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the process has its own
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = WithParent(syscall.SIGKILL)
	p := &Process{Cmd: cmd, Log: log}
	return p, p.start()
}

func (p *Process) start() error {
	p.done = make(chan struct{})
	if err := p.Cmd.Start(); err != nil {
		close(p.done)
		return fmt.Errorf("%s: %w", p.Cmd.Path, err)
	}
	go func() {
		p.err = p.Cmd.Wait()
		p.ended = time.Now()
		close(p.done)
	}()
	return nil
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

// Signal sends a signal; the process may have ended.
func (p *Process) Signal(sig os.Signal) { _ = p.Cmd.Process.Signal(sig) }

// Kill is kill -9, and returns when the process is gone; of one that was never started, at
// once.
func (p *Process) Kill() {
	if p.Running() {
		p.Signal(syscall.SIGKILL)
		<-p.done
	}
}

// Stop is SIGTERM, and SIGKILL when that takes longer than grace.
func (p *Process) Stop(grace time.Duration) {
	p.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(grace):
		p.Kill()
	}
}

// Eventually waits until something holds: for a time that is long on a machine that much
// else keeps busy. The longer it has waited, the more seldom it asks, which may start a
// process.
func Eventually(t testing.TB, what string, holds func() error) {
	t.Helper()
	for begun := time.Now(); ; {
		err := holds()
		if err == nil {
			return
		}
		waited := time.Since(begun)
		if waited > 5*time.Minute {
			t.Fatalf("not within five minutes: %s: %v", what, err)
		}
		time.Sleep(min(max(waited/4, 5*time.Millisecond), time.Second))
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
