package storetest

import (
	"encoding/json"
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
)

// Operator runs requorum as somebody at a shell would.
type Operator struct {
	Binary string
	Dir    string // the working folder and home
	Env    []string
	Nobody bool // with the rights of a user who owns no file, where the tester is root
}

// NewOperator has an environment and a folder of their own; env is added.
func NewOperator(t testing.TB, env ...string) *Operator {
	t.Helper()
	dir := t.TempDir()
	return &Operator{Binary: Requorum(t), Dir: dir, Env: Environment(dir, env...)}
}

// Path is one below its folder.
func (o *Operator) Path(elem ...string) string {
	return filepath.Join(append([]string{o.Dir}, elem...)...)
}

// Ended is how a command ended.
type Ended struct {
	Args           []string
	Code           int // -1: killed
	Stdout, Stderr string
	Took           time.Duration
	Memory         int64 // bytes in memory at most
}

func (e Ended) String() string {
	return fmt.Sprintf("requorum %s: exit code %d after %s\n%s%s", strings.Join(e.Args, " "), e.Code, e.Took.Round(time.Millisecond), e.Stdout, e.Stderr)
}

// Decode reads what --output json printed into v.
func (e Ended) Decode(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(e.Stdout), v); err != nil {
		t.Fatalf("%v in the output of %s", err, e)
	}
}

// Run runs a command to its end.
func (o *Operator) Run(t testing.TB, args ...string) Ended {
	t.Helper()
	return o.Start(t, args...).Wait(t)
}

// Must is Run, and wants the exit code.
func (o *Operator) Must(t testing.TB, code int, args ...string) Ended {
	t.Helper()
	e := o.Run(t, args...)
	if e.Code != code {
		t.Fatalf("exit code %d, want %d: %s", e.Code, code, e)
	}
	return e
}

// Running is a command under way.
type Running struct {
	*Process
	stdout, stderr Output
	started        time.Time
}

// Start starts a command. It is killed with the test.
func (o *Operator) Start(t testing.TB, args ...string) *Running {
	t.Helper()
	r := &Running{Process: &Process{Cmd: exec.Command(o.Binary, args...)}, started: time.Now()}
	r.Cmd.Dir, r.Cmd.Env = o.Dir, o.Env
	r.Cmd.Stdout, r.Cmd.Stderr = &r.stdout, &r.stderr
	r.Cmd.SysProcAttr = WithParent(syscall.SIGKILL)
	if o.Nobody && os.Getuid() == 0 {
		r.Cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	require.NoError(t, r.start())
	t.Cleanup(r.Kill)
	return r
}

// Wait waits for the end; a panic fails the test.
func (r *Running) Wait(t testing.TB) Ended {
	t.Helper()
	<-r.done
	var exit *exec.ExitError
	if r.err != nil && !errors.As(r.err, &exit) {
		t.Fatal(r.err)
	}
	e := Ended{r.Cmd.Args[1:], r.Cmd.ProcessState.ExitCode(), r.stdout.String(), r.stderr.String(), r.ended.Sub(r.started), 0}
	if usage, ok := r.Cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		e.Memory = usage.Maxrss << 10
	}
	if strings.Contains(e.Stderr, "goroutine ") {
		t.Errorf("it panicked: %s", e)
	}
	return e
}

// WaitSignalled is Wait, and sends a signal after a while.
func (r *Running) WaitSignalled(t testing.TB, sig os.Signal, after time.Duration) Ended {
	t.Helper()
	timer := time.AfterFunc(after, func() { r.Signal(sig) })
	defer timer.Stop()
	return r.Wait(t)
}

// KillAfter is kill -9 after a while; true when that came before the end.
func (r *Running) KillAfter(t testing.TB, after time.Duration) bool {
	t.Helper()
	e := r.WaitSignalled(t, syscall.SIGKILL, after)
	if e.Code > 0 {
		t.Fatalf("it failed before it was killed: %s", e)
	}
	return e.Code < 0
}

// KillOnce is kill -9 a while after something has come to be: a moment that random times
// seldom hit.
func (r *Running) KillOnce(t testing.TB, there func() bool, after time.Duration) bool {
	t.Helper()
	go func() {
		for !there() {
			select {
			case <-r.done:
				return
			case <-time.After(200 * time.Microsecond):
			}
		}
		time.Sleep(after)
		r.Kill()
	}()
	return r.KillAfter(t, time.Minute)
}
