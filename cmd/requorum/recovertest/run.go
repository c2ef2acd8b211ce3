package recovertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/requorum/requorum/store/storetest"
)

// Operator runs requorum as somebody at a shell would.
type Operator struct {
	binary string
	Dir    string // the working folder and home
	env    []string
}

// NewOperator has an environment and a folder of their own; env is added.
func NewOperator(t testing.TB, env ...string) *Operator {
	t.Helper()
	dir := t.TempDir()
	return &Operator{binary: storetest.Requorum(t), Dir: dir, env: storetest.Environment(dir, env...)}
}

// Ended is how a command ended.
type Ended struct {
	Args           []string
	Code           int // -1: killed
	Stdout, Stderr string
	Took           time.Duration
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
	cmd            *exec.Cmd
	stdout, stderr storetest.Output
	started        time.Time
	done           chan struct{}
	err            error // read after done
}

// Start starts a command. It is killed with the test.
func (o *Operator) Start(t testing.TB, args ...string) *Running {
	t.Helper()
	r := &Running{cmd: exec.Command(o.binary, args...), started: time.Now(), done: make(chan struct{})}
	r.cmd.Dir, r.cmd.Env = o.Dir, o.env
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	r.cmd.SysProcAttr = storetest.WithParent(syscall.SIGKILL)
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		r.err = r.cmd.Wait()
		close(r.done)
	}()
	t.Cleanup(r.Kill)
	return r
}

// Kill is kill -9, and returns when the process is gone.
func (r *Running) Kill() {
	_ = r.cmd.Process.Kill() // it may have ended
	<-r.done
}

// Done is closed when the process has ended.
func (r *Running) Done() <-chan struct{} { return r.done }

// Wait waits for the end; a panic fails the test.
func (r *Running) Wait(t testing.TB) Ended {
	t.Helper()
	<-r.done
	var exit *exec.ExitError
	if r.err != nil && !errors.As(r.err, &exit) {
		t.Fatal(r.err)
	}
	e := Ended{r.cmd.Args[1:], r.cmd.ProcessState.ExitCode(), r.stdout.String(), r.stderr.String(), time.Since(r.started)}
	if strings.Contains(e.Stderr, "goroutine ") {
		t.Errorf("it panicked: %s", e)
	}
	return e
}
