package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// SlowDisk is a member whose disk takes long to sync, by the kernel's own
// doing: a debugger holds each call up.
type SlowDisk struct {
	tracer *exec.Cmd
	trace  string
	ended  bool
}

// SlowDisk makes each sync of a running member's files last longer, until Stop
// or the member's end. It takes strace, and the right to trace processes.
func (c *Cluster) SlowDisk(t testing.TB, i int, delay time.Duration) *SlowDisk {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		Unavailable(t, "strace is not installed (apt-get install strace)")
	}
	s := &SlowDisk{trace: filepath.Join(t.TempDir(), "strace")}
	s.tracer = exec.Command(strace, "-f", "-o", s.trace, "-p", strconv.Itoa(c.members[i].process.pid()),
		"-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:delay_enter="+strconv.FormatInt(delay.Microseconds(), 10))
	var said bytes.Buffer
	s.tracer.Stderr = &said
	s.tracer.SysProcAttr = WithParent(syscall.SIGTERM)
	if err := s.tracer.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.end() })
	for deadline := time.Now().Add(20 * time.Second); !traced(c.members[i].process.pid()); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.end()
			Unavailable(t, "strace did not get hold of member "+c.members[i].Name+": "+said.String())
		}
	}
	return s
}

// traced tells whether a debugger has all threads of a process.
func traced(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(threads) == 0 {
		return false
	}
	for _, path := range threads {
		status, err := os.ReadFile(path)
		if err == nil && bytes.Contains(status, []byte("\nTracerPid:\t0\n")) {
			return false
		}
	}
	return true
}

// Stop ends it, and fails the test unless syncs were held up.
func (s *SlowDisk) Stop(t testing.TB) {
	t.Helper()
	s.end()
	if s.Held(t) == 0 {
		t.Error("the slow disk held up no sync")
	}
}

// Held counts the syncs that were held up so far.
func (s *SlowDisk) Held(t testing.TB) int {
	t.Helper()
	data, err := os.ReadFile(s.trace)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return bytes.Count(data, []byte("(DELAYED)")) + bytes.Count(data, []byte("<unfinished ...>"))
}

func (s *SlowDisk) end() {
	if s.ended {
		return
	}
	s.ended = true
	_ = s.tracer.Process.Signal(syscall.SIGTERM) // it lets go of the member; it may have ended with it
	_ = s.tracer.Wait()                          // by the signal
}
